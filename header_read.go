package safetensors

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/gosafetensors/safetensors/internal/mem"
)

// ReadHeader reads and checks a header. It reads exactly Header.DataStart bytes of r, and so cannot
// check that the tensors fill the file: for that, compare the end of the last tensor with the size
// of the file. Any other broken rule is a *[FormatError], which wraps [io.ErrUnexpectedEOF] if r
// ends early. Errors of r are wrapped. Memory use grows with the bytes that arrive, not with the
// length that the file claims.
func ReadHeader(r io.Reader) (*Header, error) {
	if r == nil {
		return nil, prefixed(errors.New("reading a header: the io.Reader is nil"))
	}
	t, err := streamedTable(r)
	if err != nil {
		return nil, prefixed(err)
	}
	return t.header(), nil
}

// streamedTable reads the header and nothing after it.
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

// firstRead is the number of bytes in the first read of a file. They hold the whole header of
// most files.
const firstRead = 64 << 10

// firstReads holds the buffers of first reads. A table copies its header out of them.
var firstReads = sync.Pool{New: func() any { return new([firstRead]byte) }}

// readTable reads the header of a file with this size in bytes. It takes one read if the header
// ends within firstRead, otherwise two.
func readTable(r io.ReaderAt, size int64) (*table, error) {
	buffer := firstReads.Get().(*[firstRead]byte)
	defer firstReads.Put(buffer)
	head := buffer[:min(size, firstRead)]
	if err := readFull(r, head, 0); err != nil {
		return nil, fmt.Errorf("reading the header: %w", err)
	}
	length, err := checkHeaderLength(head, size)
	if err != nil {
		return nil, err
	}
	text := mem.Allocate[byte](int(length)) // kept by the table, unlike head
	mem.Prepare(text, 0, length)
	n := copy(text, head[prefixSize:])
	if err := readFull(r, text[n:], int64(len(head))); err != nil {
		return nil, fmt.Errorf("reading the header: %w", err)
	}
	return parseHeader(text, size-prefixSize-length)
}

// readGrowing reads length bytes from r into memory that grows as the bytes arrive: it never
// exceeds firstRead, or four times the number of bytes that have arrived if that is more. The
// argument what names the input in errors. If r ends early, the error is io.EOF. On error it
// returns the bytes read so far.
func readGrowing(what string, r io.Reader, length int64) ([]byte, error) {
	b := alignedBytes(min(length, firstRead))
	for n := 0; int64(n) < length; {
		if n == len(b) {
			if err := mem.CheckSize(length); err != nil { // now, and not when the bytes have filled the memory
				return b, err
			}
			size := min(length, 4*int64(n))
			b = append(alignedBytes(size)[:0], b...)[:size]
		}
		m, err := r.Read(b[n:])
		if m < 0 || m > len(b)-n {
			m, err = 0, fmt.Errorf("%T read %d of %d bytes", r, m, len(b)-n)
		}
		switch n += m; {
		case err == nil || int64(n) == length:
		case err == io.EOF:
			return b[:n], err
		default:
			return b[:n], fmt.Errorf("reading %s: %w", what, err)
		}
	}
	return b, nil
}

// alignedBytes returns n bytes with arbitrary content at an address that is aligned for all
// dtypes.
func alignedBytes(n int64) []byte {
	return mem.BytesOf(mem.Extend([]uint64(nil), int((n+7)/8)))[:n:n]
}

// readFull reads exactly len(b) bytes at off. If the data ends early, the error is
// io.ErrUnexpectedEOF.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	if len(b) == 0 {
		return nil
	}
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case n < 0 || n > len(b):
		return fmt.Errorf("%T read %d of %d bytes", r, n, len(b))
	case err == io.EOF || err == nil:
		return io.ErrUnexpectedEOF
	}
	return err
}
