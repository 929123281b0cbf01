package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// NewTensor returns a tensor whose elements are data, in row-major order. Their number must match
// shape; a nil shape is a scalar. NewTensor copies shape and refers to data, which must not be
// written to while the tensor is read.
//
// T is the Go type of the dtype, the unsigned integer with its size for raw bits, or byte
// for little-endian bytes, the only choice for F4, F6 and F8_E8M0. For any other narrower float
// dtype, T may be float32 or float64: reading rounds, as Convert does.
func NewTensor[T Element](dtype DType, shape []int, data []T) (Tensor, error) {
	t, err := newTensor[T](dtype, shape)
	if err != nil {
		return Tensor{}, prefixed(err)
	}
	if size := len(mem.BytesOf(data)); int64(size) != t.size {
		if reflect.TypeFor[T]().Kind() == reflect.Uint8 {
			return Tensor{}, prefixed(fmt.Errorf("%v needs %s, the data has %d", t, shapetext.Count(t.size, "byte"), size))
		}
		return Tensor{}, prefixed(fmt.Errorf("%v has %s, the data has %d", t, shapetext.Count(t.Len(), "element"), len(data)))
	}
	t.origin = newMemorySource(data)
	return t, nil
}

// newTensor returns a tensor without an origin, whose elements have type T in memory. If T is a
// wider float than dtype, the tensor converts its elements to dtype; its field size is still the
// size of the elements in memory.
func newTensor[T Element](dtype DType, shape []int) (Tensor, error) {
	stored := dtype
	if err := checkElement[T](dtype); err != nil {
		stored = floatOf[T]()
		if !float.Convertible(stored.float(), dtype.float()) {
			return Tensor{}, elementError[T](dtype, roundedFrom(dtype))
		}
		if stored.Bits() <= dtype.Bits() {
			return Tensor{}, fmt.Errorf("%w; make it %v and Convert", err, stored)
		}
	}
	size, broken := checkShape(stored, shape)
	if broken != "" {
		return Tensor{}, errors.New(broken)
	}
	t := Tensor{dtype: stored, shape: slices.Clone(shape), size: size}
	if stored == dtype {
		return t, nil
	}
	return t.convert(dtype)
}

// roundedFrom returns the Go float types whose values NewTensor rounds to a dtype.
func roundedFrom(d DType) (types []string) {
	for _, wide := range []DType{F32, F64} {
		if wide.Bits() > d.Bits() && float.Convertible(wide.float(), d.float()) {
			types = append(types, dtypes[wide].kind.String())
		}
	}
	return types
}

// NewTensorAt returns a tensor whose elements r holds from offset 0 on, row-major and
// little-endian. They are read on demand, as by NewFile. If r has a method Name() string, as an
// *os.File has, errors of reading contain this name.
func NewTensorAt(dtype DType, shape []int, r io.ReaderAt) (Tensor, error) {
	size, broken := checkShape(dtype, shape)
	if broken != "" {
		return Tensor{}, prefixed(errors.New(broken))
	}
	if r == nil {
		return Tensor{}, prefixed(errors.New("the io.ReaderAt of a tensor is nil"))
	}
	return Tensor{dtype: dtype, shape: slices.Clone(shape), origin: newReaderSource(r, 0), size: size}, nil
}

// newMemorySource returns the source of elements of type T in memory.
func newMemorySource[T Element](elements []T) *source {
	b := mem.BytesOf(elements)
	if unit := mem.SwappedUnit[T](); unit > 0 {
		return &source{r: mem.Swapped{R: bytes.NewReader(b), Size: unit}, native: b}
	}
	return &source{mem: b}
}
