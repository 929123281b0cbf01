package mem

import (
	"io"
	"slices"
)

// A Swapped reads numbers of Size bytes from R and reverses the bytes of each. R starts at the
// beginning of a number and holds whole numbers only.
type Swapped struct {
	R    io.ReaderAt
	Size int
}

func (s Swapped) ReadAt(p []byte, off int64) (int, error) {
	skip := int(off % int64(s.Size)) // bytes of the first number that come before p
	all := p
	if skip > 0 || len(p)%s.Size > 0 {
		all = make([]byte, (skip+len(p)+s.Size-1)/s.Size*s.Size)
	}
	n, err := s.R.ReadAt(all, off-int64(skip))
	all = all[:n-n%s.Size]
	for number := range slices.Chunk(all, s.Size) {
		slices.Reverse(number)
	}
	if n = copy(p, all[min(skip, len(all)):]); n == len(p) {
		err = nil
	}
	return n, err
}
