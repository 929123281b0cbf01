package dcp

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A box is the indices of a part of a tensor: in each dimension those from begin up
// to, not including, end.
type box struct{ begin, end []int }

// String returns a box as a slice is written, the start of one of many dimensions.
func (b box) String() string {
	const limit = 32
	var ranges []string
	for i := range b.begin {
		if i == limit {
			ranges = append(ranges, fmt.Sprintf("... %d dimensions", len(b.begin)))
			break
		}
		ranges = append(ranges, fmt.Sprintf("%d:%d", b.begin[i], b.end[i]))
	}
	return "[" + strings.Join(ranges, ",") + "]"
}

func (b box) equal(other box) bool {
	return slices.Equal(b.begin, other.begin) && slices.Equal(b.end, other.end)
}

func (b box) empty() bool {
	for i := range b.begin {
		if b.begin[i] == b.end[i] {
			return true
		}
	}
	return false
}

// overlaps reports whether two boxes that are not empty have an index in common.
func (b box) overlaps(other box) bool {
	for i := range b.begin {
		if b.end[i] <= other.begin[i] || other.end[i] <= b.begin[i] {
			return false
		}
	}
	return true
}

// with returns b with other limits in one dimension.
func (b box) with(dim, begin, end int) box {
	b = box{slices.Clone(b.begin), slices.Clone(b.end)}
	b.begin[dim], b.end[dim] = begin, end
	return b
}

// meet returns the indices that two boxes have in common.
func (b box) meet(other box) box {
	m := box{make([]int, len(b.begin)), make([]int, len(b.begin))}
	for i := range b.begin {
		m.begin[i], m.end[i] = max(b.begin[i], other.begin[i]), min(b.end[i], other.end[i])
	}
	return m
}

// A piece is a part of a tensor that a file holds.
type piece struct {
	box
	tensor safetensors.Tensor
	shard  *shard
}

func (p *piece) String() string { return fmt.Sprintf("piece %v in %s", p.box, p.shard.name) }

// A region is a box of a tensor: one piece, or several regions joined along a
// dimension. It is not empty.
type region struct {
	tensor safetensors.Tensor
	parts  []region // nil for a piece
	row    int64    // of the regions joined: bytes of a row, which has a part of each
	end    int64    // of this region among its neighbours: where its part of a row ends
}

// A tiling cuts a tensor until each part is one piece.
type tiling struct {
	name  string // of the tensor
	count int    // of the pieces
	parts int    // how many more parts of pieces may be made
}

// tile joins pieces, none of them empty, that fill a box without overlap. Any
// tiling will do: a mesh of ranks makes a grid, which is cut between the pieces,
// along the outermost dimension first. Where every cut crosses a piece, the piece is
// sliced.
func tile(name string, all box, pieces []piece) (region, error) {
	t := &tiling{name: name, count: len(pieces), parts: 8 * len(pieces)}
	return t.region(all, pieces, false)
}

// region joins the pieces in a box. They lie within it; disjoint says that it is
// known that they do not overlap. It changes the order of pieces.
func (t *tiling) region(in box, pieces []piece, disjoint bool) (region, error) {
	if len(pieces) == 1 && pieces[0].equal(in) {
		return region{tensor: pieces[0].tensor}, nil
	}
	for dim := range in.begin {
		cuts, err := t.between(in, pieces, dim)
		if err != nil {
			return region{}, err
		}
		if len(cuts) > 0 {
			return t.join(in, pieces, dim, cuts, disjoint)
		}
	}
	if !disjoint {
		if err := t.checkDisjoint(pieces); err != nil {
			return region{}, err
		}
	}
	return t.across(in, pieces)
}

// between sorts pieces along a dimension and returns the number of each that starts
// after all before it end. It is an error if a piece starts later than that.
func (t *tiling) between(in box, pieces []piece, dim int) (cuts []int, err error) {
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.begin[dim], b.begin[dim]) })
	end := in.begin[dim]
	for i := range pieces {
		switch begin := pieces[i].begin[dim]; {
		case begin > end:
			return nil, t.hole(in.with(dim, end, begin), pieces)
		case begin == end && i > 0:
			cuts = append(cuts, i)
		}
		end = max(end, pieces[i].end[dim])
	}
	if end < in.end[dim] {
		return nil, t.hole(in.with(dim, end, in.end[dim]), pieces)
	}
	return cuts, nil
}

// hole returns the error of a box that no piece holds. near are those around it.
func (t *tiling) hole(at box, near []piece) error {
	if len(near) == 0 {
		return broken(t.name, "no piece holds %v", at)
	}
	return broken(t.name, "no piece holds %v, next to %v", at, &near[0])
}

// checkDisjoint checks that no two pieces overlap.
func (t *tiling) checkDisjoint(pieces []piece) error {
	for i := range pieces {
		for k := range pieces[:i] {
			if pieces[i].overlaps(pieces[k].box) {
				return broken(t.name, "%v overlaps %v", &pieces[i], &pieces[k])
			}
		}
	}
	return nil
}

// join joins groups of pieces along a dimension. cuts are the numbers of the first
// pieces of all groups but the first.
func (t *tiling) join(in box, pieces []piece, dim int, cuts []int, disjoint bool) (region, error) {
	parts := make([]region, 0, len(cuts)+1)
	begin, end := 0, in.begin[dim]
	for _, cut := range append(cuts, len(pieces)) {
		first := end
		if end = in.end[dim]; cut < len(pieces) {
			end = pieces[cut].begin[dim]
		}
		part, err := t.region(in.with(dim, first, end), pieces[begin:cut], disjoint)
		if err != nil {
			return region{}, err
		}
		parts = append(parts, part)
		begin = cut
	}
	return t.joined(dim, parts)
}

// across cuts pieces that do not overlap in two, at a side of one of them.
func (t *tiling) across(in box, pieces []piece) (region, error) {
	dim, at := side(in, pieces)
	halves := []box{in.with(dim, in.begin[dim], at), in.with(dim, at, in.end[dim])}
	parts := make([]region, len(halves))
	for i, half := range halves {
		inside, err := t.inside(half, pieces)
		if err != nil {
			return region{}, err
		}
		if parts[i], err = t.region(half, inside, true); err != nil {
			return region{}, err
		}
	}
	return t.joined(dim, parts)
}

// side returns where a piece starts inside a box. There is such a piece: those that
// start at the corner of the box would overlap.
func side(in box, pieces []piece) (dim, at int) {
	for _, p := range pieces {
		for dim, at := range p.begin {
			if at > in.begin[dim] {
				return dim, at
			}
		}
	}
	panic("unreachable")
}

// inside returns the parts of pieces that lie within a box.
func (t *tiling) inside(in box, pieces []piece) ([]piece, error) {
	var parts []piece
	for i := range pieces {
		p := &pieces[i]
		if !p.overlaps(in) {
			continue
		}
		part := p.box.meet(in)
		if part.equal(p.box) {
			parts = append(parts, *p)
			continue
		}
		if t.parts--; t.parts < 0 {
			return nil, broken(t.name, "its %d pieces would have to be cut too often to be joined", t.count)
		}
		ranges := make([]safetensors.Range, len(part.begin))
		for k := range ranges {
			ranges[k] = safetensors.Span(part.begin[k]-p.begin[k], part.end[k]-p.begin[k])
		}
		tensor, err := p.tensor.Slice(ranges...)
		if err != nil {
			return nil, broken(t.name, "cutting %v: %v", p, bare(err))
		}
		parts = append(parts, piece{part, tensor, p.shard})
	}
	return parts, nil
}

// joined returns regions joined along a dimension.
func (t *tiling) joined(dim int, parts []region) (region, error) {
	r := region{parts: parts}
	tensors := make([]safetensors.Tensor, len(parts))
	for i := range parts {
		tensors[i] = parts[i].tensor
		rows := int64(1)
		for _, n := range tensors[i].Shape()[:dim] {
			rows *= int64(n)
		}
		r.row += tensors[i].Size() / rows
		parts[i].end = r.row
	}
	var err error
	if r.tensor, err = safetensors.Concat(dim, tensors...); err != nil {
		return region{}, broken(t.name, "%v", bare(err))
	}
	return r, nil
}

// narrow goes down to the region that has all of n bytes from off on, and returns
// where they are in it: a run of a slice is read from its piece, without a look at
// the others.
func (r *region) narrow(off, n int64) (*region, int64) {
	for len(r.parts) > 0 {
		within := off % r.row
		i := sort.Search(len(r.parts), func(i int) bool { return r.parts[i].end > within })
		begin, end := int64(0), r.parts[i].end
		if i > 0 {
			begin = r.parts[i-1].end
		}
		if n > end-within {
			break
		}
		off = off/r.row*(end-begin) + within - begin
		r = &r.parts[i]
	}
	return r, off
}
