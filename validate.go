package safetensors

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// This file has the rules of the format. A check of a part of a file returns an error. A check of
// values returns the rule that they break, "" if they break none; the caller adds the tensor and
// the place.

// A file consists of the header length as a little-endian uint64, the header, and the data
// buffer.
const (
	prefixSize      = 8           // size of the header length in bytes
	maxHeaderLength = 100_000_000 // limit of the reference implementation
	metadataKey     = "__metadata__"
	headerAlignment = 8 // written headers are padded to a multiple of this; those that are read need not be
)

// checkHeaderLength checks the header length in the first 8 bytes of a file, before anything is
// allocated for it. size is the size of the file in bytes, -1 if unknown.
func checkHeaderLength(prefix []byte, size int64) (length int64, err error) {
	if size >= 0 && size < prefixSize {
		return 0, &FormatError{Offset: 0, Reason: fmt.Sprintf("file of %s is shorter than the %d bytes of the header length", shapetext.Count(size, "byte"), prefixSize), truncated: true}
	}
	n := binary.LittleEndian.Uint64(prefix)
	reason, truncated := "", false
	switch {
	case isGzip(prefix):
		reason = "this is gzip data, not a safetensors file"
	case n > maxHeaderLength:
		reason = fmt.Sprintf("header length %d exceeds the limit of %d: perhaps this is not a safetensors file", n, maxHeaderLength)
		if kind := sniff(prefix); kind != "" {
			reason = "this is " + kind + ", not a safetensors file" + packagesFor(kind)
		}
	case size >= 0 && int64(n) > size-prefixSize:
		reason, truncated = fmt.Sprintf("header length %d exceeds the %d bytes that follow it", n, size-prefixSize), true
	default:
		return int64(n), nil
	}
	return 0, &FormatError{Offset: 0, Reason: reason, truncated: truncated}
}

// sniff recognizes other kinds of files by their first eight bytes, and a tar archive by its first
// 262. It returns "" for unknown ones. checkHeaderLength calls it only if the eight bytes, read as a
// header length, exceed the limit, so that no safetensors file, not even a damaged one, is taken
// for something else.
func sniff(prefix []byte) string {
	prefix = prefix[:min(len(prefix), tarMagic+len("ustar"))]
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
		{"PK\x03\x04", zipArchive},
		{"\x89HDF", "an HDF5 file"},
		{"\x93NUMPY", "a NumPy array file"},
		{"\x1f\x8b", "gzip data"},
		{"\x28\xb5\x2f\xfd", "Zstandard data"},
		{"\xfd7zXZ\x00", "xz data"},
		{"\x80\x02", pythonPickle},
		{"\x80\x03", pythonPickle},
		{"\x80\x04", pythonPickle},
		{"\x80\x05", pythonPickle},
	} {
		if strings.HasPrefix(text, known.magic) {
			return known.kind
		}
	}
	if len(prefix) > tarMagic && string(prefix[tarMagic:]) == "ustar" {
		return "a tar archive"
	}
	if len(prefix) >= prefixSize && strings.HasPrefix(text, "BZh") && string(prefix[4:prefixSize]) == "1AY&" {
		return "bzip2 data"
	}
	// Protobuf has no magic number, but an ONNX model starts with the fields of its version and
	// its producer.
	if len(prefix) > 2 && prefix[0] == 0x08 && prefix[1] < 0x20 && prefix[2] == 0x12 {
		return "an ONNX file"
	}
	if len(prefix) >= prefixSize && strings.Trim(string(prefix[:prefixSize]), textBytes) == "" {
		return plainText
	}
	return ""
}

// isGzip reports whether a file starts like gzip data without a name and a time, such as a .tar.gz
// that tar wrote. Read as a header length, these eight bytes are below the limit. So the byte after
// them decides: a header starts with a brace or with white space.
func isGzip(prefix []byte) bool {
	return len(prefix) > prefixSize && string(prefix[:prefixSize]) == "\x1f\x8b\x08\x00\x00\x00\x00\x00" && prefix[prefixSize] < '\t'
}

// tarMagic is the offset of the magic number of a tar archive.
const tarMagic = 257

// plainText is the kind of a file of text that is not one of the others.
const plainText = "text"

// textBytes are the bytes of ASCII text. Eight of them, read as a header length, exceed the limit.
const textBytes = "\t\n\r !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"

// nameReserved is the rule that a tensor named __metadata__ breaks.
const nameReserved = "this name is reserved for the metadata"

// The kinds of files that torch.save writes.
const (
	zipArchive   = "a zip archive"
	pythonPickle = "a Python pickle"
)

// packagesFor returns the end of an error about a file of another kind: the names of the packages
// that read such files, or "" if there are none.
func packagesFor(kind string) string {
	if kind == zipArchive || kind == pythonPickle {
		return "; " + variant.PackagesRead
	}
	return ""
}

// checkName checks the name of a tensor to be written.
func checkName(name string) (broken string) {
	switch {
	case name == metadataKey:
		return nameReserved
	case !utf8.ValidString(name):
		return "the name is not valid UTF-8"
	}
	return ""
}

// checkMetadata checks metadata to be written.
func checkMetadata(metadata map[string]string) (broken string) {
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return fmt.Sprintf("metadata key %s or its value is not valid UTF-8", quote(key))
		}
	}
	return ""
}

// countElements returns the number of elements of a shape. ok is false if a dimension is negative
// or the product overflows. The dimensions are multiplied from left to right in 64 bits, as the
// reference does: [0, 1<<40, 1<<40] is a shape, [1<<40, 1<<40, 0] is not.
func countElements(shape []int) (n uint64, ok bool) {
	n, over := uint64(1), uint64(0)
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		over |= hi | uint64(dim)>>63 // the sign bit, set in negative dimensions
		n = lo
	}
	return n, over == 0
}

// byteSize returns the size in bytes of a tensor with this dtype and shape. ok is false if there
// can be no such tensor.
func byteSize(d DType, shape []int) (size int64, ok bool) {
	n, counted := countElements(shape)
	size, ok = dtypes[d.known()].bytes(n)
	return size, counted && ok
}

// checkShape returns the size in bytes of a tensor with this dtype and shape, or the rule that
// they break.
func checkShape(d DType, shape []int) (size int64, broken string) {
	if size, ok := byteSize(d, shape); ok {
		return size, ""
	}
	n, ok := countElements(shape)
	if !ok {
		if slices.Min(shape) < 0 {
			return 0, fmt.Sprintf("shape %s has a negative dimension", shapetext.Of(shape))
		}
		return 0, fmt.Sprintf("the number of elements of shape %s overflows 64 bits", shapetext.Of(shape))
	}
	if !d.valid() {
		return 0, fmt.Sprintf("invalid dtype %d", uint8(d))
	}
	if hi, lo := bits.Mul64(n, uint64(d.Bits())); hi == 0 {
		return 0, fmt.Sprintf("%v %s has %d bits, which do not fill whole bytes", d, shapetext.Of(shape), lo)
	}
	return 0, fmt.Sprintf("the number of bits of %v %s overflows 64 bits", d, shapetext.Of(shape))
}

// checkOffsets checks that data offsets span exactly the bytes that a tensor with this dtype and
// shape has.
func checkOffsets(d DType, shape []int, begin, end int64) (broken string) {
	if size, ok := byteSize(d, shape); ok && begin <= end && end-begin == size {
		return ""
	}
	if begin > end {
		return fmt.Sprintf("data offsets [%d,%d] end before they start", begin, end)
	}
	size, broken := checkShape(d, shape)
	if broken == "" {
		broken = fmt.Sprintf("data offsets [%d,%d] hold %s, %v %s needs %d",
			begin, end, shapetext.Count(end-begin, "byte"), d, shapetext.Of(shape), size)
	}
	return broken
}
