package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// maxLevels is the largest number of parts into which a name is split; the last part is the rest of
// the name.
const maxLevels = 20

// A treePrinter prints tensors as a tree with totals.
type treePrinter struct {
	w       io.Writer
	tensors []listed
	bySize  bool // whether the largest branch comes first; otherwise branches are sorted by name, and numbers in names by value
}

// printTree prints tensors as a tree with totals. Names are split at dots. depth is the number of
// levels; 0 means all.
func printTree(w io.Writer, tensors []listed, depth int, bySize bool) {
	t := &treePrinter{w, tensors, bySize}
	names := make([]string, len(tensors))
	for i := range tensors {
		names[i] = tensors[i].Name
	}
	fmt.Fprintf(w, "NAME\tDTYPE\tSHAPE\t%17s\t%8s\n", "PARAMETERS", "BYTES")
	for _, b := range t.split(pattern.Tree(names, maxLevels)) {
		t.print(b, "", "", depth)
	}
}

// split returns the branches below b in order.
func (t *treePrinter) split(b pattern.Branch) []pattern.Branch {
	below := b.Split()
	slices.SortFunc(below, func(a, b pattern.Branch) int { return pattern.Compare(a.Name, b.Name) })
	if t.bySize {
		slices.SortStableFunc(below, func(a, b pattern.Branch) int { return cmp.Compare(t.sum(b).Bytes, t.sum(a).Bytes) })
	}
	return below
}

// sum returns the totals of a branch.
func (t *treePrinter) sum(b pattern.Branch) (sum total) {
	for _, i := range b.Members {
		sum.add(t.tensors[i])
	}
	return sum
}

// print prints a branch, and up to depth levels of branches below it. Its own line starts
// with first, and the lines below start with rest. If a branch has no tensor of its own, and only
// one branch below it, both are on one line.
func (t *treePrinter) print(b pattern.Branch, first, rest string, depth int) {
	start, below := b.Start, t.split(b)
	for b.Named() < 0 && len(below) == 1 && depth != 1 {
		b = below[0]
		below = t.split(b)
		depth = max(depth-1, 0)
	}
	sum := t.sum(b)
	dtype, dims := "", term.Plural(sum.Tensors, "tensor")
	if i := b.Named(); i >= 0 {
		dtype, dims = t.tensors[i].DType.String(), term.Shape(t.tensors[i].Shape)
	}
	fmt.Fprintf(t.w, "%s%s\t%s\t%s\t%17s\t%8s\n", first, term.Name(b.Name[start:]), dtype, dims, term.Count(sum.Parameters), term.Bytes(sum.Bytes))
	if depth == 1 {
		return
	}
	for i, next := range below {
		branch, line := "├─ ", "│  "
		if i+1 == len(below) {
			branch, line = "└─ ", "   "
		}
		t.print(next, rest+branch, rest+line, max(depth-1, 0))
	}
}
