package safetensors

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// View returns the elements of t without copying them, as a slice without spare capacity. T is the
// Go type of the dtype, the unsigned integer with its size, or byte: View[float32] for F32,
// View[uint16] for F16 and BF16, View[byte] for any dtype. Unlike for NewTensor, T cannot be a wider float.
//
// If t comes from Open, the slice is a part of the mapped file. Writing to it, using it
// after Close, and reading it after a truncation of the file crash the program. Do not pass
// a part of it, such as s[:0], to Append as memory to reuse: that would write to it.
//
// The error wraps [errors.ErrUnsupported] if the data is not in memory, if the elements are not
// contiguous, are computed or converted, if their address is not aligned for T, and on a
// big-endian host if T has more than one byte. Append reads such tensors. Load aligns tensors that
// the writer of the file did not align, unless dtypes of different sizes mix.
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
		return nil, fmt.Errorf("viewing %v: %w", t, err)
	}
	src, ok := t.origin.(*source)
	if !ok {
		src = new(source) // a source that has no memory, and is never closed
	}
	if err := src.checkOpen(); err != nil {
		return nil, src.locate(t.off, err)
	}
	data, unit := src.memory()
	switch {
	case t.strides != nil:
		return nil, t.noView("its elements are not contiguous")
	case t.dtypes != nil:
		return nil, t.noView("its elements are converted as they are read")
	case data == nil && t.Size() > 0:
		return nil, t.noView(t.origin.notInMemory())
	case t.size == 0:
		return []T{}, nil
	case unit != mem.SwappedUnit[T]():
		return nil, t.noView("its byte order is not that of the host")
	}
	s, ok := mem.SliceOf[T](data[t.off:][:t.size:t.size])
	if !ok {
		return nil, t.noView(fmt.Sprintf("its address is not aligned for %v", reflect.TypeFor[T]()))
	}
	return s, nil
}

// noView returns the error for a View that would need a copy, such as the one that Append makes.
func (t Tensor) noView(reason string) error {
	return fmt.Errorf("viewing %v: %s (Append copies and converts): %w", t, reason, errors.ErrUnsupported)
}

// Append appends the elements of t to dst, in row-major order, with several goroutines if that
// pays. On an error it returns dst as it was. Append(buf[:0], t) reuses memory, and so saves the
// page faults of new memory, which may take longer than the copy. buf must not be a slice that View
// returned for a tensor of Open: writing to a mapped file crashes the program.
//
// T is as for View. It may also be float32 for I8, U8, I16, U16 and all floats except F64, and
// float64 for all of these and for I32, U32 and F64: both represent all values exactly. To round, use
// Convert first.
func Append[T Element](dst []T, t Tensor) ([]T, error) {
	out, err := appendTo(dst, t)
	return out, prefixed(err)
}

func appendTo[T Element](dst []T, t Tensor) ([]T, error) {
	if err := checkElement[T](t.dtype); err != nil {
		seen, err := seenAs[T](t, err)
		if err != nil {
			return dst, fmt.Errorf("appending %v: %w", t, err)
		}
		t = seen
	}
	if src := t.adjacent(); src != nil && t.size <= smallAppend {
		return appendSmall(dst, t, src)
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

// smallAppend is the largest size in bytes for which appendSmall pays: one page.
const smallAppend = 4 << 10

// adjacent returns the source of t if an operation can read the bytes of t there without a stream:
// they are adjacent, in the order of t, and neither converted nor watched. Otherwise it returns nil.
func (t Tensor) adjacent() *source {
	src, ok := t.origin.(*source)
	if !ok || t.strides != nil || t.dtypes != nil || t.watch != nil {
		return nil
	}
	return src
}

// appendSmall does what appendTo does, for the few adjacent bytes of t in src, without the stream
// and the goroutines of larger copies.
func appendSmall[T Element](dst []T, t Tensor, src *source) ([]T, error) {
	if err := src.acquire(); err != nil {
		return dst, src.locate(t.off, err)
	}
	defer src.done()
	out := mem.Extend(dst, int(t.size)/mem.SizeOf[T]())
	b := mem.BytesOf(out[len(dst):])
	if len(b) > 0 {
		if err := src.read(b, t.off, nil); err != nil {
			return dst, src.locate(t.off, err)
		}
	}
	mem.Swap[T](b)
	return out, nil
}

// WriteTo writes the elements to w as a file holds them: row-major and little-endian, with those
// below a byte packed. Errors of w are returned unchanged. Extra memory is constant, apart from
// the memory that Transpose and NewTensorFunc need.
func (t Tensor) WriteTo(w io.Writer) (int64, error) {
	s, err := t.open()
	if err != nil {
		return 0, prefixed(err)
	}
	defer s.release()
	return writeStream(w, s, t.Size())
}

// ReadAt implements [io.ReaderAt] for the bytes that WriteTo writes. Each call computes a computed
// tensor again, and so does each Read of an [io.SectionReader] over t.
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

// exactFloats returns the Go float types, other than that of d itself, that represent every element
// of dtype d.
func exactFloats(d DType) (types []string) {
	for _, wide := range []DType{F32, F64} {
		if wide != d && float.Exact(d.float(), wide.float()) {
			types = append(types, dtypes[wide].kind.String())
		}
	}
	return types
}

// seenAs converts t, whose elements do not have type T, to the dtype of T if that is exact.
// Otherwise it returns an error. If Convert can convert t, the error wraps err and recommends that.
func seenAs[T Element](t Tensor, err error) (Tensor, error) {
	d := floatOf[T]()
	switch {
	case float.Exact(t.dtype.float(), d.float()):
		return t.convert(d)
	case float.Convertible(t.dtype.float(), d.float()):
		return t, fmt.Errorf("%w; %v does not represent all of them: Convert to %v first, which rounds", err, d, d)
	}
	return t, elementError[T](t.dtype, exactFloats(t.dtype))
}
