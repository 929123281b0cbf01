package safetensors

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// A Header is the table at the start of a file.
type Header struct {
	Metadata  map[string]string // nil if the file has none
	Tensors   []TensorInfo      // in file (offset) order; ties, zero-size tensors, in header order
	DataStart int64             // where the data buffer starts in the file: 8 + header length
}

// A TensorInfo is the entry of one tensor in a header.
type TensorInfo struct {
	Name        string
	DType       DType
	Shape       []int    // dimensions, outermost first; empty for a scalar
	DataOffsets [2]int64 // half-open, relative to the start of the data buffer
}

// Tensor returns the entry of a tensor by name, in linear time.
func (h *Header) Tensor(name string) (TensorInfo, bool) {
	i := slices.IndexFunc(h.Tensors, func(t TensorInfo) bool { return t.Name == name })
	if i < 0 {
		return TensorInfo{}, false
	}
	return h.Tensors[i], true
}

// ReadHeader reads and checks a header, exactly Header.DataStart bytes of r. It cannot check
// that the tensors fill the file: compare the end of the last. Any other broken rule is
// a *[FormatError]; if r ends early, it wraps [io.ErrUnexpectedEOF]. Errors of r are
// wrapped. Memory grows with the bytes that arrive.
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

// readGrowing reads length bytes of what r is into memory that never exceeds four times what
// has arrived, or firstRead. If r ends before, the error is io.EOF. On error it returns the
// bytes read so far.
func readGrowing(what string, r io.Reader, length int64) ([]byte, error) {
	b := alignedBytes(min(length, firstRead))
	for n := 0; int64(n) < length; {
		if n == len(b) {
			size := min(length, 4*int64(n))
			if err := mem.CheckSize(size); err != nil {
				return b, err
			}
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

// alignedBytes returns n bytes that the caller fills, at an address that suits all dtypes.
func alignedBytes(n int64) []byte {
	return mem.BytesOf(mem.Extend([]uint64(nil), int((n+7)/8)))[:n:n]
}

// firstRead is how many bytes are read first in search of a header. They cover
// the headers of most models in one file.
const firstRead = 64 << 10

// readTable reads the header of a file of size bytes with as few reads as its
// length allows, one if it ends within firstRead.
func readTable(r io.ReaderAt, size int64) (*table, error) {
	head := make([]byte, min(size, firstRead))
	if err := readFull(r, head, 0); err != nil {
		return nil, fmt.Errorf("reading the header: %w", err)
	}
	length, err := checkHeaderLength(head, size)
	if err != nil {
		return nil, err
	}
	text := mem.Allocate[byte](int(length)) // which the table keeps, without the rest of head
	mem.Prepare(text, 0, length)
	n := copy(text, head[prefixSize:])
	if err := readFull(r, text[n:], int64(len(head))); err != nil {
		return nil, fmt.Errorf("reading the header: %w", err)
	}
	return parseHeader(text, size-prefixSize-length)
}

// A table is a validated header in compact form. It does not change after it is
// made, so that everybody may read it concurrently.
type table struct {
	text     string    // the header, its strings decoded in place
	entries  []entry   // in file (offset) order
	dims     []int     // the shapes of all tensors, one after another
	metadata []member  // in header order; nil if the header has none
	names    nameIndex // finds entries by name
}

// An entry is a TensorInfo without pointers, so that a table of a million
// tensors is one object that the garbage collector need not look into.
type entry struct {
	begin, end int64 // data offsets: 0 ≤ begin ≤ end ≤ size of the data buffer
	name       jsonscan.Span
	shape      packedShape
}

// A packedShape is the rank, the number of the first dimension in table.dims, and
// the dtype. A header has room for half as many dimensions as bytes, so that 28
// bits hold either number.
type packedShape uint64

func packShape(rank, first int, d DType) packedShape {
	return packedShape(rank)<<36 | packedShape(first)<<8 | packedShape(d)
}

func (s packedShape) rank() int    { return int(s >> 36) }
func (s packedShape) first() int   { return int(s >> 8 & (1<<28 - 1)) }
func (s packedShape) dtype() DType { return DType(s) }

func (t *table) str(s jsonscan.Span) string { return t.text[s.Off:][:s.Len] }
func (t *table) name(i int) string          { return t.str(t.entries[i].name) }
func (t *table) metaKey(i int) string       { return t.str(t.metadata[i].key) }

func (t *table) shape(e *entry) []int {
	rank := e.shape.rank()
	return t.dims[e.shape.first():][:rank:rank]
}

// size returns the bytes before the data buffer.
func (t *table) size() int64 { return prefixSize + int64(len(t.text)) }

// dataSize returns the bytes that the tensors occupy.
func (t *table) dataSize() int64 {
	if len(t.entries) == 0 {
		return 0
	}
	return t.entries[len(t.entries)-1].end
}

// at returns the number of the tensor that has the byte at an offset of the data
// buffer, -1 if none has.
func (t *table) at(off int64) int {
	i := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].end > off })
	if off < 0 || i == len(t.entries) {
		return -1
	}
	return i
}

// metadataMap returns the metadata, nil if there is none.
func (t *table) metadataMap() map[string]string {
	if t.metadata == nil {
		return nil
	}
	return mapOf(t.text, t.metadata)
}

// A member is one of a JSON object of strings.
type member struct{ key, value jsonscan.Span }

// mapOf returns the members of an object in a text.
func mapOf(text string, members []member) map[string]string {
	str := func(s jsonscan.Span) string { return text[s.Off:][:s.Len] }
	all := make(map[string]string, len(members))
	for _, m := range members {
		all[str(m.key)] = str(m.value)
	}
	return all
}

// header returns the table in its public form, which shares only strings with it.
func (t *table) header() *Header {
	public := *t
	public.dims = slices.Clone(t.dims)
	t = &public
	h := &Header{
		Metadata:  t.metadataMap(),
		Tensors:   make([]TensorInfo, len(t.entries)),
		DataStart: t.size(),
	}
	for i := range t.entries {
		e := &t.entries[i]
		h.Tensors[i] = TensorInfo{
			Name:        t.str(e.name),
			DType:       e.shape.dtype(),
			Shape:       t.shape(e),
			DataOffsets: [2]int64{e.begin, e.end},
		}
	}
	return h
}

// sortByOffset brings the entries from header order into offset order, where a
// zero-size tensor comes before the tensor that starts at the same offset.
func (t *table) sortByOffset() {
	slices.SortFunc(t.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end),
			cmp.Compare(a.name.Off, b.name.Off)) // the last is header order
	})
}

// checkNames indexes the names and checks that tensor names and metadata keys are
// unique, however they are spelled.
func (t *table) checkNames() error {
	var duplicate int
	if t.names, duplicate = newNameIndex(len(t.entries), t.name); duplicate >= 0 {
		return t.fail(&t.entries[duplicate], "duplicate tensor name")
	}
	if _, duplicate = newNameIndex(len(t.metadata), t.metaKey); duplicate >= 0 {
		key := t.metadata[duplicate].key
		return &FormatError{Offset: prefixSize + int64(key.Off), Reason: "duplicate metadata key " + quote(t.str(key))}
	}
	return nil
}

// checkLayout checks that the tensors follow one another from the first byte of
// the data buffer on.
func (t *table) checkLayout() error {
	end := int64(0)
	for i := range t.entries {
		e := &t.entries[i]
		if e.begin != end {
			found := "an overlap"
			if e.begin > end {
				found = fmt.Sprintf("a hole of %d bytes", e.begin-end)
			}
			return t.fail(e, fmt.Sprintf("data offsets start at %d, but the tensors before it end at %d: %s", e.begin, end, found))
		}
		end = e.end
	}
	return nil
}

// fail returns an error about the name of an entry.
func (t *table) fail(e *entry, broken string) error {
	return &FormatError{Offset: prefixSize + int64(e.name.Off), Tensor: t.str(e.name), Reason: broken}
}
