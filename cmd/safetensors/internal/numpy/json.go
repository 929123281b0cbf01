package numpy

import (
	"bufio"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/gosafetensors/safetensors"
)

// blockSize is the number of bytes of elements that WriteJSON converts at a time.
const blockSize = 256 << 10

// WriteJSON writes all elements of a tensor in the form of NumPy's tolist: as nested lists, or as a
// single number if the tensor has no dimensions, or as [] if it has no elements. Values that JSON
// lacks become the strings "NaN", "Infinity" and "-Infinity". A complex number becomes [real,
// imaginary]. WriteJSON takes constant memory.
func WriteJSON(w io.Writer, t safetensors.Tensor) error {
	if t.Len() == 0 {
		_, err := io.WriteString(w, "[]")
		return err
	}
	t, err := addressable(t)
	if err != nil {
		return err
	}
	l := &lists{w: bufio.NewWriter(w), dtype: t.DType(), shape: t.Shape()}
	if _, err := t.WriteTo(l); err != nil {
		return err
	}
	return l.w.Flush()
}

// A lists is an io.Writer that takes the bytes of elements, and writes the elements as text.
type lists struct {
	w     *bufio.Writer
	dtype safetensors.DType
	shape []int
	next  int    // index of the next element
	begun []byte // first bytes of the next element, if the last Write ended within it
}

func (l *lists) Write(p []byte) (int, error) {
	for block := range slices.Chunk(p, blockSize) {
		block = append(l.begun, block...)
		n := len(block) * 8 / l.dtype.Bits()
		whole := n * l.dtype.Bits() / 8
		if err := l.elements(n, block[:whole]); err != nil {
			return 0, err
		}
		l.begun = append(l.begun[:0], block[whole:]...)
	}
	return len(p), nil
}

// elements writes n elements, whose bytes are data.
func (l *lists) elements(n int, data []byte) error {
	t, err := safetensors.NewTensor(l.dtype, []int{n}, data)
	if err != nil {
		return err
	}
	element, err := javascript.formatter(t)
	if err != nil {
		return err
	}
	for i := range n {
		b := l.w.AvailableBuffer()
		if l.next > 0 {
			b = append(b, ',')
		}
		for range l.edges(l.next) {
			b = append(b, '[')
		}
		b = element(b, i)
		l.next++
		for range l.edges(l.next) {
			b = append(b, ']')
		}
		if _, err := l.w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// edges returns the number of lists that start at an element, which is also the number of lists
// that end before it.
func (l *lists) edges(element int) (n int) {
	stride := 1
	for n < len(l.shape) {
		stride *= l.shape[len(l.shape)-1-n]
		if element%stride != 0 {
			break
		}
		n++
	}
	return n
}

// javascript is the style of JSON. A float is formatted as the shortest text that identifies it
// among the floats of its size. Values that JSON lacks become strings.
var javascript = style{
	"false", "true",
	appendFloat,
	func(b []byte, re, im float64) []byte {
		b = appendFloat(append(b, '['), re, 32)
		return append(appendFloat(append(b, ','), im, 32), ']')
	},
}

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
