// Package bintensors reads and writes .bt files, the format of the package bintensors
// for Python and Rust.
//
// Such a file is a safetensors file with another kind of header: the length of the header as a
// little-endian uint64, the header in bincode, padded with spaces, then the data. The format has
// neither a magic number nor a version, and there are two kinds of headers:
//
//	0.0.x:      metadata, all tensors, then each name with the number of its tensor
//	0.1 to 0.2: metadata, then each tensor after its name
//
// Open distinguishes them by trying both: only the right kind uses exactly the bytes of the header
// and passes all checks, which are the checks of safetensors. Write writes the newer kind.
package bintensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

const (
	prefixSize = 8
	maxHeader  = 100_000_000
	maxRank    = 64 // as in NumPy and PyTorch; a dimension takes one byte in the file, and eight in memory
)

// dtypes are the dtypes of bintensors, indexed by their numbers in a file.
var dtypes = []safetensors.DType{
	safetensors.BOOL, safetensors.U8, safetensors.I8, safetensors.F8_E5M2, safetensors.F8_E4M3,
	safetensors.I16, safetensors.U16, safetensors.F16, safetensors.BF16,
	safetensors.I32, safetensors.U32, safetensors.F32,
	safetensors.F64, safetensors.I64, safetensors.U64,
}

// number returns the number of a dtype in a file, or -1 if bintensors lacks the dtype.
func number(d safetensors.DType) int { return slices.Index(dtypes, d) }

// Sniff reports whether a file that starts with head, which has at least 9 bytes, can be a .bt
// file. The header of such a file starts with 0 or 1, for absent or present metadata. The header
// of a safetensors file starts with { or white space. Gzip data without a name and a time looks like
// a .bt file with a header of 559,903 bytes, and is not taken for one.
func Sniff(head []byte) bool {
	if len(head) <= prefixSize || string(head[:prefixSize]) == "\x1f\x8b\x08\x00\x00\x00\x00\x00" {
		return false
	}
	n := binary.LittleEndian.Uint64(head)
	return 0 < n && n <= maxHeader && head[prefixSize] <= 1
}

// Open returns the tensors and the metadata of the file in r, which has size bytes and must stay
// readable as long as the tensors are used. It reads only the header; a tensor reads its data on
// demand.
func Open(r io.ReaderAt, size int64) (tensors map[string]safetensors.Tensor, metadata map[string]string, err error) {
	defer named(&err)
	var n uint64
	if size < prefixSize {
		return nil, nil, fmt.Errorf("%s: shorter than a header: %w", shapetext.Count(size, "byte"), io.ErrUnexpectedEOF)
	}
	file := io.NewSectionReader(r, 0, size)
	if err := binary.Read(file, binary.LittleEndian, &n); err != nil {
		return nil, nil, fmt.Errorf("reading the header length: %w", err)
	}
	switch {
	case n > maxHeader:
		return nil, nil, fmt.Errorf("header length %d exceeds the limit of %d", n, maxHeader)
	case int64(n) > size-prefixSize:
		return nil, nil, fmt.Errorf("header length %d exceeds the %d bytes that follow it: %w", n, size-prefixSize, io.ErrUnexpectedEOF)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(file, text); err != nil {
		return nil, nil, fmt.Errorf("reading the header: %w", err)
	}
	start := prefixSize + int64(n)
	h, err := parse(text, size-start)
	if err != nil {
		return nil, nil, err
	}
	tensors = make(map[string]safetensors.Tensor, len(h.Tensors))
	for _, info := range h.Tensors {
		data := osfile.NamedReader{ReaderAt: io.NewSectionReader(r, start+info.DataOffsets[0], info.DataOffsets[1]-info.DataOffsets[0]), File: osfile.NameOf(r)}
		if tensors[info.Name], err = safetensors.NewTensorAt(info.DType, info.Shape, data); err != nil {
			return nil, nil, fmt.Errorf("tensor %.200q: %w", info.Name, err)
		}
	}
	return tensors, h.Metadata, nil
}

// named adds the name of the format to *err.
func named(err *error) {
	if *err != nil {
		*err = fmt.Errorf("bintensors file: %w", *err)
	}
}

// parse parses the header of a file whose data has this many bytes. It tries both kinds of headers,
// and returns the header of the only kind that passes all checks.
func parse(text []byte, data int64) (*safetensors.Header, error) {
	newer, newerErr := parseHeader(text, data, (*decoder).newer)
	older, olderErr := parseHeader(text, data, (*decoder).older)
	switch {
	case newerErr != nil && olderErr != nil:
		return nil, fmt.Errorf("as of version 0.1 and later: %w; as of version 0.0: %w", newerErr, olderErr)
	case newerErr != nil:
		return older, nil
	case olderErr != nil:
		return newer, nil
	}
	return nil, fmt.Errorf("the header can be read in two ways, with %d tensors and with %d", len(newer.Tensors), len(older.Tensors))
}

// Write writes the same bytes as version 0.2 of bintensors. Tensors are sorted by dtype
// in descending order, then by name, and metadata by key. If metadata is nil, the file has none.
//
// If bintensors lacks the dtype of a tensor, or the checks of Open would fail, Write returns an
// error before it writes anything.
func Write(w io.Writer, tensors map[string]safetensors.Tensor, metadata map[string]string) (err error) {
	defer named(&err)
	h, err := headerOf(tensors, metadata)
	if err != nil {
		return err
	}
	head := appendHeader(make([]byte, prefixSize), h)
	for len(head)%8 != 0 {
		head = append(head, ' ')
	}
	n := len(head) - prefixSize
	if n > maxHeader {
		return fmt.Errorf("the header has %d bytes, the limit is %d", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(head, uint64(n))
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, info := range h.Tensors {
		if _, err := tensors[info.Name].WriteTo(w); err != nil {
			return fmt.Errorf("tensor %.200q: %w", info.Name, term.Bare(err))
		}
	}
	return nil
}

// headerOf returns the header for tensors, sorted as Write describes.
func headerOf(tensors map[string]safetensors.Tensor, metadata map[string]string) (*safetensors.Header, error) {
	h := &safetensors.Header{Metadata: metadata}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		tensor := tensors[name]
		if number(tensor.DType()) < 0 {
			return nil, fmt.Errorf("tensor %.200q: bintensors has no dtype for %v", name, tensor.DType())
		}
		if rank := len(tensor.Shape()); rank > maxRank {
			return nil, fmt.Errorf("tensor %.200q: %d dimensions, expected at most %d", name, rank, maxRank)
		}
		h.Tensors = append(h.Tensors, safetensors.TensorInfo{Name: name, DType: tensor.DType(), Shape: tensor.Shape()})
	}
	slices.SortFunc(h.Tensors, func(a, b safetensors.TensorInfo) int {
		return cmp.Or(cmp.Compare(number(b.DType), number(a.DType)), cmp.Compare(a.Name, b.Name))
	})
	return layOut(h)
}

// layOut returns a header in which the tensors lie one after another, and checks it by the rules of
// safetensors, which are also those of bintensors.
func layOut(h *safetensors.Header) (*safetensors.Header, error) {
	text, err := h.AppendBinary(nil)
	if err != nil {
		return nil, term.Bare(err)
	}
	return safetensors.ReadHeader(bytes.NewReader(text))
}

// check checks h by the rules of safetensors, for a file whose data has this many bytes.
func check(h *safetensors.Header, data int64) error {
	laidOut, err := layOut(h)
	if err != nil {
		return err
	}
	end := int64(0)
	for i, info := range h.Tensors {
		have, want := info.DataOffsets, laidOut.Tensors[i].DataOffsets
		if have != want {
			return fmt.Errorf("tensor %.200q: data offsets [%d,%d] of %v %s, expected [%d,%d]", info.Name, have[0], have[1], info.DType, term.Shape(info.Shape), want[0], want[1])
		}
		end = want[1]
	}
	switch {
	case end > data:
		return fmt.Errorf("the tensors need %s, the file has %d: %w", shapetext.Count(end, "byte"), data, io.ErrUnexpectedEOF)
	case end < data:
		return fmt.Errorf("the tensors end at %d, but the data after the header has %s", end, shapetext.Count(data, "byte"))
	}
	return nil
}

// appendHeader appends the header of versions 0.1 and later.
func appendHeader(b []byte, h *safetensors.Header) []byte {
	if h.Metadata == nil {
		b = append(b, 0)
	} else {
		b = appendNumber(append(b, 1), len(h.Metadata))
		for _, key := range slices.Sorted(maps.Keys(h.Metadata)) {
			b = appendString(appendString(b, key), h.Metadata[key])
		}
	}
	b = appendNumber(b, len(h.Tensors))
	for _, info := range h.Tensors {
		b = appendString(b, info.Name)
		for _, n := range append([]int{number(info.DType), len(info.Shape)}, info.Shape...) {
			b = appendNumber(b, n)
		}
		for _, offset := range info.DataOffsets {
			b = appendNumber(b, offset)
		}
	}
	return b
}

// In bincode, a number below mark16 is one byte. A larger number is a mark followed by 2, 4 or 8
// bytes.
const (
	mark16 = 251 + iota
	mark32
	mark64
)

// appendNumber appends a number in the shortest spelling.
func appendNumber[T int | int64](b []byte, number T) []byte {
	switch n := uint64(number); {
	case n < mark16:
		return append(b, byte(n))
	case n < 1<<16:
		return binary.LittleEndian.AppendUint16(append(b, mark16), uint16(n))
	case n < 1<<32:
		return binary.LittleEndian.AppendUint32(append(b, mark32), uint32(n))
	default:
		return binary.LittleEndian.AppendUint64(append(b, mark64), n)
	}
}

// appendString appends the length of s and then s.
func appendString(b []byte, s string) []byte {
	return append(appendNumber(b, len(s)), s...)
}
