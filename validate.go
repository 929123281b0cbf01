package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The frame of a file: the header length as a little-endian uint64, the header,
// the data buffer.
const (
	prefixSize      = 8           // bytes of the header length
	maxHeaderLength = 100_000_000 // the limit of the reference implementation
	metadataKey     = "__metadata__"
	headerAlignment = 8 // written headers are padded to a multiple of this; read ones need not be

	// maxDepth is how many JSON objects and arrays may be open at once, the
	// header's own included. The reference's JSON parser stops at 128.
	maxDepth = 127
)

// A FormatError says which rule of the format the input breaks, and where.
type FormatError struct {
	Offset int64  // in the file, -1 if unknown
	Tensor string // the tensor at fault, "" if none is
	Reason string // the rule, with the numbers found and expected
}

func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString("safetensors: ")
	if e.Tensor != "" {
		b.WriteString("tensor " + quote(e.Tensor) + ": ")
	}
	b.WriteString(e.Reason)
	if e.Offset >= 0 {
		fmt.Fprintf(&b, " (at byte %d)", e.Offset)
	}
	return b.String()
}

// quote quotes a name for an error; a name may be as long as a header.
func quote(name string) string {
	const limit = 200
	if len(name) > limit {
		return strconv.Quote(name[:limit]) + "..."
	}
	return strconv.Quote(name)
}

// checkFileSize checks that a file can hold the header length.
func checkFileSize(size int64) error {
	if size < prefixSize {
		return &FormatError{Offset: 0, Reason: fmt.Sprintf("file of %d bytes is shorter than the %d bytes of the header length", size, prefixSize)}
	}
	return nil
}

// checkHeaderLength checks the length that the prefix of a file claims, before
// anything is allocated for it. The size of the file is -1 if it is not known.
func checkHeaderLength(prefix []byte, size int64) (length int64, err error) {
	n := binary.LittleEndian.Uint64(prefix)
	reason := ""
	switch {
	case n > maxHeaderLength:
		reason = fmt.Sprintf("header length %d is above the limit of %d", n, maxHeaderLength)
		if kind := sniff(prefix); kind != "" {
			reason = "this is " + kind + ", not a safetensors file"
		}
	case size >= 0 && int64(n) > size-prefixSize:
		reason = fmt.Sprintf("header length %d is beyond the end of the file, which has %d bytes after it", n, size-prefixSize)
	default:
		return int64(n), nil
	}
	return 0, &FormatError{Offset: 0, Reason: reason}
}

// sniff names what is often found where a safetensors file was expected, by
// its first eight bytes; it returns "" if it knows nothing. Read as a header
// length these bytes are above the limit, so that no safetensors file, not even
// a damaged one, is taken for something else.
func sniff(prefix []byte) string {
	text := strings.TrimLeft(string(prefix), " \t\r\n")
	for _, known := range [...]struct{ magic, kind string }{
		{"version ", "a Git LFS pointer (git lfs pull fetches the content)"},
		{"<!DOC", "an HTML page"},
		{"<!doc", "an HTML page"},
		{"<html", "an HTML page"},
		{"<HTML", "an HTML page"},
		{"<?xml", "an XML document"},
		{"{", "JSON text without the header length before it"},
		{"GGUF", "a GGUF file"},
		{"PK\x03\x04", "a zip archive (as PyTorch's .pt and .bin files are)"},
		{"\x89HDF", "an HDF5 file"},
		{"\x93NUMPY", "a NumPy array file"},
		{"\x1f\x8b", "gzip data"},
		{"\x28\xb5\x2f\xfd", "Zstandard data"},
		{"\x80\x02", "a Python pickle"},
		{"\x80\x03", "a Python pickle"},
		{"\x80\x04", "a Python pickle"},
		{"\x80\x05", "a Python pickle"},
	} {
		if strings.HasPrefix(text, known.magic) {
			return known.kind
		}
	}
	return ""
}

// checkHeaderStart checks the rule of the format that the reference leaves out:
// a header begins with its brace, not with white space.
func checkHeaderStart(text []byte) error {
	switch {
	case len(text) == 0:
		return &FormatError{Offset: prefixSize, Reason: "the header is empty, it must be a JSON object"}
	case text[0] != '{':
		return &FormatError{Offset: prefixSize, Reason: fmt.Sprintf("the header does not begin with '{' but with %q", text[0])}
	}
	return nil
}

// validUTF8 returns the length of the longest prefix of text that is valid.
func validUTF8(text []byte) int {
	n := 0
	for n < len(text) {
		r, size := utf8.DecodeRune(text[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

// checkName returns the rule that is broken if a tensor that is written cannot
// have that name.
func checkName(name string) (broken string) {
	switch {
	case name == metadataKey:
		return "the name is reserved for the metadata"
	case !utf8.ValidString(name):
		return "the name is not valid UTF-8"
	}
	return ""
}

// checkMetadata returns the rule that is broken if metadata cannot be written.
func checkMetadata(metadata map[string]string) (broken string) {
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return fmt.Sprintf("metadata key %s or its value is not valid UTF-8", quote(key))
		}
	}
	return ""
}

// byteSize returns the bytes that a tensor of that dtype and shape occupies, if
// there can be one. The product of the dimensions is taken from left to right in
// 64 bits, as the reference takes it: [0, 1<<40, 1<<40] is a shape,
// [1<<40, 1<<40, 0] is not.
func byteSize(d DType, shape []int) (size int64, ok bool) {
	n, over := uint64(1), uint64(0)
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		over |= hi | uint64(dim)>>63 // which is set in negative dimensions
		n = lo
	}
	width := uint64(d.Bits()) // 0 if d is invalid
	hi, n := bits.Mul64(n, width)
	return int64(n / 8), width > 0 && over|hi|n%8 == 0
}

// checkShape returns the bytes that a tensor of that dtype and shape occupies,
// or the rule that is broken.
func checkShape(d DType, shape []int) (size int64, broken string) {
	if size, ok := byteSize(d, shape); ok {
		return size, ""
	}
	n := uint64(1)
	for _, dim := range shape {
		if dim < 0 {
			return 0, fmt.Sprintf("shape %s has a negative dimension", formatShape(shape))
		}
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 {
			return 0, fmt.Sprintf("the number of elements of shape %s overflows 64 bits", formatShape(shape))
		}
		n = lo
	}
	if !d.valid() {
		return 0, fmt.Sprintf("invalid dtype %d", uint8(d))
	}
	hi, lo := bits.Mul64(n, uint64(d.Bits()))
	if hi != 0 {
		return 0, fmt.Sprintf("the number of bits of %v %s overflows 64 bits", d, formatShape(shape))
	}
	return 0, fmt.Sprintf("%v %s has %d bits, which do not fill whole bytes", d, formatShape(shape), lo)
}

// checkOffsets returns the rule that is broken if the data offsets do not hold
// exactly the bytes of that dtype and shape, and "" if they do.
func checkOffsets(d DType, shape []int, begin, end int64) (broken string) {
	if size, ok := byteSize(d, shape); ok && begin <= end && end-begin == size {
		return ""
	}
	return brokenOffsets(d, shape, begin, end)
}

// brokenOffsets says which rule checkOffsets has found broken.
func brokenOffsets(d DType, shape []int, begin, end int64) string {
	if begin > end {
		return fmt.Sprintf("data offsets [%d,%d] end before they begin", begin, end)
	}
	size, broken := checkShape(d, shape)
	if broken == "" {
		broken = fmt.Sprintf("data offsets [%d,%d] hold %d bytes, %v %s needs %d",
			begin, end, end-begin, d, formatShape(shape), size)
	}
	return broken
}

// checkNext returns the rule that is broken if a tensor that begins at begin
// does not follow the one that ends at end without hole or overlap. Both are in
// offset order.
func checkNext(end, begin int64) (broken string) {
	switch {
	case begin > end:
		return fmt.Sprintf("data offsets begin at %d, but the tensors before it end at %d: a hole of %d bytes", begin, end, begin-end)
	case begin < end:
		return fmt.Sprintf("data offsets begin at %d, but the tensors before it end at %d: an overlap", begin, end)
	}
	return ""
}

// checkDataSize returns the rule that is broken if the tensors, which end at
// end, do not fill a data buffer of size bytes. The size is -1 if it is not known.
func checkDataSize(end, size int64) (broken string) {
	switch {
	case size < 0:
	case end > size:
		return fmt.Sprintf("the data buffer is truncated: the tensors need %d bytes, %d are there", end, size)
	case end < size:
		return fmt.Sprintf("the tensors end at %d, but the data buffer has %d bytes: %d belong to no tensor", end, size, size-end)
	}
	return ""
}

// formatShape writes a shape as in a file, cut where it is very long.
func formatShape(shape []int) string {
	const limit = 32
	b := []byte{'['}
	for i, dim := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		if i == limit {
			return string(b) + fmt.Sprintf("... %d dimensions]", len(shape))
		}
		b = strconv.AppendInt(b, int64(dim), 10)
	}
	return string(append(b, ']'))
}

// countElements returns the product of the dimensions, and whether it is one
// that a tensor can have: no dimension is negative and it fits an int64.
func countElements(shape []int) (n int64, ok bool) {
	product := uint64(1)
	for _, dim := range shape {
		hi, lo := bits.Mul64(product, uint64(dim))
		if dim < 0 || hi != 0 {
			return 0, false
		}
		product = lo
	}
	return int64(product), product <= math.MaxInt64
}
