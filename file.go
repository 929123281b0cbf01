package safetensors

import (
	"errors"
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors/internal/mem"
)

// Parse opens a whole file in memory. It keeps data, which must not be written to while
// the File or a view of it is in use; the header is copied.
func Parse(data []byte) (*File, error) {
	f, err := parseFile(data)
	return f, prefixed(err)
}

func parseFile(data []byte) (*File, error) {
	if err := checkFileSize(int64(len(data))); err != nil {
		return nil, err
	}
	length, err := checkHeaderLength(data, int64(len(data)))
	if err != nil {
		return nil, err
	}
	text, buffer := mem.Allocate[byte](int(length)), data[prefixSize+length:]
	copy(text, data[prefixSize:])
	t, err := parseHeader(text, int64(len(buffer)))
	if err != nil {
		return nil, err
	}
	return newFile(t, &source{mem: buffer[:len(buffer):len(buffer)]}), nil
}

// Read reads a whole file, to the end of r, the counterpart of [Write]. Memory grows with
// the bytes that arrive; views stay valid after Close. Errors of r are wrapped.
func Read(r io.Reader) (*File, error) {
	if r == nil {
		return nil, prefixed(errors.New("reading a file: the io.Reader is nil"))
	}
	f, err := readFile(newFileReader(r))
	return f, prefixed(err)
}

// readFile refuses what parseFile refuses of all that has arrived.
func readFile(r *fileReader) (*File, error) {
	t, err := r.table()
	if err != nil {
		return nil, err
	}
	data, err := readGrowing(r, t.dataSize())
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, r.or(t.checkDataSize(int64(len(data))))
	case err != nil:
		return nil, r.or(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != io.EOF {
		reason := fmt.Sprintf("the tensors end at %d, but the data buffer goes on", t.dataSize())
		return nil, r.or(&FormatError{Offset: t.size() + t.dataSize(), Reason: reason})
	}
	return newFile(t, &source{mem: data}), nil
}

// A fileReader knows the error of its reader, where readGrowing cannot tell it from the
// end: a decompressor says io.ErrUnexpectedEOF, too.
type fileReader struct {
	checkedReader
	err error
}

func newFileReader(r io.Reader) *fileReader { return &fileReader{checkedReader: checkedReader{r}} }

func (r *fileReader) Read(b []byte) (int, error) {
	n, err := r.checkedReader.Read(b)
	if err != io.EOF {
		r.err = err
	}
	return n, err
}

// or returns the error of the reader, or else the one given.
func (r *fileReader) or(broken error) error {
	if r.err != nil {
		return fmt.Errorf("reading a file: %w", r.err)
	}
	return broken
}

// table reads the header, exactly.
func (r *fileReader) table() (*table, error) {
	prefix, err := readGrowing(r, prefixSize)
	if err != nil {
		return nil, r.or(checkFileSize(int64(len(prefix))))
	}
	length, err := checkHeaderLength(prefix, -1)
	if err != nil {
		return nil, err
	}
	text, err := readGrowing(r, length)
	if err != nil {
		_, err = checkHeaderLength(prefix, prefixSize+int64(len(text)))
		return nil, r.or(err)
	}
	return parseHeader(text, -1)
}

// NewFile opens a file of size bytes that r reads: the header at once, 64 KiB first,
// tensors on demand, with up to 16 concurrent ReadAt calls per operation, or through a
// [RangeReader]. A stored zip or tar member is an [io.SectionReader]. Close does not
// close r.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	switch {
	case r == nil:
		return nil, prefixed(errors.New("the io.ReaderAt of a file is nil"))
	case size < 0: // perhaps a Content-Length
		return nil, prefixed(fmt.Errorf("a file of %d bytes", size))
	}
	f, err := openReader(r, size, nil)
	return f, prefixed(err)
}

// openReader opens a file that r reads. An error, or else Close, calls release, if that is not nil.
func openReader(r io.ReaderAt, size int64, release func() error) (*File, error) {
	t, err := readTable(r, size)
	if err != nil {
		if release != nil {
			release()
		}
		return nil, err
	}
	src := newReaderSource(r, t.size())
	src.release = release
	return newFile(t, src), nil
}

// FileOf returns tensors and metadata as a File, laid out as Write would write it. Its
// tensors are those given, with their views. Close calls close, if that is not nil,
// once, and waits for nothing. Errors are those of Write.
func FileOf(tensors map[string]Tensor, metadata map[string]string, close func() error) (*File, error) {
	var o outFile
	if err := o.layOut(tensors, metadata); err != nil {
		return nil, prefixed(err)
	}
	t, err := parseHeader(o.header[prefixSize:], -1)
	if err != nil {
		return nil, prefixed(err)
	}
	f := newFile(t, &source{release: close})
	for _, info := range o.infos { // the entries have this order
		f.parts[0].tensors = append(f.parts[0].tensors, tensors[info.Name])
	}
	return f, nil
}
