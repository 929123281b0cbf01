package safetensors

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// A Tensor is a multi-dimensional array of one dtype, a small immutable value that
// refers to its data. It may be used concurrently, until its File is closed. Reading
// the zero Tensor is an error.
type Tensor struct {
	dtype   DType
	shape   []int // dimensions, outermost first; empty for a scalar
	src     *source
	off     int64   // of the first element in the source, in bytes
	size    int64   // of the elements as they are stored, in bytes
	strides []int64 // between the stored elements of each dimension; nil if they are contiguous
	dtypes  []DType // the dtype as stored, then each dtype to convert to; nil if there is no conversion
	concat  *concat // the pieces of a joined tensor, in place of all from src on
	watch   *watch  // is told what is read; nil if nobody watches
}

// Element is the constraint of the Go types of elements. A file may hold any byte in a
// BOOL, hence no bool.
type Element interface {
	~int8 | ~int16 | ~int32 | ~int64 |
		~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64
}

// NewTensor returns a tensor of the elements in data, in row-major order, as many as
// the shape has; a nil shape is a scalar. It copies shape and refers to data, which
// must not be written to while the tensor is read.
//
// T is the Go type of the dtype, the unsigned integer of its size for raw bits, or byte
// for little-endian bytes, the only choice for F4 and F6. For a narrower float dtype, T
// may be float32 or float64: reading rounds, as Convert does.
func NewTensor[T Element](dtype DType, shape []int, data []T) (Tensor, error) {
	t, err := newTensor[T](dtype, shape)
	if err != nil {
		return Tensor{}, prefixed(err)
	}
	if size := len(mem.BytesOf(data)); int64(size) != t.size {
		what := t.String()
		if t.dtypes != nil {
			what += " rounded from " + t.sourceDType().String()
		}
		return Tensor{}, prefixed(fmt.Errorf("%s needs %d bytes, the data has %d", what, t.size, size))
	}
	t.src = newMemorySource(data)
	return t, nil
}

// newTensor returns a tensor of elements of type T that has no source yet. Its size is
// that of its elements in memory.
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

// NewTensorAt returns a tensor of elements that r holds from offset 0 on, row-major and
// little-endian. It reads them on demand, as NewFile does.
func NewTensorAt(dtype DType, shape []int, r io.ReaderAt) (Tensor, error) {
	size, broken := checkShape(dtype, shape)
	if broken != "" {
		return Tensor{}, prefixed(errors.New(broken))
	}
	if r == nil {
		return Tensor{}, prefixed(errors.New("the io.ReaderAt of a tensor is nil"))
	}
	return Tensor{dtype: dtype, shape: slices.Clone(shape), src: newReaderSource(r, 0), size: size}, nil
}

// DType returns the type of the elements, 0 for the zero Tensor.
func (t Tensor) DType() DType { return t.dtype }

// Shape returns a copy of the dimensions, outermost first; none for a scalar.
func (t Tensor) Shape() []int { return slices.Clone(t.shape) }

// Len returns the number of elements, 1 for a scalar, at most math.MaxInt.
func (t Tensor) Len() int {
	n, _ := countElements(t.shape)
	return int(min(n, math.MaxInt))
}

// Size returns the size of the elements in bytes.
func (t Tensor) Size() int64 {
	size, _ := byteSize(t.dtype, t.shape)
	return size
}

// String returns the dtype and the shape, such as "BF16 [4096,4096]".
func (t Tensor) String() string { return t.dtype.String() + " " + formatShape(t.shape) }

// sourceDType returns the dtype of the elements in the source.
func (t Tensor) sourceDType() DType {
	if t.dtypes != nil {
		return t.dtypes[0]
	}
	return t.dtype
}

// check refuses the zero Tensor.
func (t Tensor) check() error {
	if !t.dtype.valid() {
		return errors.New("the zero Tensor has no dtype and no data")
	}
	return nil
}

// checkElement checks that elements of the dtype can be seen as T.
func checkElement[T Element](d DType) error {
	kind := reflect.TypeFor[T]().Kind()
	if !d.valid() || kind == reflect.Uint8 || kind == dtypes[d].kind || kind == dtypes[d].raw {
		return nil
	}
	return elementError[T](d, nil)
}

// elementError returns the error of elements of the dtype as T, which lists the types
// that they have, and the floats that they are rounded from.
func elementError[T Element](d DType, floats []string) error {
	var types []string
	if k := dtypes[d].kind; k != dtypes[d].raw {
		types = append(types, k.String())
	}
	if k := dtypes[d].raw; k > reflect.Uint8 {
		types = append(types, k.String())
	}
	types = append(append(types, "byte"), floats...)
	list, last := "", len(types)-1
	if last > 0 {
		list = strings.Join(types[:last], ", ") + " or "
	}
	return fmt.Errorf("elements of %v are %s%s, not %v", d, list, types[last], reflect.TypeFor[T]())
}

// floatOf returns the dtype whose elements are of the Go float type T, 0 if T is
// no float.
func floatOf[T Element]() DType {
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Float32:
		return F32
	case reflect.Float64:
		return F64
	}
	return 0
}
