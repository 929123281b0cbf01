// Package bintensors reads and writes .bt files, the format of the package bintensors
// for Python and Rust.
//
// Such a file is a safetensors file with another header: its length as a little-endian
// uint64, the header in bincode, padded with spaces, then the data. There is neither a
// magic number nor a version, and there are two headers:
//
//	0.0.x:      metadata, the tensors, the number of the tensor of each name
//	0.1 to 0.2: metadata, the name and the tensor in turn
//
// Open tells them apart by reading both: only the right one fills the header and passes
// all checks, which are those of safetensors. Write writes the newer one.
package bintensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

const (
	prefixSize = 8
	maxHeader  = 100_000_000
	maxRank    = 64 // that of NumPy and PyTorch; a dimension takes a byte here, and eight in memory
)

func rankError(rank int) error {
	return fmt.Errorf("%d dimensions, expected at most %d", rank, maxRank)
}

// dtypes are those that bintensors has, by their numbers in the file.
var dtypes = []safetensors.DType{
	safetensors.BOOL, safetensors.U8, safetensors.I8, safetensors.F8_E5M2, safetensors.F8_E4M3,
	safetensors.I16, safetensors.U16, safetensors.F16, safetensors.BF16,
	safetensors.I32, safetensors.U32, safetensors.F32,
	safetensors.F64, safetensors.I64, safetensors.U64,
}

// number returns the number of a dtype in the file, -1 if bintensors has none.
func number(d safetensors.DType) int { return slices.Index(dtypes, d) }

// Sniff reports whether a file that starts with head, of at least 9 bytes, can be a .bt
// file: its header starts with 0 or 1, for metadata that are absent or present. That of
// a safetensors file starts with { or white space.
func Sniff(head []byte) bool {
	if len(head) <= prefixSize {
		return false
	}
	n := binary.LittleEndian.Uint64(head)
	return 0 < n && n <= maxHeader && head[prefixSize] <= 1
}

// Open returns the tensors and the metadata of the file of size bytes in r, which must
// stay readable as long as the tensors are used. It reads the header; the data of a
// tensor is read when the tensor is.
func Open(r io.ReaderAt, size int64) (map[string]safetensors.Tensor, map[string]string, error) {
	tensors, metadata, err := open(r, size)
	if err != nil {
		return nil, nil, fmt.Errorf("bintensors file: %w", err)
	}
	return tensors, metadata, nil
}

func open(r io.ReaderAt, size int64) (map[string]safetensors.Tensor, map[string]string, error) {
	var prefix [prefixSize]byte
	if size < prefixSize {
		return nil, nil, fmt.Errorf("%d bytes are no header: %w", size, io.ErrUnexpectedEOF)
	}
	file := io.NewSectionReader(r, 0, size)
	if _, err := io.ReadFull(file, prefix[:]); err != nil {
		return nil, nil, fmt.Errorf("reading the header length: %w", err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
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
	tensors := make(map[string]safetensors.Tensor, len(h.Tensors))
	for _, info := range h.Tensors {
		data := io.NewSectionReader(r, start+info.DataOffsets[0], info.DataOffsets[1]-info.DataOffsets[0])
		if tensors[info.Name], err = safetensors.NewTensorAt(info.DType, info.Shape, data); err != nil {
			return nil, nil, fmt.Errorf("tensor %.200q: %w", info.Name, err)
		}
	}
	return tensors, h.Metadata, nil
}

// parse returns the header of a file whose tensors have data bytes, in the only format in
// which it passes all checks.
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

// Write writes the tensors and the metadata as version 0.2 does, byte for byte: by dtype
// in descending order, then by name; the metadata sorted by key. nil metadata are
// absent.
//
// Before anything is written it is an error if bintensors has no dtype for a tensor, or
// if the checks of Open would fail.
func Write(w io.Writer, tensors map[string]safetensors.Tensor, metadata map[string]string) error {
	if err := write(w, tensors, metadata); err != nil {
		return fmt.Errorf("bintensors file: %w", err)
	}
	return nil
}

func write(w io.Writer, tensors map[string]safetensors.Tensor, metadata map[string]string) error {
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

// headerOf returns the header of tensors to be written.
func headerOf(tensors map[string]safetensors.Tensor, metadata map[string]string) (*safetensors.Header, error) {
	h := &safetensors.Header{Metadata: metadata}
	for name, tensor := range tensors {
		if number(tensor.DType()) < 0 {
			return nil, fmt.Errorf("tensor %.200q: bintensors has no dtype for %v", name, tensor.DType())
		}
		if rank := len(tensor.Shape()); rank > maxRank {
			return nil, fmt.Errorf("tensor %.200q: %w", name, rankError(rank))
		}
		h.Tensors = append(h.Tensors, safetensors.TensorInfo{Name: name, DType: tensor.DType(), Shape: tensor.Shape()})
	}
	slices.SortFunc(h.Tensors, func(a, b safetensors.TensorInfo) int {
		return cmp.Or(cmp.Compare(number(b.DType), number(a.DType)), cmp.Compare(a.Name, b.Name))
	})
	return layOut(h)
}
