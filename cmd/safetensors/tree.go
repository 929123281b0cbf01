package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A node is a part of a name, and the sum of the tensors below it.
type node struct {
	label    string
	sum      total
	tensor   *listed // nil if no tensor has that name
	children []*node // in the order of their first tensor
	byLabel  map[string]*node
}

// maxLevels is the most parts of a name; the last one is the rest of it.
const maxLevels = 20

// printTree prints tensors as a tree of a depth, 0 for all of it, with sums. Names are
// split at dots.
func printTree(w io.Writer, tensors []listed, depth int) {
	root := &node{}
	for i := range tensors {
		root.add(&tensors[i])
	}
	fmt.Fprintf(w, "NAME\tDTYPE\tSHAPE\t%17s\t%8s\n", "PARAMETERS", "BYTES")
	for _, child := range root.children {
		child.print(w, "", "", depth)
	}
}

func (n *node) add(t *listed) {
	n.sum.add(*t)
	for _, label := range strings.SplitN(t.Name, ".", maxLevels) {
		child := n.byLabel[label]
		if child == nil {
			child = &node{label: label}
			if n.byLabel == nil {
				n.byLabel = make(map[string]*node)
			}
			n.byLabel[label] = child
			n.children = append(n.children, child)
		}
		child.sum.add(*t)
		n = child
	}
	n.tensor = t
}

// print prints a node after the text first, and those below it after the text rest, up
// to depth levels. A node with one child and no tensor is on one line with it.
func (n *node) print(w io.Writer, first, rest string, depth int) {
	label := n.label
	for n.tensor == nil && len(n.children) == 1 && depth != 1 {
		n = n.children[0]
		label += "." + n.label
		depth = max(depth-1, 0)
	}
	dtype, dims := "", ""
	switch {
	case n.tensor != nil:
		dtype, dims = n.tensor.DType.String(), shape(n.tensor.Shape)
	default:
		if dims = strconv.Itoa(n.sum.Tensors) + " tensors"; n.sum.Tensors == 1 {
			dims = "1 tensor"
		}
	}
	fmt.Fprintf(w, "%s%s\t%s\t%s\t%17s\t%8s\n", first, term.Name(label), dtype, dims, term.Count(n.sum.Parameters), term.Bytes(n.sum.Bytes))
	if depth == 1 {
		return
	}
	for i, child := range n.children {
		if i+1 < len(n.children) {
			child.print(w, rest+"├─ ", rest+"│  ", max(depth-1, 0))
		} else {
			child.print(w, rest+"└─ ", rest+"   ", max(depth-1, 0))
		}
	}
}
