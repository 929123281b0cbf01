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

// Read reads a whole file, up to the end of r. It is the counterpart of [Write]. Memory grows with
// the bytes that arrive. If the header claims more data than fits the memory of this machine, or of
// its container, Read returns an error once 64 KiB of the data have arrived. Views stay valid after
// Close. Errors of r are wrapped.
func Read(r io.Reader) (*File, error) {
	if r == nil {
		return nil, prefixed(errors.New("reading a file: the io.Reader is nil"))
	}
	return prefix.Added(readFile(r))
}

// readFile reads and checks a file. It returns the error that parseFile would return for the bytes
// that have arrived, an error of r, or an error that says that the file is larger than memory.
// There is one difference: it refuses a tar archive as text, because the magic number arrives later
// than the first eight bytes.
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
	case io.EOF: // the data buffer ends here
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

// NewFile opens a file that r reads and that has size bytes. It reads the header at once, in a
// read of 64 KiB and a second one for a longer header. Tensors are read on demand, with up to 16
// concurrent ReadAt calls per operation, and with ReadRanges if r is a [RangeReader]. For an
// uncompressed member of a zip or tar archive, use an [io.SectionReader]. Close does not close r.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	switch {
	case r == nil:
		return nil, prefixed(errors.New("the io.ReaderAt of a file is nil"))
	case size < 0: // for example, an unknown Content-Length
		return nil, prefixed(fmt.Errorf("a file of %d bytes", size))
	}
	return prefix.Added(openReader(r, size, func() error { return nil }))
}

// openReader opens a file that r reads. It calls release on an error; otherwise Close does.
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
