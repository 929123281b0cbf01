package strided

import (
	"fmt"
	"io"

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
	return safetensors.NewTensorFunc(dtype, shape, func(dst []byte) error {
		part, err := safetensors.NewTensorAt(safetensors.U8, []int{int(end - begin)}, io.NewSectionReader(src.R, begin, end-begin))
		if err != nil {
			return err
		}
		data, err := safetensors.Append[byte](nil, part)
		if err != nil {
			return err
		}
		r, err := NewReader(Swap(shifted{data, begin}, src.Size, src.Swap), src.Size, l)
		if err != nil {
			return err
		}
		return readFull(r, dst, 0)
	})
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
