package safetensors

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A Tensor is a multi-dimensional array of elements with one dtype. It is a small immutable value
// that refers to its data, and may be used concurrently, until its File is closed. Reading the
// zero Tensor is an error.
type Tensor struct {
	dtype   DType
	shape   []int   // dimensions, outermost first; empty for a scalar
	origin  origin  // where the elements come from; nil in the zero Tensor
	off     int64   // where the first element starts in the origin, in bytes
	size    int64   // size of the elements as they are stored, in bytes
	strides []int64 // steps between the stored elements of each dimension; nil if they are contiguous
	dtypes  []DType // the dtype as stored, then each dtype to convert to; nil if nothing is converted
	watch   *watch  // the watches that count the bytes read, or nil
}

// An origin holds or produces the elements of a tensor. There are four: *source holds their
// bytes; *computed, *concat and *through produce them when they are read. Tensor.stream reads all
// four. All origins are pointers, so that == compares identity.
type origin interface {
	// notInMemory returns the reason why View fails for elements that are not in memory.
	notInMemory() string
}

// Element constrains the Go types of elements. bool is not one of them: a BOOL in a file may be
// any byte.
type Element interface {
	~int8 | ~int16 | ~int32 | ~int64 |
		~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64
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
func (t Tensor) String() string { return t.dtype.String() + " " + shapetext.Of(t.shape) }

// sourceDType returns the dtype of the elements in the origin.
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

// checkElement checks that T is one of the Go types of elements with this dtype.
func checkElement[T Element](d DType) error {
	kind := reflect.TypeFor[T]().Kind()
	if !d.valid() || kind == reflect.Uint8 || kind == dtypes[d].kind || kind == dtypes[d].raw {
		return nil
	}
	return elementError[T](d, nil)
}

// elementError returns the error for a T that does not fit the dtype. It lists the types that fit,
// and then those in floats: the types from which NewTensor rounds, or to which Append converts.
func elementError[T Element](d DType, floats []string) error {
	var types []string
	if k := dtypes[d].kind; k != dtypes[d].raw {
		types = append(types, k.String())
	}
	if k := dtypes[d].raw; k > reflect.Uint8 {
		types = append(types, k.String())
	}
	types = append(append(types, "byte"), floats...)
	return fmt.Errorf("elements of %v are %s, not %v", d, oneOf(types), reflect.TypeFor[T]())
}

// oneOf lists words as an error does: "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// floatOf returns the dtype whose elements have the Go float type T, 0 if T is not a float.
func floatOf[T Element]() DType {
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Float32:
		return F32
	case reflect.Float64:
		return F64
	}
	return 0
}

// A watch is a func of Watch, which is called after bytes of a tensor were read.
type watch struct {
	read func(n int) error
	at   int    // index in Tensor.dtypes of the dtype in which bytes are counted
	next *watch // the watch of the tensor before this one was added; nil if it had none
}
