package dcp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A box is the indices of a part of a tensor: in each dimension those from begin up
// to, not including, end.
type box struct{ begin, end []int }

// String returns a box as a slice is written, the start of one of many dimensions.
func (b box) String() string {
	const limit = 32
	var ranges []string
	for i := range min(len(b.begin), limit) {
		ranges = append(ranges, fmt.Sprintf("%d:%d", b.begin[i], b.end[i]))
	}
	if len(b.begin) > limit {
		ranges = append(ranges, fmt.Sprintf("... %d dimensions", len(b.begin)))
	}
	return "[" + strings.Join(ranges, ",") + "]"
}

func (b box) equal(other box) bool {
	return slices.Equal(b.begin, other.begin) && slices.Equal(b.end, other.end)
}

func (b box) sizes() []int {
	sizes := slices.Clone(b.end)
	for i := range sizes {
		sizes[i] -= b.begin[i]
	}
	return sizes
}

func (b box) empty() bool { return slices.Contains(b.sizes(), 0) }

// with returns b with other limits in one dimension.
func (b box) with(dim, begin, end int) box {
	b = box{slices.Clone(b.begin), slices.Clone(b.end)}
	b.begin[dim], b.end[dim] = begin, end
	return b
}

// A piece is a part of a tensor that a file holds, or what a cut has left of it.
type piece struct {
	box
	stored box // of all that the file holds
	tensor safetensors.Tensor
	shard  *shard
}

func (p *piece) String() string { return fmt.Sprintf("piece %v in %s", p.stored, p.shard.name) }

// A tiling cuts a tensor until each part is one piece.
type tiling struct {
	name  string // of the tensor
	dims  []int  // the dimensions in which some piece is not whole
	count int    // of the pieces
	parts int    // how many more parts of pieces may be made
}

// maxDepth is how deep joined tensors nest. Pieces that are cut off one after another
// would nest as deep as there are files.
const maxDepth = 64

// tile joins pieces, none of them empty, that fill a tensor without overlap. Any
// tiling will do: a mesh of ranks makes a grid, which is cut between the pieces,
// along the outermost dimension first. Where every cut crosses a piece, the piece is
// sliced.
func tile(name string, dtype safetensors.DType, shape []int, pieces []piece) (safetensors.Tensor, error) {
	all := box{make([]int, len(shape)), shape}
	if all.empty() {
		t, err := safetensors.NewTensor(dtype, shape, []byte{})
		if err != nil {
			return t, broken(name, "%v", prefix.Strip(err))
		}
		return t, nil
	}
	if len(pieces) == 0 {
		return safetensors.Tensor{}, broken(name, "no piece holds %v", all)
	}
	t := &tiling{name: name, count: len(pieces), parts: 8 * len(pieces)}
	for dim := range all.begin {
		part := func(p piece) bool { return p.begin[dim] != all.begin[dim] || p.end[dim] != all.end[dim] }
		if slices.ContainsFunc(pieces, part) {
			t.dims = append(t.dims, dim)
		}
	}
	return t.join(all, pieces, 0)
}

// join joins the pieces in a box, at least one. They lie within it. It changes their order.
func (t *tiling) join(in box, pieces []piece, depth int) (joined safetensors.Tensor, err error) {
	switch {
	case len(pieces) == 1 && pieces[0].equal(in):
		return pieces[0].tensor, nil
	case depth == maxDepth:
		return joined, broken(t.name, "its %d pieces nest deeper than %d levels", t.count, maxDepth)
	}
	for _, dim := range t.dims {
		firsts, err := t.between(in, pieces, dim)
		if err != nil {
			return joined, err
		}
		if len(firsts) > 1 {
			return t.along(in, pieces, dim, firsts, depth)
		}
	}
	return t.across(in, pieces, depth)
}

// between sorts pieces along a dimension and returns the number of each that starts
// where all before it end, as the first does. It is an error if a piece starts later than that.
func (t *tiling) between(in box, pieces []piece, dim int) (firsts []int, err error) {
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.begin[dim], b.begin[dim]) })
	end := in.begin[dim]
	for i := range pieces {
		switch begin := pieces[i].begin[dim]; {
		case begin > end:
			return nil, t.hole(in.with(dim, end, begin), pieces)
		case begin == end:
			firsts = append(firsts, i)
		}
		end = max(end, pieces[i].end[dim])
	}
	if end < in.end[dim] {
		return nil, t.hole(in.with(dim, end, in.end[dim]), pieces)
	}
	return firsts, nil
}

// hole returns the error of a box that no piece holds. near are those around it.
func (t *tiling) hole(at box, near []piece) error {
	return broken(t.name, "no piece holds %v, next to %v", at, &near[0])
}

// along joins groups of pieces along a dimension, by the numbers of their first pieces.
func (t *tiling) along(in box, pieces []piece, dim int, firsts []int, depth int) (joined safetensors.Tensor, err error) {
	parts := make([]safetensors.Tensor, len(firsts))
	for i, first := range firsts {
		next, end := len(pieces), in.end[dim]
		if i+1 < len(firsts) {
			next = firsts[i+1]
			end = pieces[next].begin[dim]
		}
		group := in.with(dim, pieces[first].begin[dim], end)
		if parts[i], err = t.join(group, pieces[first:next], depth+1); err != nil {
			return joined, err
		}
	}
	return t.concat(dim, parts)
}

// across cuts pieces in two, at a side of one of them. If all start at the corner of
// the box, they overlap there.
func (t *tiling) across(in box, pieces []piece, depth int) (joined safetensors.Tensor, err error) {
	dim, at := t.side(in, pieces)
	if dim < 0 {
		return joined, broken(t.name, "%v overlaps %v", &pieces[1], &pieces[0])
	}
	parts := make([]safetensors.Tensor, 2)
	for i, half := range []box{in.with(dim, in.begin[dim], at), in.with(dim, at, in.end[dim])} {
		inside, err := t.inside(half, pieces, dim)
		if err != nil {
			return joined, err
		}
		if parts[i], err = t.join(half, inside, depth+1); err != nil {
			return joined, err
		}
	}
	return t.concat(dim, parts)
}

// side returns where a piece starts inside a box, and -1 if none does.
func (t *tiling) side(in box, pieces []piece) (dim, at int) {
	for _, p := range pieces {
		for _, dim := range t.dims {
			if at := p.begin[dim]; at > in.begin[dim] {
				return dim, at
			}
		}
	}
	return -1, 0
}

// inside returns the parts of pieces that lie within a half of their box, cut along a
// dimension.
func (t *tiling) inside(half box, pieces []piece, dim int) ([]piece, error) {
	var parts []piece
	for _, p := range pieces {
		begin, end := max(p.begin[dim], half.begin[dim]), min(p.end[dim], half.end[dim])
		if begin >= end {
			continue
		}
		if begin > p.begin[dim] || end < p.end[dim] {
			if t.parts--; t.parts < 0 {
				return nil, broken(t.name, "its %d pieces would have to be cut too often to be joined", t.count)
			}
			ranges := make([]safetensors.Range, dim+1) // the zero Range is All()
			ranges[dim] = safetensors.Span(begin-p.begin[dim], end-p.begin[dim])
			var err error
			if p.tensor, err = p.tensor.Slice(ranges...); err != nil {
				return nil, broken(t.name, "cutting %v: %v", &p, prefix.Strip(err))
			}
			p.box = p.with(dim, begin, end)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// concat joins tensors along a dimension.
func (t *tiling) concat(dim int, parts []safetensors.Tensor) (safetensors.Tensor, error) {
	joined, err := safetensors.Concat(dim, parts...)
	if err != nil {
		return joined, broken(t.name, "%v", prefix.Strip(err))
	}
	return joined, nil
}
