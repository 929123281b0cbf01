package strided

import (
	"fmt"
	"io"
	"slices"
)

// Swap returns r, which holds size bytes, with the bytes of each number of unit
// bytes reversed, as a big-endian file becomes a little-endian one.
func Swap(r io.ReaderAt, size int64, unit int) io.ReaderAt {
	if unit <= 1 {
		return r
	}
	return &swapped{r, size / int64(unit) * int64(unit), int64(unit)}
}

type swapped struct {
	r          io.ReaderAt
	size, unit int64
}

// ReadAt implements io.ReaderAt.
func (s *swapped) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("negative offset %d", off)
	}
	rest := p[:max(0, min(int64(len(p)), s.size-off))]
	for len(rest) > 0 && err == nil {
		var m int
		within := off % s.unit
		if whole := int64(len(rest)) / s.unit * s.unit; within == 0 && whole > 0 {
			m = int(whole)
			err = s.read(rest[:m], off)
		} else {
			var number [8]byte
			if err = s.read(number[:s.unit], off-within); err == nil {
				m = copy(rest, number[within:s.unit])
			}
		}
		if err == nil {
			rest, off, n = rest[m:], off+int64(m), n+m
		}
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// read reads whole numbers and reverses their bytes.
func (s *swapped) read(p []byte, off int64) error {
	if err := readFull(s.r, p, off); err != nil {
		return err
	}
	for unit := int(s.unit); len(p) > 0; p = p[unit:] {
		slices.Reverse(p[:unit])
	}
	return nil
}

// readFull reads exactly len(p) bytes.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}
