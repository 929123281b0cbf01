package safetensors

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A Writer writes a file tensor by tensor. It is not safe for concurrent use. After the
// first error every call returns it.
type Writer struct {
	w       io.Writer
	names   []string
	bounds  []int64 // offset at which the data of each tensor starts, then the end of the last one
	next    int     // index of the first tensor after the current one
	current *tensorWriter
	err     error

	file  *osfile.Atomic // the file of Create, otherwise nil
	ready func() error   // must succeed before file gets its name
	buf   *bufio.Writer  // buffer in front of file, and also the value of w; nil if there is no file
}

// NewWriter writes the header of a file to w and returns a Writer for the data, in the order of
// h.Tensors. It ignores DataOffsets and DataStart. Errors are those of the func [Write]; a
// duplicate name is also an error. If h is invalid, nothing is written.
func NewWriter(w io.Writer, h *Header) (*Writer, error) {
	header, bounds, err := h.encode(nil, 0)
	if err != nil {
		return nil, prefixed(err)
	}
	if _, err := writeFull(w, header); err != nil {
		return nil, prefixed(fmt.Errorf("writing the header: %w", err))
	}
	return &Writer{w: w, names: h.names(), bounds: bounds}, nil
}

// Create is like NewWriter, but writes to a temporary file, which Close renames to name, atomically
// and durably, with the exception described at WriteFile. After an error, the file called name is
// unchanged. A Writer that is never closed may leave the temporary file behind.
func Create(name string, h *Header) (*Writer, error) {
	return Saver{}.Create(name, h)
}

func (s Saver) create(name string, h *Header) (*Writer, error) {
	settings, err := s.settings("")
	if err != nil {
		return nil, err
	}
	header, bounds, err := h.encode(nil, s.Align)
	if err != nil {
		return nil, err
	}
	f, err := settings.Create(name)
	if err != nil {
		return nil, err
	}
	w := &Writer{names: h.names(), bounds: bounds, file: f, ready: settings.Ready}
	w.buf = bufio.NewWriterSize(io.NewOffsetWriter(f, 0), mem.BufferSize)
	w.w = w.buf
	if err = f.Reserve(int64(len(header)) + bounds[len(bounds)-1]); err == nil {
		_, err = w.buf.Write(header)
	}
	if err != nil {
		f.Abort()
		return nil, osfile.Writing(name, err)
	}
	return w, nil
}

// names returns the names of the tensors, in order.
func (h *Header) names() []string {
	names := make([]string, len(h.Tensors))
	for i := range names {
		names[i] = h.Tensors[i].Name
	}
	return names
}

// encode is like encodeHeader, and also refuses a nil Header, and two tensors of the same name.
func (h *Header) encode(b []byte, align int) (header []byte, bounds []int64, err error) {
	if h == nil {
		return nil, nil, errors.New("the Header is nil")
	}
	if header, bounds, err = encodeHeader(b, h.Tensors, h.Metadata, align); err != nil {
		return nil, nil, err
	}
	if duplicate := duplicateName(h.Tensors); duplicate >= 0 {
		return nil, nil, tensorError(h.Tensors[duplicate].Name, errors.New("duplicate tensor name"))
	}
	return header, bounds, nil
}

// AppendBinary appends the start of a file to b, as NewWriter writes it: the header length and the
// header. The size of the file is the length of this start plus the size of the data. Errors are
// those of NewWriter.
func (h *Header) AppendBinary(b []byte) ([]byte, error) {
	header, _, err := h.encode(b, 0)
	if err != nil {
		return b, prefixed(err)
	}
	return header, nil
}

// Tensor returns the writer for the data of a tensor, row-major and little-endian. Write the
// tensors completely and in the order of the header; those without elements may be skipped. A Write
// beyond the size of the tensor is an error, and writes nothing. The writer is valid until the next
// call of Tensor or Close.
func (w *Writer) Tensor(name string) (io.Writer, error) {
	if err := w.complete(); err != nil {
		return nil, err
	}
	for i := w.next; i < len(w.names); i++ {
		size := w.bounds[i+1] - w.bounds[i]
		if w.names[i] == name {
			w.next = i + 1
			w.current = &tensorWriter{w: w, name: name, size: size, unwritten: size}
			return w.current, nil
		}
		if size > 0 {
			return nil, w.fail(fmt.Errorf("tensor %s is not the next in the header, which is %s", quote(name), quote(w.names[i])))
		}
	}
	return nil, w.fail(fmt.Errorf("tensor %s is not among the remaining ones of the header", quote(name)))
}

// Close checks that all data has been written; if not, the error says how many bytes
// are missing. It does not close the writer of NewWriter.
func (w *Writer) Close() error {
	if w.err == errWriterClosed {
		return nil
	}
	if err := w.complete(); err != nil {
		return err
	}
	if missing := w.bounds[len(w.names)] - w.bounds[w.next]; missing > 0 {
		first := w.next
		for w.bounds[first+1] == w.bounds[first] {
			first++ // a tensor without elements is not missing
		}
		return w.fail(fmt.Errorf("tensor %s and those after it are missing: %s", quote(w.names[first]), shapetext.Count(missing, "byte")))
	}
	if w.file != nil {
		err := w.buf.Flush()
		if err == nil {
			err = w.file.Finish()
		}
		if err == nil {
			err = w.ready()
		}
		if err == nil {
			err = w.file.Commit()
		}
		if err != nil {
			return w.fail(err)
		}
	}
	w.err = errWriterClosed
	return nil
}

var errWriterClosed = prefixed(errors.New("the Writer is closed"))

// complete checks that all bytes of the current tensor were written, and ends that tensor.
func (w *Writer) complete() error {
	if w.err != nil {
		return w.err
	}
	t := w.current
	w.current = nil
	if t != nil && t.unwritten > 0 {
		return w.fail(fmt.Errorf("tensor %s: %d of its %d bytes are missing", quote(t.name), t.unwritten, t.size))
	}
	return nil
}

// fail ends the writing with an error, which all later calls return.
func (w *Writer) fail(err error) error {
	w.err = prefixed(err)
	if w.file != nil {
		w.file.Abort()
	}
	return w.err
}

// A tensorWriter writes the data of one tensor.
type tensorWriter struct {
	w               *Writer
	name            string
	size, unwritten int64
}

func (t *tensorWriter) Write(b []byte) (int, error) {
	switch {
	case t.w.err != nil:
		return 0, t.w.err
	case t.w.current != t:
		return 0, t.w.fail(fmt.Errorf("tensor %s: data written after the next tensor was started", quote(t.name)))
	case int64(len(b)) > t.unwritten:
		return 0, t.w.fail(fmt.Errorf("tensor %s: %s beyond its size of %d", quote(t.name), shapetext.Count(int64(len(b))-t.unwritten, "byte"), t.size))
	}
	n, err := writeFull(t.w.w, b)
	t.unwritten -= int64(n)
	if err != nil {
		err = t.w.fail(tensorError(t.name, err))
	}
	return n, err
}

// duplicateName returns the index of a tensor that has the name of another one, -1 if there is
// none. In most headers the names of each dtype are sorted: then it compares neighbors, and the
// names of one dtype with those of another.
func duplicateName(tensors []TensorInfo) int {
	const most = 4 // largest number of sorted runs that are compared with each other
	name := func(i int) string { return tensors[i].Name }
	var runs [most + 1]int // indices at which sorted runs start
	n := 1
	for i := 1; i < len(tensors); i++ {
		if name(i) > name(i-1) {
			continue
		}
		if n == most {
			_, duplicate := newNameIndex(len(tensors), name)
			return duplicate
		}
		runs[n] = i
		n++
	}
	runs[n] = len(tensors)
	for a := range n {
		for b := a + 1; b < n; b++ {
			for i, k := runs[a], runs[b]; i < runs[a+1] && k < runs[b+1]; {
				switch c := cmp.Compare(name(i), name(k)); {
				case c < 0:
					i++
				case c > 0:
					k++
				default:
					return k
				}
			}
		}
	}
	return -1
}

// Create does the same as the func [Create], with the settings of s.
func (s Saver) Create(name string, h *Header) (*Writer, error) {
	w, err := s.create(name, h)
	if err != nil {
		return nil, prefixed(err)
	}
	return w, nil
}
