package safetensors

import (
	"errors"
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// Parse opens a whole file in memory. It keeps data, which must not be written to while
// the File or a view of it is in use; the header is copied.
func Parse(data []byte) (*File, error) { return prefix.Added(parseFile(data)) }

func parseFile(data []byte) (*File, error) {
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
	return prefix.Added(readFile(r))
}

// readFile refuses what parseFile refuses of all that has arrived.
func readFile(r io.Reader) (*File, error) {
	t, err := streamedTable(r)
	if err != nil {
		return nil, err
	}
	data, err := readGrowing("a file", r, t.dataSize())
	if err == nil {
		_, err = readGrowing("a file", r, 1)
	}
	switch err {
	case io.EOF: // as it should be after the data
		err = t.checkDataSize(int64(len(data)))
	case nil:
		reason := fmt.Sprintf("the tensors end at %d, but the data buffer goes on", t.dataSize())
		err = &FormatError{Offset: t.size() + t.dataSize(), Reason: reason}
	}
	if err != nil {
		return nil, err
	}
	return newFile(t, &source{mem: data}), nil
}

// streamedTable reads the header, exactly.
func streamedTable(r io.Reader) (*table, error) {
	var length int64
	var text []byte
	head, err := readGrowing("a file", r, prefixSize)
	if err == nil {
		length, err = checkHeaderLength(head, -1)
	}
	if err == nil {
		text, err = readGrowing("a file", r, length)
	}
	if err == io.EOF {
		_, err = checkHeaderLength(head, int64(len(head)+len(text)))
	}
	if err != nil {
		return nil, err
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
	return prefix.Added(openReader(r, size, func() error { return nil }))
}

// openReader opens a file that r reads. An error, or else Close, calls release.
func openReader(r io.ReaderAt, size int64, release func() error) (*File, error) {
	t, err := readTable(r, size)
	if err != nil {
		release()
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
