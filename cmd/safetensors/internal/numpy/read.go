package numpy

import (
	"fmt"
	"iter"

	"github.com/gosafetensors/safetensors"
	"golang.org/x/sync/errgroup"
)

// Print returns a tensor as text. It reads what is printed and not much more.
func Print(t safetensors.Tensor) (string, error) {
	v, err := readCorners(t)
	if err != nil {
		return "", err
	}
	return Format(t.Shape(), v), nil
}

// mostPrinted limits the elements that are printed, times the dimensions, each of which
// indents them: an array of many short dimensions has few elements in each, and many in
// all.
const mostPrinted = 1 << 21

// readCorners reads the elements at the Corners of a tensor.
func readCorners(t safetensors.Tensor) (v Values, err error) {
	shape := t.Shape()
	if !summarizes(shape) {
		return Read(t)
	}
	corners := Corners(shape)
	n := 1
	for _, indices := range corners {
		if n *= len(indices); n > mostPrinted/len(shape) {
			return v, fmt.Errorf("%v has too many dimensions to be printed: select a slice", t)
		}
	}
	// Elements of less than a byte cannot be cut out one by one, those that they are
	// converted to can be read at any place.
	if t, err = addressable(t); err != nil {
		return v, err
	}
	size := t.DType().Bits() / 8
	data := make([]byte, n*size)
	var reads errgroup.Group
	reads.SetLimit(32) // each may be a request
	for i, run := range runs(shape, corners) {
		part := data[i*size : (i+run.n)*size]
		reads.Go(func() error {
			_, err := t.ReadAt(part, run.first*int64(size))
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return v, err
	}
	part, err := safetensors.NewTensor(t.DType(), []int{n}, data)
	if err != nil {
		return v, err
	}
	return Read(part)
}

// A run is n adjacent elements.
type run struct {
	first int64
	n     int
}

// runs yields the elements at the corners of a shape as runs, each with the number of
// its first element among those that are printed.
func runs(shape []int, corners [][]int) iter.Seq2[int, run] {
	return func(yield func(int, run) bool) {
		i := 0
		var walk func(d int, first int64) bool
		walk = func(d int, first int64) bool {
			indices := corners[d]
			for k := 0; k < len(indices); k++ {
				at := first*int64(shape[d]) + int64(indices[k])
				if d < len(shape)-1 {
					if !walk(d+1, at) {
						return false
					}
					continue
				}
				r := run{at, 1}
				for k+1 < len(indices) && indices[k+1] == indices[k]+1 {
					k++
					r.n++
				}
				if !yield(i, r) {
					return false
				}
				i += r.n
			}
			return true
		}
		walk(0, 0)
	}
}

// addressable returns t as a dtype of whole bytes.
func addressable(t safetensors.Tensor) (safetensors.Tensor, error) {
	if t.DType().Bits()%8 == 0 {
		return t, nil
	}
	return t.Convert(safetensors.F32)
}

// Read returns all elements of a tensor.
func Read(t safetensors.Tensor) (v Values, err error) {
	switch t.DType() {
	case safetensors.BOOL:
		b, err := safetensors.Append([]byte{}, t)
		v.Bools = make([]bool, len(b))
		for i := range b {
			v.Bools[i] = b[i] != 0
		}
		return v, err
	case safetensors.I8:
		v.Ints, err = ints[int8](t)
	case safetensors.I16:
		v.Ints, err = ints[int16](t)
	case safetensors.I32:
		v.Ints, err = ints[int32](t)
	case safetensors.I64:
		v.Ints, err = ints[int64](t)
	case safetensors.U8:
		v.Uints, err = uints[uint8](t)
	case safetensors.U16:
		v.Uints, err = uints[uint16](t)
	case safetensors.U32:
		v.Uints, err = uints[uint32](t)
	case safetensors.U64:
		v.Uints, err = uints[uint64](t)
	case safetensors.C64:
		v.Complex, err = safetensors.Append([]complex64{}, t)
	default: // numpy has no dtype for most of these; float32 represents all but F64
		v.Bits = 32
		switch t.DType() {
		case safetensors.F64:
			v.Bits = 64
		case safetensors.F16:
			v.Bits = 16
		}
		v.Floats, err = safetensors.Append([]float64{}, t)
	}
	return v, err
}

func ints[T int8 | int16 | int32 | int64](t safetensors.Tensor) ([]int64, error) {
	x, err := safetensors.Append([]T{}, t)
	all := make([]int64, len(x))
	for i := range x {
		all[i] = int64(x[i])
	}
	return all, err
}

func uints[T uint8 | uint16 | uint32 | uint64](t safetensors.Tensor) ([]uint64, error) {
	x, err := safetensors.Append([]T{}, t)
	all := make([]uint64, len(x))
	for i := range x {
		all[i] = uint64(x[i])
	}
	return all, err
}
