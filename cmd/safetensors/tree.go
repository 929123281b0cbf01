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

// printTree prints tensors as a tree, with sums. Names are split at dots.
func printTree(w io.Writer, tensors []listed) {
	root := &node{}
	for i := range tensors {
		root.add(&tensors[i])
	}
	fmt.Fprintf(w, "NAME\tDTYPE\tSHAPE\t%17s\t%8s\n", "PARAMETERS", "BYTES")
	for _, child := range root.children {
		child.print(w, "", "")
	}
}

func (n *node) add(t *listed) {
	n.sum.add(*t)
	for _, label := range strings.Split(t.Name, ".") {
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

// print prints a node after the text first, and those below it after the text rest. A
// node with one child and no tensor is on one line with it.
func (n *node) print(w io.Writer, first, rest string) {
	label := n.label
	for n.tensor == nil && len(n.children) == 1 {
		n = n.children[0]
		label += "." + n.label
	}
	dtype, dims := "", ""
	switch {
	case n.tensor != nil:
		dtype, dims = n.tensor.DType.String(), shape(n.tensor.Shape)
	default:
		dims = strconv.Itoa(n.sum.Tensors) + " tensors"
	}
	fmt.Fprintf(w, "%s%s\t%s\t%s\t%17s\t%8s\n", first, term.Name(label), dtype, dims, term.Count(n.sum.Parameters), term.Bytes(n.sum.Bytes))
	for i, child := range n.children {
		if i+1 < len(n.children) {
			child.print(w, rest+"├─ ", rest+"│  ")
		} else {
			child.print(w, rest+"└─ ", rest+"   ")
		}
	}
}
