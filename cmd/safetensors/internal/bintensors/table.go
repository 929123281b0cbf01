package bintensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// layOut returns a header with the offsets of its tensors, one after another, after the
// checks of safetensors, whose rules are those of bintensors too.
func layOut(h *safetensors.Header) (*safetensors.Header, error) {
	text, err := h.AppendBinary(nil)
	if err != nil {
		return nil, term.Bare(err)
	}
	return safetensors.ReadHeader(bytes.NewReader(text))
}

// check checks the rules of safetensors; the tensors have data bytes.
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
		return fmt.Errorf("the tensors need %d bytes, the file has %d: %w", end, data, io.ErrUnexpectedEOF)
	case end < data:
		return fmt.Errorf("the tensors end at %d, but %d bytes follow the header", end, data)
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

// A number in bincode is a byte below mark16, or a mark and 2, 4 or 8 bytes.
const (
	mark16 = 251 + iota
	mark32
	mark64
)

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

func appendString(b []byte, s string) []byte {
	return append(appendNumber(b, len(s)), s...)
}
