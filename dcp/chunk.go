package dcp

import (
	"io"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/torch"
)

// A lazy reader is opened by the first read: that of a chunk, the part of a tensor in a file
// of torch.save or in one of safetensors.
type lazy func() (io.ReaderAt, error)

// ReadAt implements io.ReaderAt.
func (open lazy) ReadAt(p []byte, off int64) (int, error) {
	r, err := open()
	if err != nil {
		return 0, err
	}
	return r.ReadAt(p, off)
}

// look returns the tensor in a file of torch.save, which holds no other. It is expected to
// have that dtype and shape: errors say so.
func look(r io.ReaderAt, size int64, dtype safetensors.DType, shape []int) (t safetensors.Tensor, err error) {
	e := keepEdges(r, size)
	defer func() { e.kept = nil }() // there may be hundreds of thousands of chunks
	held, err := torch.NewFile(e, size)
	if err != nil {
		return t, err
	}
	if t, err = held.Tensor("tensor"); err != nil || held.Len() != 1 {
		err = broken("", "%d tensors, one of %v %v is expected", held.Len(), dtype, shape)
	}
	return t, err
}

// edges reads a file of torch.save, which has all but the data in its first and last bytes.
// Looking into it takes some twenty reads, and each may be a request: edges keeps those
// bytes meanwhile.
type edges struct {
	io.ReaderAt
	kept map[int64][]byte // by offset
}

const edge = 4 << 10

// keepEdges reads the bytes. If that fails, ReadAt will tell.
func keepEdges(r io.ReaderAt, size int64) *edges {
	n := int64(edge)
	if size <= 2*edge {
		n = size
	}
	kept := map[int64][]byte{0: make([]byte, n), size - n: make([]byte, n)}
	for off, b := range kept {
		if n, _ := r.ReadAt(b, off); n < len(b) {
			delete(kept, off)
		}
	}
	return &edges{r, kept}
}

// ReadAt implements io.ReaderAt.
func (e *edges) ReadAt(p []byte, off int64) (int, error) {
	for begin, b := range e.kept {
		if at := off - begin; at >= 0 && at+int64(len(p)) <= int64(len(b)) {
			return copy(p, b[at:]), nil
		}
	}
	return e.ReaderAt.ReadAt(p, off)
}

// saved returns a chunk in the safetensors file that starts at an offset, whose header is read
// once for all chunks. It ends where the file does that it is in.
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
