package dcp

import (
	"cmp"
	"io"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/torch"
)

// A lazy is an io.ReaderAt that the first read opens. dcp uses it for chunks: parts of a tensor in
// a file of torch.save or of safetensors.
type lazy func() (io.ReaderAt, error)

// ReadAt implements io.ReaderAt.
func (open lazy) ReadAt(p []byte, off int64) (int, error) {
	r, err := open()
	if err != nil {
		return 0, err
	}
	return r.ReadAt(p, off)
}

// readSaved returns the tensor in a file of torch.save that contains no other tensor. dtype and
// shape are only for the error: they are those of the expected tensor.
func readSaved(r io.ReaderAt, size int64, dtype safetensors.DType, shape []int) (t safetensors.Tensor, err error) {
	e, err := readEdges(r, size)
	if err != nil {
		return t, err
	}
	defer func() { e.cached = nil }() // releases the bytes, because there may be hundreds of thousands of chunks
	var refused error
	saved, err := torch.Opener{Skip: func(_ string, why error) { refused = why }}.NewFile(e, size)
	if err = cmp.Or(err, refused); err != nil {
		return t, err
	}
	if t, err = saved.Tensor("tensor"); err != nil || saved.Len() != 1 {
		err = broken("", "%d tensors, one of %v %s is expected", saved.Len(), dtype, shapetext.Of(shape))
	}
	return t, err
}

// An edges reads a file of torch.save, whose metadata lies in its first and last bytes. Opening
// such a file takes some twenty reads, and each may be a request. So an edges caches these bytes
// until the file is open.
type edges struct {
	io.ReaderAt
	cached map[int64][]byte // bytes by their offset in the file; nil once the file is open
}

// edge is the number of bytes that are read at each end of the file.
const edge = 4 << 10

// readEdges returns an edges that has read the first and the last bytes of r.
func readEdges(r io.ReaderAt, size int64) (*edges, error) {
	n := int64(edge)
	if size <= 2*edge {
		n = size
	}
	cached := map[int64][]byte{0: make([]byte, n), size - n: make([]byte, n)}
	for off, b := range cached {
		if n, err := r.ReadAt(b, off); n < len(b) {
			return nil, cmp.Or(err, io.ErrUnexpectedEOF)
		}
	}
	return &edges{r, cached}, nil
}

// ReadAt implements io.ReaderAt.
func (e *edges) ReadAt(p []byte, off int64) (int, error) {
	for begin, b := range e.cached {
		if at := off - begin; at >= 0 && at+int64(len(p)) <= int64(len(b)) {
			return copy(p, b[at:]), nil
		}
	}
	return e.ReaderAt.ReadAt(p, off)
}

// saved returns a func that opens a chunk in the safetensors file that starts at an offset of f,
// and extends to the end of f. All chunks at that offset share one read of its header.
func (f *file) saved(name string, offset int64) func() (safetensors.Tensor, error) {
	open := f.models[offset]
	if open == nil {
		open = sync.OnceValues(func() (*safetensors.File, error) {
			size := f.info.Size() - offset
			return safetensors.NewFile(io.NewSectionReader(f, offset, size), size)
		})
		f.models[offset] = open
	}
	return func() (t safetensors.Tensor, err error) {
		m, err := open()
		if err != nil {
			return t, err
		}
		return m.Tensor(name)
	}
}
