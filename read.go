package safetensors

import (
	"errors"
	"fmt"
	"io"
)

// Read reads a whole file, to the end of r, the counterpart of [Write]. Memory grows with
// the bytes that arrive; views stay valid after Close. Errors of r are wrapped.
func Read(r io.Reader) (*File, error) {
	if r == nil {
		return nil, prefixed(errors.New("reading a file: the io.Reader is nil"))
	}
	f, err := readFile(&fileReader{checkedReader: checkedReader{r}})
	return f, prefixed(err)
}

// A fileReader knows the error of its reader, where readGrowing cannot tell it from the
// end: a decompressor says io.ErrUnexpectedEOF, too.
type fileReader struct {
	checkedReader
	err error
}

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

// readFile refuses what parseFile refuses of all that has arrived.
func readFile(r *fileReader) (*File, error) {
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
	t, err := parseHeader(text, -1)
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
