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
	off     int64    // of the data in the source, in bytes
	size    int64    // of the elements as they are stored, in bytes
	strided *strided // selects elements, counted from off; nil if they are contiguous
	dtypes  []DType  // the dtype as stored, then each dtype to convert to; nil if there is no conversion
	concat  *concat  // the pieces of a joined tensor, in place of all from src on
	watch   *watch   // is told what is read; nil if nobody watches
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
	b := mem.BytesOf(data)
	if int64(len(b)) != t.size {
		what := t.String()
		if t.dtypes != nil {
			what += " rounded from " + t.stored().String()
		}
		return Tensor{}, prefixed(fmt.Errorf("%s needs %d bytes, the data has %d", what, t.size, len(b)))
	}
	t.src = &source{mem: b, unit: mem.SwappedUnit[T]()}
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

// View returns the elements of t without a copy and without spare capacity. T is as for
// NewTensor: View[float32] of F32, View[uint16] of F16 and BF16, View[byte] of any
// dtype.
//
// If t comes from Open, the slice is a part of the mapped file. Writing to it, using it
// after Close, and reading it after a truncation of the file crash the program.
//
// For data not in memory, for elements not contiguous, computed or converted, for an
// address not aligned for T, and on a big-endian host, the error wraps
// [errors.ErrUnsupported]: use Append. Load aligns what the writer of the file has not,
// unless dtypes of different sizes mix.
func View[T Element](t Tensor) ([]T, error) {
	s, err := view[T](t)
	return s, prefixed(err)
}

func view[T Element](t Tensor) ([]T, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := checkElement[T](t.dtype); err != nil {
		if float.Exact(t.dtype.float(), floatOf[T]().float()) {
			return nil, t.noView(err.Error())
		}
		return nil, err
	}
	if t.src != nil {
		if err := t.src.open(); err != nil {
			return nil, t.src.failed(t.off, err)
		}
	}
	switch {
	case t.concat != nil:
		return nil, t.noView("it is joined from several tensors")
	case t.strided != nil:
		return nil, t.noView("its elements are not contiguous")
	case t.dtypes != nil:
		return nil, t.noView("its elements are converted as they are read")
	case t.size == 0:
		return []T{}, nil
	case t.src.mem == nil:
		return nil, t.noView(t.src.where())
	case t.src.unit != mem.SwappedUnit[T]():
		return nil, t.noView("its byte order is not that of the host")
	}
	s, ok := mem.SliceOf[T](t.src.mem[t.off:][:t.size:t.size])
	if !ok {
		return nil, t.noView(fmt.Sprintf("its address is not aligned for %v", reflect.TypeFor[T]()))
	}
	return s, nil
}

// where says where data is that is not in memory.
func (s *source) where() string {
	switch {
	case s.computed != nil:
		return "its elements are computed"
	case s.tensor != nil:
		return "its elements were not contiguous before Reshape"
	}
	return "its data is not in memory"
}

// noView returns the error of a view that would need the copy that Append makes.
func (t Tensor) noView(reason string) error {
	return fmt.Errorf("viewing %v: %s (Append copies and converts): %w", t, reason, errors.ErrUnsupported)
}

// Append appends the elements of t to dst, in row-major order, with several goroutines
// where that pays. On an error it returns dst as it was. Append(buf[:0], t) reuses
// memory, and spares its page faults: a quarter of the time (BenchmarkModel).
//
// T is as for View. It may also be float32, for I8, U8, I16, U16 and all floats but
// F64, or float64, for these, I32, U32 and F64. Rounding takes a Convert.
func Append[T Element](dst []T, t Tensor) ([]T, error) {
	out, err := appendTo(dst, t)
	return out, prefixed(err)
}

func appendTo[T Element](dst []T, t Tensor) ([]T, error) {
	if err := checkElement[T](t.dtype); err != nil {
		if t, err = seenAs[T](t, err); err != nil {
			return dst, err
		}
	}
	s, err := t.open()
	if err != nil {
		return dst, err
	}
	defer s.release()
	size := s.size()
	if have := int64(cap(dst)) * int64(mem.SizeOf[T]()); size > have-int64(len(mem.BytesOf(dst))) {
		if err := mem.CheckSize(size); err != nil {
			return dst, err
		}
		if size > math.MaxInt-have { // on a 32-bit system
			return dst, fmt.Errorf("%d bytes exceed the address space", size)
		}
	}
	out := mem.Extend(dst, int(size)/mem.SizeOf[T]())
	b := mem.BytesOf(out[len(dst):])
	if err := readAll(s, b, cap(dst) < len(out)); err != nil {
		return dst, err
	}
	if unit := mem.SwappedUnit[T](); unit > 1 {
		mem.Swap(b, unit)
	}
	return out, nil
}

// Elements returns the elements of a tensor by name, as Append(nil, t) does. A shape
// other than that given, if any, is an error; -1 stands for any size of a dimension. To
// require a scalar, check Tensor.Shape. An FP8 model needs its scales: package quant.
func Elements[T Element](f *File, name string, shape ...int) ([]T, error) {
	t, err := f.Tensor(name)
	if err != nil {
		return nil, err
	}
	if len(shape) > 0 && !shapeMatches(t.shape, shape) {
		return nil, prefixed(tensorError(name, fmt.Errorf("its shape is %s, not %s", formatShape(t.shape), formatShape(shape))))
	}
	data, err := appendTo[T](nil, t)
	return data, prefixed(tensorError(name, err))
}

// shapeMatches reports whether a shape is the wanted one, in which -1 is any size.
func shapeMatches(shape, want []int) bool {
	return slices.EqualFunc(shape, want, func(n, w int) bool { return n == w || w == -1 })
}

// WriteTo writes the elements to w as a file holds them: row-major, little-endian,
// sub-byte ones packed. Errors of w are returned as they are. Extra memory is constant,
// apart from what Transpose and NewTensorFunc hold.
func (t Tensor) WriteTo(w io.Writer) (int64, error) {
	s, err := t.open()
	if err != nil {
		return 0, prefixed(err)
	}
	defer s.release()
	return writeStream(w, s)
}

// ReadAt implements [io.ReaderAt] for the bytes that WriteTo writes. Each call computes a
// computed tensor: with an [io.SectionReader], for every window.
func (t Tensor) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, prefixed(fmt.Errorf("reading %v at negative offset %d", t, off))
	}
	n := max(0, min(int64(len(p)), t.Size()-off))
	t, at := t.around(off, n)
	s, err := t.open()
	if err != nil {
		return 0, prefixed(err)
	}
	defer s.release()
	if err := s.readAt(p[:n], at); err != nil {
		return 0, prefixed(err)
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
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

// seenAs returns t, whose elements are not of type T, with its elements converted to T
// where Append does that, else the error.
func seenAs[T Element](t Tensor, err error) (Tensor, error) {
	d := floatOf[T]()
	switch {
	case float.Exact(t.dtype.float(), d.float()):
		return t.convert(d)
	case float.Convertible(t.dtype.float(), d.float()):
		err = fmt.Errorf("%w; %v does not represent all of them: Convert to %v first, which rounds", err, d, d)
	}
	return t, err
}
