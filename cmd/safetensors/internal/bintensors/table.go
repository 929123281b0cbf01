package bintensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors"
)

// A table is a header: the tensors in the order of their data.
type table struct {
	metadata map[string]string // nil if absent
	tensors  []safetensors.TensorInfo
}

func (t *table) sort() {
	slices.SortFunc(t.tensors, func(a, b safetensors.TensorInfo) int {
		return cmp.Or(cmp.Compare(number(b.DType), number(a.DType)), cmp.Compare(a.Name, b.Name))
	})
}

// check checks the rules of safetensors; the tensors have data bytes.
func (t *table) check(data int64) error {
	const reserved = "__metadata__"
	for key, value := range t.metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return fmt.Errorf("metadata key %.200q or its value is not valid UTF-8", key)
		}
	}
	names := make(map[string]bool, len(t.tensors))
	end := int64(0)
	for _, info := range t.tensors {
		var broken error
		begin := info.DataOffsets[0]
		// A tensor of no data, for the checks of the shape.
		probe, err := safetensors.NewTensorAt(info.DType, info.Shape, bytes.NewReader(nil))
		switch {
		case err != nil:
			broken = err
		case !utf8.ValidString(info.Name):
			broken = errors.New("the name is not valid UTF-8")
		case info.Name == reserved:
			broken = errors.New("safetensors reserves the name for the metadata")
		case names[info.Name]:
			broken = errors.New("duplicate tensor name")
		case begin != end:
			broken = fmt.Errorf("data offsets start at %d, the tensors before it end at %d", begin, end)
		case info.DataOffsets[1]-begin != probe.Size():
			broken = fmt.Errorf("data offsets [%d,%d] do not hold %v, which needs %d bytes", begin, info.DataOffsets[1], probe, probe.Size())
		}
		if broken != nil {
			return fmt.Errorf("tensor %.200q: %w", info.Name, broken)
		}
		names[info.Name] = true
		end = info.DataOffsets[1]
	}
	switch {
	case end > data:
		return fmt.Errorf("the tensors need %d bytes, the file has %d: %w", end, data, io.ErrUnexpectedEOF)
	case end < data:
		return fmt.Errorf("the tensors end at %d, but %d bytes follow the header", end, data)
	}
	return nil
}

// append appends the header of versions 0.1 and later.
func (t *table) append(b []byte) []byte {
	if t.metadata == nil {
		b = append(b, 0)
	} else {
		b = appendNumber(append(b, 1), uint64(len(t.metadata)))
		for _, key := range slices.Sorted(maps.Keys(t.metadata)) {
			b = appendString(appendString(b, key), t.metadata[key])
		}
	}
	b = appendNumber(b, uint64(len(t.tensors)))
	for _, info := range t.tensors {
		b = appendString(b, info.Name)
		b = appendNumber(b, uint64(number(info.DType)))
		b = appendNumber(b, uint64(len(info.Shape)))
		for _, dim := range info.Shape {
			b = appendNumber(b, uint64(dim))
		}
		b = appendNumber(b, uint64(info.DataOffsets[0]))
		b = appendNumber(b, uint64(info.DataOffsets[1]))
	}
	return b
}

// A number in bincode is a byte below mark16, or a mark and 2, 4 or 8 bytes.
const (
	mark16 = 251 + iota
	mark32
	mark64
)

func appendNumber(b []byte, n uint64) []byte {
	switch {
	case n < mark16:
		return append(b, byte(n))
	case n < 1<<16:
		return binary.LittleEndian.AppendUint16(append(b, mark16), uint16(n))
	case n < 1<<32:
		return binary.LittleEndian.AppendUint32(append(b, mark32), uint32(n))
	}
	return binary.LittleEndian.AppendUint64(append(b, mark64), n)
}

func appendString(b []byte, s string) []byte {
	return append(appendNumber(b, uint64(len(s))), s...)
}
