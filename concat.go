package safetensors

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gosafetensors/safetensors/internal/mem"
)

// Concat returns tensors joined along dimension dim, lazily. They must agree in dtype,
// rank, and every other dimension. Rows of dtypes below a byte must fill whole bytes.
// Adjacent pieces of one tensor become that tensor again; any other result has no View.
func Concat(dim int, tensors ...Tensor) (Tensor, error) {
	t, err := concatenate(dim, tensors)
	if err != nil {
		return Tensor{}, prefixed(fmt.Errorf("concatenating along dimension %d: %w", dim, err))
	}
	return t, nil
}

// A concat is what a joined tensor has in place of a source.
type concat struct {
	dim    int
	pieces []Tensor // at least two; none without elements, none a concat along dim
}

func concatenate(dim int, tensors []Tensor) (Tensor, error) {
	shape, err := concatShape(dim, tensors)
	if err != nil {
		return Tensor{}, err
	}
	var pieces []Tensor
	for _, t := range tensors {
		if t.Len() == 0 {
			continue
		}
		inner := []Tensor{t}
		if t.concat != nil && t.concat.dim == dim {
			inner = t.concat.pieces
		}
		for _, p := range inner {
			if n := len(pieces); n > 0 {
				if joined, ok := pieces[n-1].adjoin(dim, p); ok {
					pieces[n-1] = joined
					continue
				}
			}
			pieces = append(pieces, p)
		}
	}
	switch len(pieces) {
	case 0: // no elements, and the shape of the sum
		t := tensors[0]
		return Tensor{dtype: t.dtype, shape: shape, src: &source{mem: []byte{}}}, nil
	case 1:
		return pieces[0], nil
	}
	t := Tensor{dtype: tensors[0].dtype, shape: shape, concat: &concat{dim, pieces}}
	for i, p := range pieces {
		if bits, outer := int64(p.dtype.Bits()), outerSize(dim, shape); p.Size()%outer != 0 {
			return Tensor{}, fmt.Errorf("rows of piece %d, %v, have %d elements of %d bits, which do not fill whole bytes", i, p, int64(p.Len())/outer, bits)
		}
	}
	return t, nil
}

// concatShape returns the shape of tensors joined along dim.
func concatShape(dim int, tensors []Tensor) ([]int, error) {
	if len(tensors) == 0 {
		return nil, errors.New("there are no tensors")
	}
	first := tensors[0]
	if err := first.check(); err != nil {
		return nil, err
	}
	if dim < 0 || dim >= len(first.shape) {
		return nil, fmt.Errorf("%v has rank %d", first, len(first.shape))
	}
	shape := slices.Clone(first.shape)
	for i, t := range tensors[1:] {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i+1, err)
		}
		if t.dtype != first.dtype || len(t.shape) != len(shape) ||
			!slices.Equal(t.shape[:dim], shape[:dim]) || !slices.Equal(t.shape[dim+1:], shape[dim+1:]) {
			return nil, fmt.Errorf("tensor %d is %v, tensor 0 is %v: they differ in more than that dimension", i+1, t, first)
		}
		if t.shape[dim] > math.MaxInt-shape[dim] {
			return nil, errors.New("the dimension overflows")
		}
		shape[dim] += t.shape[dim]
	}
	if _, broken := checkShape(first.dtype, shape); broken != "" {
		return nil, errors.New(broken)
	}
	return shape, nil
}

// outerSize returns the number of rows that a tensor of a shape has outside of
// dimension dim.
func outerSize(dim int, shape []int) int64 {
	n, _ := countElements(shape[:dim])
	return int64(n)
}

// adjoin returns t and next, which have elements and fit along dim, as one tensor
// of their source, if next continues t there.
func (t Tensor) adjoin(dim int, next Tensor) (Tensor, bool) {
	if t.concat != nil || next.concat != nil || t.src != next.src || t.watch != next.watch || !slices.Equal(t.dtypes, next.dtypes) {
		return Tensor{}, false
	}
	distance, ok := scaled(next.off-t.off, 8, int64(t.sourceDType().Bits())) // between their first elements
	if !ok || distance <= 0 {
		return Tensor{}, false
	}
	strides, after := slices.Clone(t.layout()), next.layout()
	for i, size := range t.shape {
		switch {
		case i == dim:
			if size == 1 { // the stride is open
				strides[i] = distance
			}
			if distance != int64(size)*strides[i] || next.shape[i] > 1 && after[i] != strides[i] {
				return Tensor{}, false
			}
		case size > 1 && strides[i] != after[i]:
			return Tensor{}, false
		}
	}
	shape := slices.Clone(t.shape)
	shape[dim] += next.shape[dim]
	p, err := t.selecting(0, shape, strides)
	return p, err == nil
}

// slice returns what a slice selects of the joined tensor: the pieces sliced, and
// joined again.
func (c *concat) slice(selected []selection) (Tensor, error) {
	along := selected[c.dim]
	dim := c.dim
	for _, s := range selected[:c.dim] {
		if s.drop {
			dim--
		}
	}
	var parts []Tensor
	begin := 0 // of a piece, in the dimension
	for i, p := range c.pieces {
		end := begin + p.shape[c.dim]
		// The k-th index is in this piece from the first k to before the last.
		first := max(0, stepsWithin(begin-along.first, along.step))
		last := min(along.n, stepsWithin(end-along.first, along.step))
		s := slices.Clone(selected)
		s[c.dim] = selection{along.first + first*along.step - begin, max(0, last-first), along.step, along.drop}
		begin = end
		if s[c.dim].n == 0 && (along.drop || i < len(c.pieces)-1 || len(parts) > 0) {
			continue
		}
		part, err := p.sliced(s)
		if err != nil || along.drop {
			return part, err
		}
		parts = append(parts, part)
	}
	return concatenate(dim, parts)
}

// each returns the pieces, with f applied, joined again along dim.
func (c *concat) each(dim int, f func(Tensor) (Tensor, error)) (Tensor, error) {
	pieces := make([]Tensor, len(c.pieces))
	for i, p := range c.pieces {
		var err error
		if pieces[i], err = f(p); err != nil {
			return Tensor{}, err
		}
	}
	return concatenate(dim, pieces)
}

// stream returns the bytes of the pieces, row by row.
func (c *concat) stream(all *computations) (stream, error) {
	j := &joinedStream{starts: make([]int64, len(c.pieces)+1)}
	rows := outerSize(c.dim, c.pieces[0].shape)
	for i, p := range c.pieces {
		s, err := p.stream(all)
		if err != nil {
			j.release()
			return nil, err
		}
		j.streams = append(j.streams, s)
		j.row += p.Size() / rows
		j.starts[i+1] = j.row
	}
	j.bytes = j.row * rows
	return j, nil
}

// A joinedStream produces the bytes of several tensors joined along a dimension:
// row by row, one part of a row after another.
type joinedStream struct {
	streams
	starts []int64 // in a row, of the part of each piece, and the end of the last
	row    int64   // bytes of a row
	bytes  int64   // of all rows
}

// pieceAt returns the piece that has a byte of a row.
func (j *joinedStream) pieceAt(within int64) int {
	return sort.Search(len(j.streams), func(i int) bool { return j.starts[i+1] > within })
}

// readAt reads whole rows column by column, and what is before and after them part by
// part.
func (j *joinedStream) readAt(dst []byte, pos int64) error {
	for len(dst) > 0 {
		row, within, rows := pos/j.row, pos%j.row, int64(len(dst))/j.row
		n := rows * j.row
		if within == 0 && rows > 1 {
			for i := range j.streams {
				if err := j.readColumn(dst[:n], i, row, rows); err != nil {
					return err
				}
			}
		} else {
			i := j.pieceAt(within)
			begin, end := j.starts[i], j.starts[i+1]
			n = min(int64(len(dst)), end-within)
			if err := j.streams[i].readAt(dst[:n], row*(end-begin)+within-begin); err != nil {
				return err
			}
		}
		dst, pos = dst[n:], pos+n
	}
	return nil
}

// lend lends the parts of a single row one after another. It reads those that
// cannot be lent. Several rows, and many small parts, are better read as a whole.
func (j *joinedStream) lend(pos, n int64, write func([]byte) error) (lent bool, err error) {
	const small = mem.BufferSize / 4
	if j.row < j.bytes || j.row/int64(len(j.streams)) < small {
		return false, nil
	}
	for i := j.pieceAt(pos); n > 0; i++ {
		begin, end := j.starts[i], j.starts[i+1]
		m := min(n, end-pos)
		lent, err := j.streams[i].lend(pos-begin, m, write)
		if !lent && err == nil {
			var b *mem.Block
			b, err = mem.Filled(m, func(b []byte) error { return j.streams[i].readAt(b, pos-begin) })
			if err == nil {
				err = write(b.Bytes)
			}
			b.Free()
		}
		if err != nil {
			return true, err
		}
		pos, n = pos+m, n-m
	}
	return true, nil
}

// readColumn fills the part of piece i in whole rows. They are adjacent in the piece:
// where a read of one would cost more than a copy, it reads many rows in one call and
// deals them out.
func (j *joinedStream) readColumn(dst []byte, i int, row, rows int64) error {
	s, begin, width := j.streams[i], j.starts[i], j.starts[i+1]-j.starts[i]
	const cheap = 4 << 10 // bytes from which copying from memory costs less than the copy in between
	direct := width > mem.BufferSize/2
	if l, ok := s.(*storedStream); ok && l.lendable() && width >= cheap {
		direct = true
	}
	if direct {
		for r := range rows {
			if err := s.readAt(dst[r*j.row+begin:][:width], (row+r)*width); err != nil {
				return err
			}
		}
		return nil
	}
	most := mem.BufferSize / width
	b := mem.NewBlock(min(rows, most) * width)
	defer b.Free()
	for first := int64(0); first < rows; first += most {
		n := min(most, rows-first)
		column := b.Bytes[:n*width]
		if err := s.readAt(column, (row+first)*width); err != nil {
			return err
		}
		for r := range n {
			copy(dst[(first+r)*j.row+begin:][:width], column[r*width:])
		}
	}
	return nil
}
