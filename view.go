package safetensors

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
)

// A Tensor is a multi-dimensional array of one dtype, in a file or in memory. It
// is a small value that refers to its data and can be copied freely. All its
// methods, View and Append may be called concurrently.
//
// A tensor of a File can be used until the File is closed. The Shape that it
// comes with is shared and must not be written to. A new one may be assigned:
// where the elements are contiguous and their number is the same, that reshapes
// the tensor, and otherwise everything done with it fails. In the same way
// another DType may be assigned to see the same bytes as other elements; to
// convert them use Convert.
//
// The zero Tensor is invalid.
type Tensor struct {
	DType DType
	Shape []int // dimensions, outermost first; empty for a scalar

	src     *source
	off     int64    // of the data in the source, in bytes
	size    int64    // of the elements as they are stored, in bytes
	strided *strided // which elements from off on; nil if they are contiguous
	steps   []DType  // the dtype as stored, then each one to convert to; nil if there is none
}

// Element is the constraint of the Go types that elements are seen as. There is
// no bool: a file may hold any byte, a Go bool may not.
type Element interface {
	~int8 | ~int16 | ~int32 | ~int64 |
		~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64
}

// NewTensor returns a tensor of the elements in data, in row-major order. It
// refers to data: what is written there later is seen by the tensor, and must
// not be written while the tensor is read.
//
// T is the Go type of the dtype, or the unsigned integer of its size for raw
// bits, or a byte type for raw little-endian bytes, the only one for F4 and F6.
// The shape must have as many elements as data holds; a nil shape is a scalar.
func NewTensor[T Element](dtype DType, shape []int, data []T) (Tensor, error) {
	size, broken := checkShape(dtype, shape)
	if broken != "" {
		return Tensor{}, &FormatError{Offset: -1, Reason: broken}
	}
	if err := checkElement[T](dtype); err != nil {
		return Tensor{}, err
	}
	mem := bytesOf(data)
	if int64(len(mem)) != size {
		return Tensor{}, fmt.Errorf("safetensors: %v %s needs %d bytes, the data has %d", dtype, formatShape(shape), size, len(mem))
	}
	src := &source{mem: mem, unit: hostUnit[T]()}
	return Tensor{DType: dtype, Shape: slices.Clone(shape), src: src, size: size}, nil
}

// View returns the elements of t without copying them. The slice refers to the
// data of t and has no spare capacity.
//
// T is as for NewTensor: View[float32] of F32, View[uint16] (or a type such as
// float16.Float16 of github.com/x448/float16) of F16 and BF16, View[byte] of any
// dtype.
//
// If t comes from Open the elements must not be written, which would be a fault
// that ends the program; they must not be used after Close; and if the file is
// truncated meanwhile, reading them is such a fault, too. If t comes from Load,
// Parse or NewTensor, the slice is ordinary memory.
//
// Where View would have to copy, it fails with an error that is
// errors.ErrUnsupported, and Append is there: the file is not in memory
// (NewFile), the elements are not contiguous (Slice) or are to be converted
// (Convert), their address is not aligned for T, or the host is big-endian.
func View[T Element](t Tensor) ([]T, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := checkElement[T](t.DType); err != nil {
		return nil, err
	}
	if t.size == 0 && t.src == nil {
		return []T{}, nil
	}
	if err := t.src.open(); err != nil {
		return nil, err
	}
	switch {
	case t.strided != nil:
		return nil, t.noView("its elements are not contiguous")
	case t.steps != nil:
		return nil, t.noView("its elements are to be converted")
	case t.size == 0:
		return []T{}, nil
	case t.src.mem == nil:
		return nil, t.noView("its data is not in memory")
	case t.src.unit != hostUnit[T]():
		return nil, t.noView("its byte order is not that of the host")
	}
	s, ok := sliceOf[T](t.src.mem[t.off:][:t.size:t.size])
	if !ok {
		return nil, t.noView(fmt.Sprintf("its address is not aligned for %v", reflect.TypeFor[T]()))
	}
	return s, nil
}

func (t Tensor) noView(reason string) error {
	return fmt.Errorf("safetensors: viewing %v %s: %s: %w", t.DType, formatShape(t.Shape), reason, errors.ErrUnsupported)
}

// Append appends the elements of t to dst, in row-major order, and returns the
// extended slice. It copies, gathers and converts as needed, with several
// goroutines where there is much to do. On an error dst is returned as it was.
//
// T is as for View; for the float dtypes it may also be float32 or float64 if
// that represents all values of the dtype exactly: float32 does for all but F64,
// float64 for all. Whatever rounds must be asked for with Convert.
func Append[T Element](dst []T, t Tensor) ([]T, error) {
	t, err := seenAs[T](t)
	if err != nil {
		return dst, err
	}
	s, err := t.stream()
	if err != nil {
		return dst, err
	}
	if err := s.acquire(); err != nil {
		return dst, err
	}
	defer s.done()
	if s.size > math.MaxInt-int64(len(bytesOf(dst))) { // on a 32-bit system
		return dst, fmt.Errorf("safetensors: %d bytes do not fit a slice", s.size)
	}
	out := extend(dst, int(s.size)/sizeOf[T]())
	mem := bytesOf(out[len(dst):])
	if err := s.readAll(mem); err != nil {
		return dst, err
	}
	if unit := hostUnit[T](); unit > 1 {
		reverseUnits(mem, unit)
	}
	return out, nil
}

// seenAs returns t with its elements converted to T, if they are not that yet.
func seenAs[T Element](t Tensor) (Tensor, error) {
	err := checkElement[T](t.DType)
	if err == nil {
		return t, nil
	}
	d := map[reflect.Kind]DType{reflect.Float32: F32, reflect.Float64: F64}[reflect.TypeFor[T]().Kind()]
	if !d.valid() || !exact(t.DType, d) {
		return t, err
	}
	return t.Convert(d)
}

// Len returns the number of elements: the product of Shape, 1 for a scalar, and
// 0 if Shape is not one that a tensor can have. On a 32-bit system it is at most
// math.MaxInt.
func (t Tensor) Len() int {
	n, _ := countElements(t.Shape)
	return int(min(n, math.MaxInt))
}

// Size returns the bytes of the elements, as WriteTo writes them and as they are
// in a file; 0 if DType or Shape is not one that a tensor can have.
func (t Tensor) Size() int64 {
	size, _ := checkShape(t.DType, t.Shape)
	return size
}

// Convert returns t with its elements converted to dtype d when they are read.
// Nothing is copied and no error of the data is found before. Values that d does
// not have are rounded to nearest, ties to even; those beyond its range become
// infinities, or NaNs where it has none, as PyTorch does.
//
// Both dtypes must be floats. d can be F64, F32, F16, BF16 and the F8 ones but
// F8_E8M0; anything else fails with an error that is errors.ErrUnsupported.
func (t Tensor) Convert(d DType) (Tensor, error) {
	if err := t.check(); err != nil {
		return Tensor{}, err
	}
	if !convertible(t.DType, d) {
		return Tensor{}, fmt.Errorf("safetensors: converting %v to %v: %w", t.DType, d, errors.ErrUnsupported)
	}
	if d == t.DType {
		return t, nil
	}
	if _, broken := checkShape(d, t.Shape); broken != "" {
		return Tensor{}, fmt.Errorf("safetensors: converting %v to %v: %s", t.DType, d, broken)
	}
	if t.steps == nil {
		t.steps = []DType{t.DType}
	}
	t.steps = append(slices.Clip(t.steps), d)
	t.DType = d
	return t, nil
}

// WriteTo writes the elements to w as a file holds them: row-major,
// little-endian, sub-byte ones packed. It returns the bytes written.
//
// It uses constant extra memory. A *os.File or a hash.Hash is given the data
// itself, without a copy in between.
func (t Tensor) WriteTo(w io.Writer) (int64, error) {
	s, err := t.stream()
	if err != nil {
		return 0, err
	}
	if err := s.acquire(); err != nil {
		return 0, err
	}
	defer s.done()
	return s.writeTo(w)
}

// stored returns the dtype of the elements in the source.
func (t Tensor) stored() DType {
	if t.steps != nil {
		return t.steps[0]
	}
	return t.DType
}

// check checks that DType and Shape, which anybody can assign, fit the data.
func (t Tensor) check() error {
	_, broken := checkShape(t.DType, t.Shape)
	size := int64(0)
	if broken == "" {
		size, broken = checkShape(t.stored(), t.Shape)
	}
	switch {
	case broken != "":
	case size != t.size:
		broken = fmt.Sprintf("%v %s needs %d bytes, the tensor has %d", t.stored(), formatShape(t.Shape), size, t.size)
	case t.steps != nil && t.DType != t.steps[len(t.steps)-1]:
		broken = fmt.Sprintf("dtype %v was assigned to a tensor that was converted to %v", t.DType, t.steps[len(t.steps)-1])
	case t.strided != nil && !slices.Equal(t.Shape, t.strided.shape):
		broken = fmt.Sprintf("shape %s was assigned to a tensor of shape %s that is not contiguous", formatShape(t.Shape), formatShape(t.strided.shape))
	case t.strided != nil && t.stored().Bits() != t.strided.bits:
		broken = fmt.Sprintf("dtype %v was assigned to a tensor of %d bits an element that is not contiguous", t.DType, t.strided.bits)
	}
	if broken != "" {
		return &FormatError{Offset: -1, Reason: broken}
	}
	return nil
}

// checkElement checks that elements of the dtype can be seen as T.
func checkElement[T Element](d DType) error {
	kind := reflect.TypeFor[T]().Kind()
	if !d.valid() || kind == reflect.Uint8 || kind == dtypes[d].kind || kind == dtypes[d].raw {
		return nil
	}
	types := "byte"
	if k := dtypes[d].raw; k > reflect.Uint8 {
		types = k.String() + " or byte"
	}
	if k := dtypes[d].kind; k != dtypes[d].raw {
		types = k.String() + ", " + types
	}
	return fmt.Errorf("safetensors: elements of %v are %s, not %v", d, types, reflect.TypeFor[T]())
}
