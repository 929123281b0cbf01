package safetensors

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A Header is the table at the start of a file.
type Header struct {
	Metadata  map[string]string // nil if the file has none
	Tensors   []TensorInfo      // in the order of their data offsets; zero-size tensors with equal offsets are in header order
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

// A table is a validated header in compact form. It does not change after it is made, so that it
// may be read concurrently.
type table struct {
	text     string    // text of the header, with its strings decoded in place
	entries  []entry   // in the order of their data offsets
	dims     []int     // shapes of all tensors, one after another
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

// A packedShape holds the rank, the index of the first dimension in table.dims, and the dtype. A
// header has at most half as many dimensions as bytes, so that 28 bits hold either number.
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

// size returns the number of bytes before the data buffer.
func (t *table) size() int64 { return prefixSize + int64(len(t.text)) }

// dataSize returns the number of bytes that the tensors occupy.
func (t *table) dataSize() int64 {
	if len(t.entries) == 0 {
		return 0
	}
	return t.entries[len(t.entries)-1].end
}

// at returns the index of the tensor that contains this offset of the data buffer, or -1.
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

// A member is a key and its value in a JSON object of strings.
type member struct{ key, value jsonscan.Span }

// mapOf returns the members of an object as a map. Their spans are parts of text.
func mapOf(text string, members []member) map[string]string {
	str := func(s jsonscan.Span) string { return text[s.Off:][:s.Len] }
	all := make(map[string]string, len(members))
	for _, m := range members {
		all[str(m.key)] = str(m.value)
	}
	return all
}

// header returns the table as a Header, which shares only strings with it.
func (t *table) header() *Header {
	n := 0
	for i := range t.entries {
		n += t.entries[i].shape.rank()
	}
	dims := make([]int, 0, n) // copied, because tensors with equal shapes share their dimensions in the table
	h := &Header{
		Metadata:  t.metadataMap(),
		Tensors:   make([]TensorInfo, len(t.entries)),
		DataStart: t.size(),
	}
	for i := range t.entries {
		e := &t.entries[i]
		first := len(dims)
		dims = append(dims, t.shape(e)...)
		h.Tensors[i] = TensorInfo{
			Name:        t.str(e.name),
			DType:       e.shape.dtype(),
			Shape:       dims[first:len(dims):len(dims)],
			DataOffsets: [2]int64{e.begin, e.end},
		}
	}
	return h
}

// sortByOffset sorts the entries, which are in header order, by offset. A zero-size tensor comes
// before the tensor that starts at the same offset.
func (t *table) sortByOffset() {
	slices.SortFunc(t.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end),
			cmp.Compare(a.name.Off, b.name.Off)) // the offset of the name gives header order
	})
}

// checkNames makes the index of names, and checks that tensor names and metadata keys are unique
// after decoding.
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

// checkLayout checks that the tensors fill the data buffer from its first byte on, without holes
// and overlaps.
func (t *table) checkLayout() error {
	end := int64(0)
	for i := range t.entries {
		e := &t.entries[i]
		if e.begin != end {
			found := "an overlap"
			if e.begin > end {
				found = "a hole of " + shapetext.Count(e.begin-end, "byte")
				if i == 0 && t.headerEndsAt(e.begin) {
					found += "; offsets count from the end of the header"
				}
			}
			return t.fail(e, fmt.Sprintf("data offsets start at %d, but the tensors before it end at %d: %s", e.begin, end, found))
		}
		end = e.end
	}
	return nil
}

// headerEndsAt reports whether an offset may be the end of the header as a faulty writer counted
// it: with or without the header length before the text, and with or without the spaces after it.
func (t *table) headerEndsAt(off int64) bool {
	text := int64(len(strings.TrimRight(t.text, " ")))
	return text <= off && off <= t.size()
}

// fail returns an error about an entry, with the offset of its name.
func (t *table) fail(e *entry, broken string) error {
	return &FormatError{Offset: prefixSize + int64(e.name.Off), Tensor: t.str(e.name), Reason: broken}
}

// checkDataSize checks that the tensors of a table fill a data buffer with this size in bytes, -1
// if unknown.
func (t *table) checkDataSize(size int64) error {
	end, reason := t.dataSize(), ""
	switch {
	case size < 0 || end == size:
		return nil
	case end > size:
		reason = fmt.Sprintf("the data buffer is truncated: the tensors need %s, the file has %d", shapetext.Count(end, "byte"), size)
	default:
		reason = fmt.Sprintf("the tensors end at %d, but the data buffer has %s: %d belong to no tensor", end, shapetext.Count(size, "byte"), size-end)
	}
	return &FormatError{Offset: t.size() + min(end, size), Reason: reason, truncated: end > size}
}
