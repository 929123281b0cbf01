package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// maxLevels is the most parts of a name; the last one is the rest of it.
const maxLevels = 20

// printTree prints tensors as a tree of a depth, 0 for all of it, with sums. Names are
// split at dots.
func printTree(w io.Writer, tensors []listed, depth int) {
	names := make([]string, len(tensors))
	for i := range tensors {
		names[i] = tensors[i].Name
	}
	fmt.Fprintf(w, "NAME\tDTYPE\tSHAPE\t%17s\t%8s\n", "PARAMETERS", "BYTES")
	for _, b := range split(pattern.Tree(names, maxLevels)) {
		printBranch(w, tensors, b, "", "", depth)
	}
}

// split returns the branches below a branch, in the order of their first tensors.
func split(b pattern.Branch) []pattern.Branch {
	below := b.Split()
	slices.SortFunc(below, func(a, b pattern.Branch) int { return cmp.Compare(slices.Min(a.Members), slices.Min(b.Members)) })
	return below
}

// printBranch prints a branch after the text first, and those below it after the text rest, up
// to depth levels. A branch with one below it and no tensor is on one line with it.
func printBranch(w io.Writer, tensors []listed, b pattern.Branch, first, rest string, depth int) {
	start, below := b.Start, split(b)
	for b.Named() < 0 && len(below) == 1 && depth != 1 {
		b = below[0]
		below = split(b)
		depth = max(depth-1, 0)
	}
	var sum total
	for _, i := range b.Members {
		sum.add(tensors[i])
	}
	dtype, dims := "", term.Plural(sum.Tensors, "tensor")
	if i := b.Named(); i >= 0 {
		dtype, dims = tensors[i].DType.String(), term.Shape(tensors[i].Shape)
	}
	fmt.Fprintf(w, "%s%s\t%s\t%s\t%17s\t%8s\n", first, term.Name(b.Name[start:]), dtype, dims, term.Count(sum.Parameters), term.Bytes(sum.Bytes))
	if depth == 1 {
		return
	}
	for i, next := range below {
		branch, line := "├─ ", "│  "
		if i+1 == len(below) {
			branch, line = "└─ ", "   "
		}
		printBranch(w, tensors, next, rest+branch, rest+line, max(depth-1, 0))
	}
}
