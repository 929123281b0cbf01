package safetensors

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// A Writer writes a file tensor by tensor, for data that is computed on the way.
// It is not safe for concurrent use. After the first error every call returns it.
type Writer struct {
	w       io.Writer
	tensors []TensorInfo // with their data offsets
	next    int          // the first tensor after the current one
	current *tensorWriter
	err     error
}

// NewWriter writes the header of a file with the tensors and metadata of h to w
// and returns a Writer for their data. The tensors are laid out in the order
// given; DataOffsets and Size are ignored, and h is not modified. NewWriter
// refuses what Write refuses, and duplicate names; then it has written nothing.
func NewWriter(w io.Writer, h *Header) (*Writer, error) {
	nw, err := newWriter(w, h)
	return nw, prefixed(err)
}

func newWriter(w io.Writer, h *Header) (*Writer, error) {
	tensors := slices.Clone(h.Tensors)
	header, err := encodeHeader(tensors, h.Metadata)
	if err != nil {
		return nil, err
	}
	if _, duplicate := newNameIndex(len(tensors), func(i int) string { return tensors[i].Name }); duplicate >= 0 {
		return nil, &FormatError{Offset: -1, Tensor: tensors[duplicate].Name, Reason: "duplicate tensor name"}
	}
	if _, err := writeFull(w, header); err != nil {
		return nil, fmt.Errorf("writing the header: %w", err)
	}
	return &Writer{w: w, tensors: tensors}, nil
}

// Tensor returns the writer for the data of a tensor, as a file holds it:
// row-major and little-endian. The tensor must be the next one in the header, and
// the data of the previous one must be complete; tensors without elements can be
// left out. If a call of Write exceeds the size of the tensor, that is an error
// and none of its bytes are written. The writer must not be used after the next
// call of Tensor or Close.
func (w *Writer) Tensor(name string) (io.Writer, error) {
	if err := w.complete(); err != nil {
		return nil, err
	}
	for i := w.next; i < len(w.tensors); i++ {
		t := &w.tensors[i]
		size := t.DataOffsets[1] - t.DataOffsets[0]
		if t.Name == name {
			w.next = i + 1
			w.current = &tensorWriter{w: w, name: name, size: size, left: size}
			return w.current, nil
		}
		if size > 0 {
			return nil, w.fail("tensor %s is not the next in the header, which is %s", quote(name), quote(t.Name))
		}
	}
	return nil, w.fail("tensor %s is not among those of the header that are left", quote(name))
}

// Close checks that the data of all tensors has been written; if not, the error
// says how many bytes are missing. It does not close the underlying writer. After
// Close, every call but Close is an error.
func (w *Writer) Close() error {
	if w.err == errWriterClosed {
		return nil
	}
	if err := w.complete(); err != nil {
		return err
	}
	for _, t := range w.tensors[w.next:] {
		if t.DataOffsets[1] > t.DataOffsets[0] {
			return w.fail("tensor %s and those after it are missing: %d bytes", quote(t.Name), w.tensors[len(w.tensors)-1].DataOffsets[1]-t.DataOffsets[0])
		}
	}
	w.err = errWriterClosed
	return nil
}

var errWriterClosed = prefixed(errors.New("the Writer is closed"))

// complete checks that the current tensor has all its bytes, and leaves it.
func (w *Writer) complete() error {
	if w.err != nil {
		return w.err
	}
	t := w.current
	w.current = nil
	if t != nil && t.left > 0 {
		return w.fail("tensor %s: %d of its %d bytes are missing", quote(t.name), t.left, t.size)
	}
	return nil
}

func (w *Writer) fail(format string, args ...any) error {
	w.err = prefixed(fmt.Errorf(format, args...))
	return w.err
}

// A tensorWriter takes the data of one tensor.
type tensorWriter struct {
	w          *Writer
	name       string
	size, left int64
}

func (t *tensorWriter) Write(b []byte) (int, error) {
	switch {
	case t.w.err != nil:
		return 0, t.w.err
	case t.w.current != t:
		return 0, t.w.fail("tensor %s: data written after the next tensor was started", quote(t.name))
	case int64(len(b)) > t.left:
		return 0, t.w.fail("tensor %s: %d bytes beyond its size of %d", quote(t.name), int64(len(b))-t.left, t.size)
	}
	n, err := writeFull(t.w.w, b)
	t.left -= int64(n)
	if err != nil {
		t.w.err = prefixed(tensorError(t.name, err))
	}
	return n, t.w.err
}
