package npz

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

func write(w io.Writer, tensors map[string]safetensors.Tensor) error {
	names := slices.Sorted(maps.Keys(tensors))
	for _, name := range names {
		if err := check(name, tensors); err != nil {
			return fmt.Errorf("tensor %.200q: %w", name, err)
		}
	}
	z := zip.NewWriter(w)
	for _, name := range names {
		t := tensors[name]
		f, err := z.CreateHeader(&zip.FileHeader{Name: name + suffix, Method: zip.Store})
		if err == nil {
			_, err = f.Write(appendHeader(nil, t))
		}
		if err == nil {
			_, err = t.WriteTo(f)
		}
		if err != nil {
			return fmt.Errorf("tensor %.200q: %w", name, term.Bare(err))
		}
	}
	return z.Close()
}

// check returns why NumPy could not read a tensor.
func check(name string, tensors map[string]safetensors.Tensor) error {
	const maxRank = 64
	t := tensors[name]
	_, both := tensors[name+suffix]
	switch {
	case typeOf(t.DType()) == "":
		return fmt.Errorf("NumPy has no type for %v; convert it to F32 or F16", t.DType())
	case len(t.Shape()) > maxRank:
		return fmt.Errorf("it has %d dimensions, NumPy allows %d", len(t.Shape()), maxRank)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return errors.New("its name has a zero byte or is not valid UTF-8, which the zip format does not allow")
	case len(name)+len(suffix) > math.MaxUint16:
		return fmt.Errorf("its name has %d bytes, too many for the zip format", len(name))
	case both:
		return fmt.Errorf("NumPy does not distinguish it from %.200q", name+suffix)
	}
	return nil
}

// typeOf returns NumPy's name of a dtype, "" if it has none.
func typeOf(d safetensors.DType) string {
	for kind, dtype := range dtypes {
		switch {
		case dtype != d:
		case d.Bits() == 8:
			return "|" + kind
		default:
			return "<" + kind
		}
	}
	return ""
}

// appendHeader appends the header that numpy.save writes: room for the first dimension
// to grow to 21 digits, then padding to a multiple of 64 bytes.
func appendHeader(b []byte, t safetensors.Tensor) []byte {
	const (
		alignment = 64
		digits    = 21
		prefix    = len(magic) + 4
	)
	var shape strings.Builder
	grow := 0
	for i, n := range t.Shape() {
		if i > 0 {
			shape.WriteString(" ")
		} else {
			grow = digits - len(fmt.Sprint(n))
		}
		fmt.Fprintf(&shape, "%d,", n)
	}
	tuple := shape.String()
	if len(t.Shape()) > 1 {
		tuple = tuple[:len(tuple)-1]
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", typeOf(t.DType()), tuple)
	text += strings.Repeat(" ", grow)
	text += strings.Repeat(" ", alignment-(prefix+len(text)+1)%alignment) + "\n"
	b = append(b, magic+"\x01\x00"...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text))) // of 64 dimensions and less
	return append(b, text...)
}
