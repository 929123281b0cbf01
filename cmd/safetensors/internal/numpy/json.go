package numpy

import (
	"bufio"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/gosafetensors/safetensors"
)

// blockSize is how many bytes of elements WriteJSON holds at once.
const blockSize = 256 << 10

// WriteJSON writes all elements of a tensor as tolist of numpy has them: nested lists,
// a number alone if the tensor has no dimension, [] if it has no elements. What JSON lacks
// are the strings "NaN", "Infinity" and "-Infinity", and [real, imaginary] of a complex
// number. The memory is constant.
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

// lists writes the elements whose bytes are written to it.
type lists struct {
	w     *bufio.Writer
	dtype safetensors.DType
	shape []int
	next  int    // element
	begun []byte // a part of it
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

func (l *lists) elements(n int, data []byte) error {
	t, err := safetensors.NewTensor(l.dtype, []int{n}, data)
	if err != nil {
		return err
	}
	element, err := javascript.of(t)
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

// edges returns how many lists start at an element, and as many end before it.
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

// javascript is the style of JSON: the shortest text that only x of all floats of that
// size reads as, and strings for what JSON lacks.
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
