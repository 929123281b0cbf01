package numpy

import (
	"bufio"
	"io"
	"math"
	"strconv"

	"github.com/gosafetensors/safetensors"
)

// blockLen is how many elements WriteJSON reads at once.
const blockLen = 1 << 16

// WriteJSON writes all elements of a tensor as tolist of numpy has them: nested lists,
// a number alone if the tensor has no dimension, [] if it has no elements. What JSON lacks
// are the strings "NaN", "Infinity" and "-Infinity", and [real, imaginary] of a complex
// number. The memory is constant.
func WriteJSON(w io.Writer, t safetensors.Tensor) error {
	t, err := addressable(t)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	if err := writeJSON(b, t); err != nil {
		return err
	}
	return b.Flush()
}

func writeJSON(w *bufio.Writer, t safetensors.Tensor) error {
	shape, n := t.Shape(), t.Len()
	if n == 0 {
		_, err := w.WriteString("[]")
		return err
	}
	if n <= blockLen {
		v, err := Read(t)
		if err != nil {
			return err
		}
		return v.writeJSON(w, shape, 0, n)
	}
	rows := max(1, blockLen/(n/shape[0]))
	open := byte('[')
	for i := 0; i < shape[0]; i += rows {
		w.WriteByte(open)
		open = ','
		part := safetensors.Span(i, min(i+rows, shape[0]))
		if rows == 1 {
			part = safetensors.At(i)
		}
		below, err := t.Slice(part)
		if err != nil {
			return err
		}
		if rows == 1 {
			err = writeJSON(w, below)
		} else {
			err = writeRows(w, below)
		}
		if err != nil {
			return err
		}
	}
	return w.WriteByte(']')
}

// writeRows writes the elements of a tensor without the outermost brackets.
func writeRows(w *bufio.Writer, t safetensors.Tensor) error {
	v, err := Read(t)
	if err != nil {
		return err
	}
	return v.writeList(w, t.Shape(), 0, t.Len())
}

// writeJSON writes the n elements from first on, in that shape.
func (v Values) writeJSON(w *bufio.Writer, shape []int, first, n int) error {
	if len(shape) == 0 {
		_, err := w.Write(v.appendJSON(w.AvailableBuffer(), first))
		return err
	}
	w.WriteByte('[')
	if err := v.writeList(w, shape, first, n); err != nil {
		return err
	}
	return w.WriteByte(']')
}

func (v Values) writeList(w *bufio.Writer, shape []int, first, n int) error {
	step := n / shape[0]
	for i := range shape[0] {
		if i > 0 {
			w.WriteByte(',')
		}
		if err := v.writeJSON(w, shape[1:], first+i*step, step); err != nil {
			return err
		}
	}
	return nil
}

func (v Values) appendJSON(b []byte, i int) []byte {
	switch {
	case v.Bools != nil:
		return strconv.AppendBool(b, v.Bools[i])
	case v.Ints != nil:
		return strconv.AppendInt(b, v.Ints[i], 10)
	case v.Uints != nil:
		return strconv.AppendUint(b, v.Uints[i], 10)
	case v.Complex != nil:
		b = appendFloat(append(b, '['), float64(real(v.Complex[i])), 32)
		return append(appendFloat(append(b, ','), float64(imag(v.Complex[i])), 32), ']')
	}
	return appendFloat(b, v.Floats[i], max(v.Bits, 32))
}

// appendFloat appends the shortest text that only x of all floats of that size reads as.
func appendFloat(b []byte, x float64, bits int) []byte {
	switch {
	case math.IsNaN(x):
		return append(b, `"NaN"`...)
	case math.IsInf(x, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(x, -1):
		return append(b, `"-Infinity"`...)
	}
	return strconv.AppendFloat(b, x, 'g', -1, bits)
}
