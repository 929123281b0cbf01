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
	if t.concat != nil {
		return nil, t.noView("it is joined from several tensors")
	}
	if err := t.src.open(); err != nil {
		return nil, t.src.failed(t.off, err)
	}
	data, unit := t.src.memory()
	switch {
	case t.strides != nil:
		return nil, t.noView("its elements are not contiguous")
	case t.dtypes != nil:
		return nil, t.noView("its elements are converted as they are read")
	case t.size == 0:
		return []T{}, nil
	case data == nil:
		return nil, t.noView(t.src.where())
	case unit != mem.SwappedUnit[T]():
		return nil, t.noView("its byte order is not that of the host")
	}
	s, ok := mem.SliceOf[T](data[t.off:][:t.size:t.size])
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
	size := t.Size()
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
	mem.Swap[T](b)
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
	if len(shape) > 0 && !slices.EqualFunc(t.shape, shape, func(n, want int) bool { return n == want || want == -1 }) {
		return nil, prefixed(tensorError(name, fmt.Errorf("its shape is %s, not %s", formatShape(t.shape), formatShape(shape))))
	}
	data, err := appendTo[T](nil, t)
	return data, prefixed(tensorError(name, err))
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
	return writeStream(w, s, t.Size())
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

// around returns a part of t with its n bytes from off on, and where they start in
// it. One window of a transposed tensor is read without the rest of it.
func (t Tensor) around(off, n int64) (part Tensor, at int64) {
	if n == 0 || t.strides == nil && t.concat == nil && t.src.tensor == nil {
		return t, off
	}
	at = off
	size := t.Size() // of one index of a dimension
	ranges := make([]Range, 0, len(t.shape))
	for _, dim := range t.shape {
		if size%int64(dim) != 0 { // elements of less than a byte
			break
		}
		size /= int64(dim)
		first, last := at/size, (at+n-1)/size
		at -= first * size
		if first < last {
			ranges = append(ranges, Span(int(first), int(last)+1))
			break
		}
		ranges = append(ranges, At(int(first)))
	}
	part, err := t.slice(ranges)
	if err != nil { // stored elements of less than a byte, which are converted
		return t, off
	}
	return part, at
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
