package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// maxLevels is the most parts of a name; the last one is the rest of it.
const maxLevels = 20

// A nameTree prints tensors by the parts of their names. It holds no node for each part, of
// which a header may have twenty times as many as tensors: a branch is a range of the
// sorted names, and only those between the root and the line being printed exist.
type nameTree struct {
	w       io.Writer
	tensors []listed
}

// A branch is the tensors whose names begin with the same parts.
type branch struct {
	sorted     []int // of the tensors, by name
	start, end int   // in each name: its last part
	level      int
	first      int // of the tensors
	sum        total
}

// printTree prints tensors as a tree of a depth, 0 for all of it, with sums. Names are
// split at dots.
func printTree(w io.Writer, tensors []listed, depth int) {
	t := nameTree{w, tensors}
	root := branch{sorted: make([]int, len(tensors)), end: -1}
	for i := range tensors {
		root.sorted[i] = i
	}
	slices.SortFunc(root.sorted, func(a, b int) int { return compareParts(tensors[a].Name, tensors[b].Name) })
	fmt.Fprintf(w, "NAME\tDTYPE\tSHAPE\t%17s\t%8s\n", "PARAMETERS", "BYTES")
	_, below := t.split(root)
	for _, b := range below {
		t.print(b, "", "", depth)
	}
}

// compareParts compares names so that those that begin with the same parts are together:
// a dot comes before all else.
func compareParts(a, b string) int {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	at := func(name string) int {
		switch {
		case i == len(name):
			return -2
		case name[i] == '.':
			return -1
		}
		return int(name[i])
	}
	return cmp.Compare(at(a), at(b))
}

// split returns the tensor that has the name of a branch, if there is one, and the branches
// below, in the order of their first tensors.
func (t nameTree) split(b branch) (named *listed, below []branch) {
	rest := b.sorted
	if len(rest) > 0 && len(t.tensors[rest[0]].Name) == b.end {
		named, rest = &t.tensors[rest[0]], rest[1:]
	}
	for len(rest) > 0 {
		next := branch{start: b.end + 1, level: b.level + 1, first: rest[0]}
		name := t.tensors[rest[0]].Name
		next.end = next.endIn(name)
		part, n := name[next.start:next.end], 0
		for n < len(rest) {
			x := t.tensors[rest[n]]
			if x.Name[next.start:next.endIn(x.Name)] != part {
				break
			}
			next.first = min(next.first, rest[n])
			next.sum.add(x)
			n++
		}
		next.sorted, rest = rest[:n], rest[n:]
		below = append(below, next)
	}
	slices.SortFunc(below, func(a, b branch) int { return cmp.Compare(a.first, b.first) })
	return named, below
}

// endIn returns where the part of a name ends that starts where that of the branch does.
func (b branch) endIn(name string) int {
	if dot := strings.IndexByte(name[b.start:], '.'); dot >= 0 && b.level < maxLevels {
		return b.start + dot
	}
	return len(name)
}

// print prints a branch after the text first, and those below it after the text rest, up
// to depth levels. A branch with one below it and no tensor is on one line with it.
func (t nameTree) print(b branch, first, rest string, depth int) {
	start := b.start
	named, below := t.split(b)
	for named == nil && len(below) == 1 && depth != 1 {
		b = below[0]
		named, below = t.split(b)
		depth = max(depth-1, 0)
	}
	label := t.tensors[b.first].Name[start:b.end]
	dtype, dims := "", ""
	switch {
	case named != nil:
		dtype, dims = named.DType.String(), shape(named.Shape)
	default:
		if dims = strconv.Itoa(b.sum.Tensors) + " tensors"; b.sum.Tensors == 1 {
			dims = "1 tensor"
		}
	}
	fmt.Fprintf(t.w, "%s%s\t%s\t%s\t%17s\t%8s\n", first, term.Name(label), dtype, dims, term.Count(b.sum.Parameters), term.Bytes(b.sum.Bytes))
	if depth == 1 {
		return
	}
	for i, next := range below {
		if i+1 < len(below) {
			t.print(next, rest+"├─ ", rest+"│  ", max(depth-1, 0))
		} else {
			t.print(next, rest+"└─ ", rest+"   ", max(depth-1, 0))
		}
	}
}
