package safetensors

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// A Header is what a file says of its tensors.
type Header struct {
	Metadata map[string]string // nil if the file has none
	Tensors  []TensorInfo      // in file (offset) order; ties, zero-size tensors, in header order
	Size     int64             // bytes before the data buffer: 8 + header length
}

// A TensorInfo is the entry of one tensor in a header.
type TensorInfo struct {
	Name        string
	DType       DType
	Shape       []int    // dimensions, outermost first; empty for a scalar
	DataOffsets [2]int64 // half-open, relative to the start of the data buffer
}

// ReadHeader reads the header of a file from r and checks it. It consumes
// exactly Header.Size bytes, so that the data buffer is what r gives next.
//
// How long the data buffer is cannot be known from r: that the tensors fill it
// is left to the caller, who finds their end in the last of Header.Tensors. All
// other rules of the format are checked, and breaking one is a *FormatError. If
// r ends within the header, the error is io.ErrUnexpectedEOF; errors of r are
// wrapped. The memory used grows with what arrives, not with what the prefix
// claims.
func ReadHeader(r io.Reader) (*Header, error) {
	prefix := make([]byte, prefixSize)
	if n, err := io.ReadFull(r, prefix); err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, checkFileSize(int64(n))
	} else if err != nil {
		return nil, fmt.Errorf("safetensors: reading the header length: %w", err)
	}
	length, err := checkHeaderLength(prefix, -1)
	if err != nil {
		return nil, err
	}
	text, err := readGrowing(r, length)
	if err != nil {
		return nil, fmt.Errorf("safetensors: reading a header of %d bytes, %d arrived: %w", length, len(text), err)
	}
	t, err := parseHeader(text, -1)
	if err != nil {
		return nil, err
	}
	return t.header(), nil
}

// readGrowing reads length bytes into memory that is never more than four times
// what has arrived, or firstRead. On an error it returns what has.
func readGrowing(r io.Reader, length int64) ([]byte, error) {
	b := make([]byte, min(length, firstRead))
	for n := 0; ; {
		m, err := io.ReadFull(r, b[n:])
		n += m
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || int64(n) == length {
			return b[:n], err
		}
		grown := make([]byte, min(length, 4*int64(n)))
		copy(grown, b)
		b = grown
	}
}

// firstRead is how much of a file is read at once in search of its header. It
// covers the headers of most models of one file.
const firstRead = 64 << 10

// readTable reads the header of a file of that size with as few reads as its
// length allows, one if it ends within firstRead.
func readTable(r io.ReaderAt, size int64) (*table, error) {
	if err := checkFileSize(size); err != nil {
		return nil, err
	}
	head := make([]byte, min(size, firstRead))
	if err := readFull(r, head, 0); err != nil {
		return nil, fmt.Errorf("safetensors: reading the header: %w", err)
	}
	length, err := checkHeaderLength(head, size)
	if err != nil {
		return nil, err
	}
	text := allocate[byte](int(length)) // which the table keeps, without the rest of head
	n := copy(text, head[prefixSize:])
	if err := readFull(r, text[n:], int64(len(head))); err != nil {
		return nil, fmt.Errorf("safetensors: reading the header: %w", err)
	}
	return parseHeader(text, size-prefixSize-length)
}

// A table is a validated header in compact form. It does not change once it is
// made, so that all may read it at the same time.
type table struct {
	text     string  // the header, its strings decoded in place
	entries  []entry // in file (offset) order
	dims     []int   // the shapes of all tensors, one after another
	metadata []span  // keys and values in turn, in header order
	hasMeta  bool    // the header has metadata, be it empty
	index    index   // finds entries by name
}

// A span is a part of the header's text.
type span struct{ off, len uint32 }

// An entry is a TensorInfo without pointers, so that a table of a million
// tensors is one object that the garbage collector need not look into.
type entry struct {
	begin, end int64 // data offsets: 0 ≤ begin ≤ end ≤ size of the data buffer
	name       span
	dims       uint32 // of the first dimension, in table.dims
	rankDType  uint32 // rank<<5 | dtype: a header of 100 MB has room for 50 million dimensions
}

func packRank(rank int, d DType) uint32 { return uint32(rank)<<5 | uint32(d) }

func (e *entry) dtype() DType { return DType(e.rankDType & 31) }
func (e *entry) rank() int    { return int(e.rankDType >> 5) }

func (t *table) str(s span) string    { return t.text[s.off:][:s.len] }
func (t *table) name(i int) string    { return t.str(t.entries[i].name) }
func (t *table) shape(e *entry) []int { return t.dims[e.dims:][:e.rank():e.rank()] }
func (t *table) metaKey(i int) string { return t.str(t.metadata[2*i]) }

// size returns the bytes before the data buffer.
func (t *table) size() int64 { return prefixSize + int64(len(t.text)) }

// dataSize returns the bytes that the tensors occupy.
func (t *table) dataSize() int64 {
	if len(t.entries) == 0 {
		return 0
	}
	return t.entries[len(t.entries)-1].end
}

// metadataMap returns the metadata, nil if there is none.
func (t *table) metadataMap() map[string]string {
	if !t.hasMeta {
		return nil
	}
	m := make(map[string]string, len(t.metadata)/2)
	for i := 0; i < len(t.metadata); i += 2 {
		m[t.str(t.metadata[i])] = t.str(t.metadata[i+1])
	}
	return m
}

// header returns the table in its public form.
func (t *table) header() *Header {
	h := &Header{
		Metadata: t.metadataMap(),
		Tensors:  make([]TensorInfo, len(t.entries)),
		Size:     t.size(),
	}
	for i := range t.entries {
		e := &t.entries[i]
		h.Tensors[i] = TensorInfo{
			Name:        t.str(e.name),
			DType:       e.dtype(),
			Shape:       t.shape(e),
			DataOffsets: [2]int64{e.begin, e.end},
		}
	}
	return h
}

// sortByOffset brings the entries from header order into offset order, where a
// zero-size tensor comes before the one that begins at the same place.
func (t *table) sortByOffset() {
	slices.SortFunc(t.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end),
			cmp.Compare(a.name.off, b.name.off)) // the last is header order
	})
}

// checkNames builds the index and checks that no name and no metadata key is
// there twice, however it is spelled.
func (t *table) checkNames() error {
	var twice int
	if t.index, twice = newIndex(len(t.entries), t.name); twice >= 0 {
		e := &t.entries[twice]
		return &FormatError{Offset: prefixSize + int64(e.name.off), Tensor: t.str(e.name), Reason: "the name stands in the header twice"}
	}
	if _, twice = newIndex(len(t.metadata)/2, t.metaKey); twice >= 0 {
		key := t.metadata[2*twice]
		return &FormatError{Offset: prefixSize + int64(key.off), Reason: "the metadata key " + quote(t.str(key)) + " stands in the header twice"}
	}
	return nil
}

// checkLayout checks that the tensors follow one another from the first byte of
// the data buffer on.
func (t *table) checkLayout() error {
	end := int64(0)
	for i := range t.entries {
		e := &t.entries[i]
		if broken := checkNext(end, e.begin); broken != "" {
			return &FormatError{Offset: prefixSize + int64(e.name.off), Tensor: t.str(e.name), Reason: broken}
		}
		end = e.end
	}
	return nil
}
