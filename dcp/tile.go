package dcp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A box is a part of a tensor: in each dimension i the indices from begin[i] up to, but not
// including, end[i].
type box struct{ begin, end []int }

// String returns a box in the notation of slices. It shortens a box of many dimensions.
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

// sizes returns the number of indices in each dimension.
func (b box) sizes() []int {
	sizes := slices.Clone(b.end)
	for i := range sizes {
		sizes[i] -= b.begin[i]
	}
	return sizes
}

// empty reports whether the box has no elements.
func (b box) empty() bool { return slices.Contains(b.sizes(), 0) }

// with returns b with other limits in one dimension.
func (b box) with(dim, begin, end int) box {
	b = box{slices.Clone(b.begin), slices.Clone(b.end)}
	b.begin[dim], b.end[dim] = begin, end
	return b
}

// A piece is a part of a tensor in a file, or what remains of that part after a cut.
type piece struct {
	box
	stored box // the part that the file holds, before any cut
	tensor safetensors.Tensor
	file   string // name of the file, as errors show it
}

func (p *piece) String() string { return fmt.Sprintf("piece %v in %s", p.stored, p.file) }

// A tiling joins the pieces of a tensor: it cuts the tensor until each part is one piece.
type tiling struct {
	name  string // name of the tensor
	dims  []int  // dimensions in which at least one piece does not span the tensor
	count int    // number of the pieces
	parts int    // number of parts into which pieces may still be cut
}

// maxDepth limits how deep joined tensors nest. If each cut separated only one piece from the rest,
// they would nest as deep as there are files.
const maxDepth = 64

// tile joins pieces that fill a tensor without overlap, in any arrangement. None of them may be
// empty. If the pieces form a grid, as those of a mesh of ranks do, tile cuts between them, along
// the outermost dimension first. If every cut would cross a piece, it slices that piece.
func tile(name string, dtype safetensors.DType, shape []int, pieces []*piece) (safetensors.Tensor, error) {
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
		part := func(p *piece) bool { return p.begin[dim] != all.begin[dim] || p.end[dim] != all.end[dim] }
		if slices.ContainsFunc(pieces, part) {
			t.dims = append(t.dims, dim)
		}
	}
	return t.join(all, pieces, 0)
}

// join joins the pieces that fill a box. There must be at least one piece. join changes their order
// in the slice.
func (t *tiling) join(in box, pieces []*piece, depth int) (joined safetensors.Tensor, err error) {
	switch {
	case len(pieces) == 1 && pieces[0].equal(in):
		return pieces[0].tensor, nil
	case depth == maxDepth:
		return joined, broken(t.name, "its %d pieces nest deeper than %d levels", t.count, maxDepth)
	}
	dim, cuts, err := t.cuts(in, pieces)
	if err != nil {
		return joined, err
	}
	groups, err := t.groups(pieces, dim, cuts)
	if err != nil {
		return joined, err
	}
	parts := make([]safetensors.Tensor, len(groups))
	for i, group := range groups {
		if parts[i], err = t.join(in.with(dim, cuts[i], cuts[i+1]), group, depth+1); err != nil {
			return joined, err
		}
	}
	if joined, err = safetensors.Concat(dim, parts...); err != nil {
		return joined, broken(t.name, "%v", prefix.Strip(err))
	}
	return joined, nil
}

// cuts returns the dimension along which to cut a box, and the positions of the cuts, including the
// box's begin and end. If possible, it returns cuts that lie between pieces; otherwise the only cut
// is at the start of one piece. If all pieces start at the corner of the box, they overlap there,
// which is an error.
func (t *tiling) cuts(in box, pieces []*piece) (dim int, cuts []int, err error) {
	for _, dim := range t.dims {
		if cuts, err = t.between(in, pieces, dim); err != nil || len(cuts) > 2 {
			return dim, cuts, err
		}
	}
	for _, p := range pieces {
		for _, dim := range t.dims {
			if at := p.begin[dim]; at > in.begin[dim] {
				return dim, []int{in.begin[dim], at, in.end[dim]}, nil
			}
		}
	}
	return 0, nil, broken(t.name, "%v overlaps %v", pieces[1], pieces[0])
}

// between sorts the pieces along a dimension. It returns the positions at which a piece starts and
// all pieces before it have ended, including the begin of the box, and then the end of the box. It
// is an error if no piece covers some position in between.
func (t *tiling) between(in box, pieces []*piece, dim int) (cuts []int, err error) {
	slices.SortStableFunc(pieces, func(a, b *piece) int { return cmp.Compare(a.begin[dim], b.begin[dim]) })
	end := in.begin[dim]
	for _, p := range pieces {
		switch begin := p.begin[dim]; {
		case begin > end:
			return nil, t.hole(in.with(dim, end, begin), pieces)
		case begin == end:
			cuts = append(cuts, begin)
		}
		end = max(end, p.end[dim])
	}
	if end < in.end[dim] {
		return nil, t.hole(in.with(dim, end, in.end[dim]), pieces)
	}
	return append(cuts, end), nil
}

// hole returns the error for a part of the tensor that no piece holds. The slice near has pieces
// around that part.
func (t *tiling) hole(at box, near []*piece) error {
	return broken(t.name, "no piece holds %v, next to %v", at, near[0])
}

// groups returns the pieces in each part of a box that is cut along a dimension. Pieces that lie in
// several parts are also cut.
func (t *tiling) groups(pieces []*piece, dim int, cuts []int) (groups [][]*piece, err error) {
	groups = make([][]*piece, len(cuts)-1)
	for _, p := range pieces {
		i, found := slices.BinarySearch(cuts, p.begin[dim])
		if !found {
			i--
		}
		for ; cuts[i] < p.end[dim]; i++ {
			part, err := t.part(p, dim, max(p.begin[dim], cuts[i]), min(p.end[dim], cuts[i+1]))
			if err != nil {
				return nil, err
			}
			groups[i] = append(groups[i], part)
		}
	}
	return groups, nil
}

// part returns the part of a piece from begin to end in one dimension.
func (t *tiling) part(p *piece, dim, begin, end int) (*piece, error) {
	if begin == p.begin[dim] && end == p.end[dim] {
		return p, nil
	}
	if t.parts--; t.parts < 0 {
		return nil, broken(t.name, "its %d pieces would have to be cut too often to be joined", t.count)
	}
	ranges := make([]safetensors.Range, dim+1) // the zero Range is All()
	ranges[dim] = safetensors.Span(begin-p.begin[dim], end-p.begin[dim])
	tensor, err := p.tensor.Slice(ranges...)
	if err != nil {
		return nil, broken(t.name, "cutting %v: %v", p, prefix.Strip(err))
	}
	return &piece{p.with(dim, begin, end), p.stored, tensor, p.file}, nil
}
