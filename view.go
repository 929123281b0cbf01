package safetensors

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// A Tensor is a multi-dimensional array of one dtype, in a file or in memory. It
// is a small immutable value that refers to its data and can be copied freely.
// All its methods, View and Append may be called concurrently.
//
// A tensor of a File can be read until the File is closed. The zero Tensor is
// invalid: it has no dtype, and reading it is an error.
type Tensor struct {
	dtype   DType
	shape   []int // dimensions, outermost first; empty for a scalar
	src     *source
	off     int64    // of the data in the source, in bytes
	size    int64    // of the elements as they are stored, in bytes
	strided *strided // selects elements, counted from off; nil if they are contiguous
	dtypes  []DType  // the dtype as stored, then each dtype to convert to; nil if there is no conversion

	computed *computed // makes the elements of a computed tensor, in place of src
	concat   *concat   // the pieces of a joined tensor, in place of src to dtypes
}

// Element is the constraint of the Go types that elements are seen as. There is
// no bool: a file may hold any byte, a Go bool may not.
type Element interface {
	~int8 | ~int16 | ~int32 | ~int64 |
		~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64
}

// NewTensor returns a tensor of the elements in data, in row-major order. The
// tensor aliases data: later writes are visible through it and must not race
// with reads. It copies shape.
//
// T is the Go type of the dtype, or the unsigned integer of its size for raw
// bits, or a byte type for raw little-endian bytes, the only choice for F4 and
// F6. []float32 and []float64 may also be given for a narrower float dtype: the
// elements are rounded when they are read, as Convert does. The shape must have as
// many elements as data holds; a nil shape is a scalar.
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
			return Tensor{}, err
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

// NewTensorAt returns a tensor of elements that r holds as a file does, row-major
// and little-endian, from offset 0 on. It reads them when it is read, with up to
// 16 concurrent ReadAt calls; if r is a RangeReader, slices are read through that.
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

// DType returns the type of the elements: what Convert and Bitcast made of it. It
// is 0 for the zero Tensor.
func (t Tensor) DType() DType { return t.dtype }

// Shape returns the dimensions, outermost first; it is empty for a scalar. The
// slice is shared and must not be modified.
func (t Tensor) Shape() []int { return t.shape }

// Len returns the number of elements: the product of the dimensions, 1 for a
// scalar. On a 32-bit system it is at most math.MaxInt.
func (t Tensor) Len() int {
	n, _ := countElements(t.shape)
	return int(min(n, math.MaxInt))
}

// Size returns the size of the elements in bytes, as WriteTo writes them and as
// they are in a file. It is 0 for the zero Tensor.
func (t Tensor) Size() int64 {
	size, _ := byteSize(t.dtype, t.shape)
	return size
}

// String returns the dtype and the shape, such as "BF16 [4096,4096]".
func (t Tensor) String() string { return t.dtype.String() + " " + formatShape(t.shape) }

// View returns the elements of t without copying them. The slice refers to the
// data of t and has no spare capacity.
//
// T is as for NewTensor: View[float32] of F32, View[uint16] (or a type such as
// float16.Float16 of github.com/x448/float16) of F16 and BF16, View[byte] of any
// dtype.
//
// If t comes from Open, the slice is a part of the mapped file: do not write to
// it and do not use it after Close; both crash the program, and so does reading
// it after somebody has truncated the file. If t comes from Load, Parse or
// NewTensor, the slice is ordinary memory.
//
// If a copy would be needed, View returns an error wrapping
// errors.ErrUnsupported; use Append. That is so when the data is not in memory
// (NewFile), when the elements are not contiguous (Slice, Transpose, Concat), are computed
// (NewTensorFunc) or to be converted (Convert, or to a T that only Append converts
// to), when their address is not aligned for T, and on a big-endian host.
//
// In a mapped file, alignment is up to the writer. This package and the Python
// package pad the header, so that every tensor is aligned. PyTorch's consolidation
// of distributed checkpoints and older versions of MLX do not: Load aligns such a
// file in memory, unless it mixes dtypes of different sizes.
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
	case t.computed != nil:
		return nil, t.noView("its elements are computed")
	case t.strided != nil:
		return nil, t.noView("its elements are not contiguous")
	case t.dtypes != nil:
		return nil, t.noView("its elements are converted as they are read")
	case t.size == 0:
		return []T{}, nil
	case t.src.mem == nil:
		return nil, t.noView("its data is not in memory")
	case t.src.unit != mem.SwappedUnit[T]():
		return nil, t.noView("its byte order is not that of the host")
	}
	s, ok := mem.SliceOf[T](t.src.mem[t.off:][:t.size:t.size])
	if !ok {
		return nil, t.noView(fmt.Sprintf("its address is not aligned for %v", reflect.TypeFor[T]()))
	}
	return s, nil
}

// noView returns the error of a view that would need the copy that Append makes.
func (t Tensor) noView(reason string) error {
	return fmt.Errorf("viewing %v: %s (Append copies and converts): %w", t, reason, errors.ErrUnsupported)
}

// Append appends the elements of t to dst, in row-major order, and returns the
// extended slice. It copies, gathers and converts as needed, with several
// goroutines where there is much to do. On an error it returns dst as it was.
//
// Where dst has the room, nothing is allocated: a program that reads tensor after
// tensor passes the same memory again, Append(buf[:0], t). That took a quarter of the
// time of new slices, most of which are page faults (BenchmarkModel). For a slice to
// keep, pass nil: Append makes one without clearing it first, as make([]T, 0, t.Len())
// would.
//
// T is as for View. It may also be float32 or float64 where that represents every
// value of the dtype: float32 those of I8, U8, I16, U16 and all floats but F64,
// float64 also those of I32, U32 and F64. Rounding takes a Convert.
func Append[T Element](dst []T, t Tensor) ([]T, error) {
	out, err := appendTo(dst, t)
	return out, prefixed(err)
}

func appendTo[T Element](dst []T, t Tensor) ([]T, error) {
	t, err := seenAs[T](t)
	if err != nil {
		return dst, err
	}
	s, err := t.open()
	if err != nil {
		return dst, err
	}
	defer s.release()
	if have := int64(cap(dst)) * int64(mem.SizeOf[T]()); s.size() > have-int64(len(mem.BytesOf(dst))) {
		if err := mem.CheckSize(s.size()); err != nil {
			return dst, err
		}
		if s.size() > math.MaxInt-have { // on a 32-bit system
			return dst, fmt.Errorf("%d bytes exceed the address space", s.size())
		}
	}
	out := mem.Extend(dst, int(s.size())/mem.SizeOf[T]())
	b := mem.BytesOf(out[len(dst):])
	if err := readAll(s, b, cap(dst) < len(out)); err != nil {
		return dst, err
	}
	if unit := mem.SwappedUnit[T](); unit > 1 {
		mem.Swap(b, unit)
	}
	return out, nil
}

// Read returns the elements of the tensor of a File that has that name, as Append does
// in new memory. It checks the shape if one is given: -1 stands for any size of a
// dimension. To check for a scalar, compare Tensor.Shape.
//
// A tensor of another shape is an error, whose text has both.
func Read[T Element](f *File, name string, shape ...int) ([]T, error) {
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

// WriteTo writes the elements to w as a file holds them: row-major,
// little-endian, sub-byte ones packed. It returns the number of bytes written.
// Errors of w are returned as they are.
//
// It uses constant extra memory, but for what Transpose holds. Tensors in memory are
// written without a copy in between, those of a mapped file to a *os.File.
func (t Tensor) WriteTo(w io.Writer) (int64, error) {
	s, err := t.open()
	if err != nil {
		return 0, prefixed(err)
	}
	defer s.release()
	return writeStream(w, s)
}

// ReadAt implements io.ReaderAt over the bytes that WriteTo writes: it fills p
// with those from byte off on. A computed tensor is computed in each call.
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
	types := "byte"
	if k := dtypes[d].raw; k > reflect.Uint8 {
		types = k.String() + " or byte"
	}
	if k := dtypes[d].kind; k != dtypes[d].raw {
		types = k.String() + ", " + types
	}
	return fmt.Errorf("elements of %v are %s, not %v", d, types, reflect.TypeFor[T]())
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

// seenAs returns t with its elements converted to T where Append does that.
func seenAs[T Element](t Tensor) (Tensor, error) {
	err := checkElement[T](t.dtype)
	if err == nil {
		return t, nil
	}
	d := floatOf[T]()
	switch {
	case float.Exact(t.dtype.float(), d.float()):
		return t.convert(d)
	case float.Convertible(t.dtype.float(), d.float()):
		err = fmt.Errorf("%w; %v does not represent all of them: Convert to %v first, which rounds", err, d, d)
	}
	return t, err
}
