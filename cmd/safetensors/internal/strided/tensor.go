package strided

import (
	"fmt"
	"io"
	"sync"

	"github.com/gosafetensors/safetensors"
)

// A Source is where the bytes of arrays are.
type Source struct {
	R    io.ReaderAt
	Size int64
	Swap int // bytes of its numbers if they are big-endian, else 0

	// Packed is how many bytes it takes compressed: R is fast in the order of its
	// bytes only. It is 0 if R can be read in any order.
	Packed int64
}

// NewTensor returns the elements of l in src as a tensor. Nothing is read.
//
// Of a compressed source, an array whose elements are not adjacent is unpacked into
// memory when it is read, from its first element to its last. What packs so well that
// this would take more memory than the file lets expect is an error.
func NewTensor(dtype safetensors.DType, shape []int, src Source, l Layout) (safetensors.Tensor, error) {
	r, err := NewReader(Swap(src.R, src.Size, src.Swap), src.Size, l)
	if err != nil {
		return safetensors.Tensor{}, err
	}
	t, err := safetensors.NewTensorAt(dtype, shape, r)
	if g, spread := r.(*gather); err != nil || src.Packed == 0 || !spread || g.size == 0 {
		return t, err
	}
	begin, end := l.Extent()
	if err := checkUnpacked(end-begin, src.Packed); err != nil {
		return t, err
	}
	return safetensors.NewTensorAt(dtype, shape, &unpacked{src: src, layout: l, begin: begin, end: end, size: t.Size()})
}

// An unpacked reader has the bytes between the first element of an array and its last
// in memory, from the first read until as many bytes were read as the array has: an
// operation reads each once.
type unpacked struct {
	src        Source
	layout     Layout
	begin, end int64
	size       int64 // of the array

	mu   sync.Mutex
	r    io.ReaderAt // of the array; nil if it is not in memory
	left int64       // bytes to read until it is dropped
}

func (u *unpacked) ReadAt(p []byte, off int64) (int, error) {
	r, err := u.reader(int64(len(p)))
	if err != nil {
		return 0, err
	}
	return r.ReadAt(p, off)
}

// reader returns the array in memory, of which n bytes will be read.
func (u *unpacked) reader(n int64) (io.ReaderAt, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.r == nil {
		part, err := safetensors.NewTensorAt(safetensors.U8, []int{int(u.end - u.begin)}, io.NewSectionReader(u.src.R, u.begin, u.end-u.begin))
		if err != nil {
			return nil, err
		}
		data, err := safetensors.Append[byte](nil, part)
		if err != nil {
			return nil, err
		}
		if u.r, err = NewReader(Swap(shifted{data, u.begin}, u.src.Size, u.src.Swap), u.src.Size, u.layout); err != nil {
			return nil, err
		}
		u.left = u.size
	}
	r := u.r
	if u.left -= n; u.left <= 0 {
		u.r = nil
	}
	return r, nil
}

// checkUnpacked refuses to unpack size bytes into memory if they were packed much
// better than weights can be.
func checkUnpacked(size, packed int64) error {
	const (
		always    = 256 << 20
		expansion = 32
	)
	if size > always && size/expansion > packed {
		return fmt.Errorf("its elements are spread over %d bytes, which are packed into %d and would have to be unpacked into memory; store the archive without compression", size, packed)
	}
	return nil
}

// Extent returns the first byte of a layout that NewReader takes, and the byte after
// its last one.
func (l Layout) Extent() (begin, end int64) {
	end = l.Offset + int64(l.Width)
	for i, n := range l.Shape {
		end += int64(n-1) * l.Strides[i]
	}
	return l.Offset, end
}

// shifted is memory whose first byte has another offset.
type shifted struct {
	data  []byte
	begin int64
}

func (s shifted) ReadAt(p []byte, off int64) (int, error) {
	if off < s.begin || off > s.begin+int64(len(s.data)) {
		return 0, fmt.Errorf("offset %d is not in memory", off)
	}
	n := copy(p, s.data[off-s.begin:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
