package safetensors

import (
	"sort"

	"github.com/gosafetensors/safetensors/internal/mem"
)

// stream returns a stream that reads each row piece by piece.
func (c *concat) stream(all *computations, cached *cache) (stream, error) {
	j := &joinedStream{starts: make([]int64, len(c.pieces)+1)}
	rows := outerSize(c.dim, c.pieces[0].shape)
	for i, p := range c.pieces {
		s, err := p.stream(all, cached)
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

// A joinedStream produces the bytes of several tensors that are joined along a dimension, row by
// row. A row consists of a part of each piece.
type joinedStream struct {
	streams
	starts []int64 // where the part of each piece starts in a row, and where the last one ends
	row    int64   // size of a row in bytes
	bytes  int64   // size of all rows in bytes
}

// pieceAt returns the index of the piece that holds the byte at this offset of a row.
func (j *joinedStream) pieceAt(within int64) int {
	return sort.Search(len(j.streams), func(i int) bool { return j.starts[i+1] > within })
}

// readAt reads several whole rows piece by piece. It reads a single row, and the incomplete rows at
// the start and at the end of dst, part by part.
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

// lend lends nothing if the tensor has several rows, or if the parts are small, because such bytes
// are better read as a whole. Otherwise it lends the parts of the only row one after another, and
// reads the parts that cannot be lent.
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

// readColumn fills the parts of piece i in whole rows. In the piece these parts are adjacent. If
// one read per row would cost more than a copy, readColumn reads many rows at a time and
// distributes them.
func (j *joinedStream) readColumn(dst []byte, i int, row, rows int64) error {
	s, begin, width := j.streams[i], j.starts[i], j.starts[i+1]-j.starts[i]
	const cheap = 4 << 10 // width in bytes from which one copy per row costs less than copying twice
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
