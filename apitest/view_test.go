package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
	"github.com/x448/float16"
)

// requireElements checks that Append returns the elements of a tensor as T, and
// that View does if they are viewable.
func requireElements[T Element](t *testing.T, tensor Tensor, want []T, viewable bool) {
	t.Helper()
	require.Equal(t, append([]T{7}, want...), must(Append([]T{7}, tensor)))
	view, err := View[T](tensor)
	if !viewable {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, view)
	require.Equal(t, len(view), cap(view))
}

// requireRefused checks that neither Append nor View returns the elements of a
// tensor as T.
func requireRefused[T Element](t *testing.T, tensor Tensor, reason string) {
	t.Helper()
	requireBothRefused[T](t, tensor, reason, reason)
}

// requireBothRefused requires the errors of View and of Append, which also converts to floats.
func requireBothRefused[T Element](t *testing.T, tensor Tensor, viewed, appended string) {
	t.Helper()
	got, err := Append([]T{7}, tensor)
	require.ErrorContains(t, err, appended)
	require.Equal(t, []T{7}, got)
	require.ErrorContains(t, errorOf(View[T](tensor)), viewed)
}

// TestElementTypes checks the Go types of the elements of each kind of dtype.
func TestElementTypes(t *testing.T) {
	type myFloat float32
	of := func(dtype DType, shape []int, data ...byte) Tensor { return must(NewTensor(dtype, shape, data)) }
	tensors := map[string]Tensor{
		"f": of(F32, []int{2}, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0), "h": of(F16, []int{2}, 0, 0x3c, 0, 0xc0), "b": of(BF16, nil, 0x80, 0x3f),
		"o": of(BOOL, []int{2}, 1, 0xff), "c": of(C64, []int{1}, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40), "4": of(F4, []int{4}, 0x21, 0xf8),
		"i": of(I8, []int{1}, 0xff), "8": of(F8_E4M3, []int{1}, 0x38),
	}
	f := must(Read(bytes.NewReader(saved(tensors, nil))))
	get := func(name string) Tensor { return must(f.Tensor(name)) }
	le := littleEndian()
	requireElements(t, get("f"), []float32{1, -2}, le)
	requireElements(t, get("f"), []myFloat{1, -2}, le)
	requireElements(t, get("f"), []uint32{0x3f800000, 0xc0000000}, le)
	requireElements(t, get("f"), []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}, true)
	requireElements(t, get("h"), []uint16{0x3c00, 0xc000}, le)
	requireElements(t, get("h"), []float16.Float16{float16.Fromfloat32(1), float16.Fromfloat32(-2)}, le)
	requireElements(t, get("b"), []uint16{0x3f80}, le)
	requireElements(t, get("o"), []uint8{1, 0xff}, true)
	requireElements(t, get("c"), []complex64{1 + 2i}, le)
	requireElements(t, get("c"), []uint64{0x40000000_3f800000}, le)
	requireElements(t, get("4"), []byte{0x21, 0xf8}, true)
	requireElements(t, get("i"), []int8{-1}, true)
	requireElements(t, get("i"), []uint8{255}, true)
	requireElements(t, get("8"), []uint8{0x38}, true)

	requireBothRefused[int32](t, get("f"), "viewing F32 [2]: elements of F32 are float32, uint32 or byte, not int32", "appending F32 [2]: elements of F32 are float32, uint32, byte or float64, not int32")
	requireBothRefused[int32](t, get("b"), "elements of BF16 are uint16 or byte, not int32", "elements of BF16 are uint16, byte, float32 or float64, not int32")
	requireRefused[uint64](t, get("f"), "not uint64")
	requireRefused[int8](t, get("o"), "elements of BOOL are byte, not int8")
	requireBothRefused[int16](t, get("i"), "elements of I8 are int8 or byte, not int16", "elements of I8 are int8, byte, float32 or float64, not int16")
	requireBothRefused[uint16](t, get("4"), "elements of F4 are byte, not uint16", "elements of F4 are byte, float32 or float64, not uint16")
	requireRefused[float32](t, get("c"), "elements of C64 are complex64, uint64 or byte, not float32")
	requireElements(t, get("i"), []float32{-1}, false)
	requireElements(t, get("i"), []float64{-1}, false)
	requireRefused[float32](t, get("o"), "elements of BOOL are byte, not float32")
	requireElements(t, get("4"), []float64{0.5, 1, 0, -6}, false)
}

// TestAppendIntegers reads integers as floats where these represent all of them.
func TestAppendIntegers(t *testing.T) {
	for dtype, c := range map[DType]struct {
		data []byte
		want []float64
	}{
		I8:  {[]byte{0x80, 0xff, 0x7f}, []float64{-128, -1, 127}},
		U8:  {[]byte{0, 0x80, 0xff}, []float64{0, 128, 255}},
		I16: {[]byte{0, 0x80, 0xff, 0xff, 0xff, 0x7f}, []float64{-32768, -1, 32767}},
		U16: {[]byte{1, 0, 0, 0x80, 0xff, 0xff}, []float64{1, 32768, 65535}},
		I32: {[]byte{0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, []float64{math.MinInt32, -1, math.MaxInt32}},
		U32: {[]byte{1, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff}, []float64{1, 1 << 31, math.MaxUint32}},
	} {
		x := must(NewTensor(dtype, []int{3}, c.data))
		requireElements(t, x, c.want, false)
		if dtype.Bits() <= 16 {
			requireElements(t, x, []float32{float32(c.want[0]), float32(c.want[1]), float32(c.want[2])}, false)
		} else {
			requireRefused[float32](t, x, "not float32")
		}
		require.ErrorIs(t, errorOf(x.Convert(F32)), errors.ErrUnsupported, "Convert is for floats")
	}
	for _, dtype := range []DType{I64, U64} {
		requireRefused[float64](t, must(NewTensor(dtype, nil, make([]byte, 8))), "not float64")
	}
}

// TestElements reads tensors by name, with and without a check of the shape.
func TestElements(t *testing.T) {
	x := must(NewTensor(BF16, []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}))
	scalar := must(NewTensor(I8, nil, []int8{7}))
	f := must(FileOf(map[string]Tensor{"x": x, "s": scalar}, nil, nil))
	require.Equal(t, "2 tensors, 13 bytes", f.String())
	for _, shape := range [][]int{nil, {2, 3}, {-1, 3}, {2, -1}, {-1, -1}} {
		require.Equal(t, []float32{1, 2, 3, 4, 5, 6}, must(Elements[float32](f, "x", shape...)))
	}
	require.Equal(t, []float64{7}, must(Elements[float64](f, "s")))
	for _, shape := range [][]int{{6}, {3, 2}, {2, 3, 1}, {-1}, {-2, 3}} {
		_, err := Elements[float32](f, "x", shape...)
		require.EqualError(t, err, fmt.Sprintf(`safetensors: tensor "x": its shape is [2,3], not %s`, strings.ReplaceAll(fmt.Sprint(shape), " ", ",")))
	}
	require.EqualError(t, errorOf(Elements[float64](f, "s", 1)), `safetensors: tensor "s": its shape is [], not [1]`)
	require.ErrorIs(t, errorOf(Elements[float32](f, "y")), fs.ErrNotExist)
	require.EqualError(t, errorOf(Elements[int32](f, "x")), `safetensors: tensor "x": appending BF16 [2,3]: elements of BF16 are uint16, byte, float32 or float64, not int32`)
	file := saved(maps.Collect(f.Tensors()), nil)
	closed := must(Parse(file))
	require.NoError(t, closed.Close())
	_, err := Elements[float32](closed, "x")
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorContains(t, err, `tensor "x"`)
}

// TestViewWithoutElements checks that tensors without elements have an empty View, whatever their
// elements come from: there is nothing to copy.
func TestViewWithoutElements(t *testing.T) {
	shape := []int{3, 0}
	memory := must(NewTensor(F32, shape, []float32(nil)))
	empty := []float32{}
	for _, x := range []Tensor{
		memory,
		must(NewTensorAt(F32, shape, bytes.NewReader(nil))),
		must(NewTensorFunc(F32, shape, func([]float32) error { return errors.New("not called") })),
		must(Concat(0, memory, memory)),
		must(must(must(counting(F32, 2, 3).Transpose()).Slice(Span(1, 1))).Reshape(2, 0)),
		must(must(must(must(counting(F32, 2, 3).Transpose()).Reshape(6)).Slice(Span(1, 1))).Reshape(0, 7)),
	} {
		requireElements(t, x, empty, true)
	}
}

// TestUnaligned opens files with floats at odd places, of an offset or of a header that is not
// padded, as some writers leave it: Append works, View does not, but for data that Load aligns.
func TestUnaligned(t *testing.T) {
	for rule, c := range map[string]struct {
		header string
		loaded bool // can be viewed
		data   []byte
	}{
		"offset": {`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}  `, false, []byte{7, 0, 0, 0x80, 0x3f}},
		"header": {`{"f":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   `, true, []byte{0, 0, 0x80, 0x3f}},
	} {
		require.Equal(t, c.loaded, len(c.header)%2 == 1, "the data starts at an odd place")
		name := filepath.Join(t.TempDir(), "unaligned.safetensors")
		require.NoError(t, os.WriteFile(name, append(fileOf(c.header, 0), c.data...), 0o666))
		for way, open := range openedBy {
			t.Run(rule+"/"+way, func(t *testing.T) {
				f := must(open(name))
				x := must(f.Tensor("f"))
				require.Equal(t, []float32{1}, appended[float32](x))
				view, err := View[float32](x)
				switch {
				case c.loaded && (way == "Load" || way == "Read") && littleEndian():
					require.NoError(t, err)
					require.Equal(t, []float32{1}, view)
				case way != "Parse": // of whatever address
					require.ErrorIs(t, err, errors.ErrUnsupported)
				}
				if way == "Load" {
					must(View[byte](x))
				}
				require.NoError(t, f.Close())
			})
		}
	}
}

// TestShapeIsACopy: what a program does to a shape that it gave, or was given, changes
// TestBitcastSlice: only the bytes of a slice count, not where it starts in its tensor.
func TestBitcastSlice(t *testing.T) {
	slice := must(counting(U32, 2, 6).Slice(All(), Span(1, 3)))
	require.Equal(t, []uint64{1 | 2<<32, 7 | 8<<32}, must(Append[uint64](nil, must(slice.Bitcast(U64)))))
}

// neither the tensor nor those that share its shape.
func TestShapeIsACopy(t *testing.T) {
	shape := []int{1, 2, 3, 1, 1}
	x := must(NewTensor(U32, shape, make([]uint32, 6)))
	f := must(FileOf(map[string]Tensor{"x": x}, nil, nil))
	at := must(NewTensorAt(U32, shape, strings.NewReader("")))
	of := must(NewTensorFunc(U32, shape, func([]uint32) error { return nil }))
	reshaped := must(counting(U32, 6).Reshape(shape...))
	clear(shape)
	for i, x := range []Tensor{x, at, of, reshaped, must(Concat(0, x, at)), must(x.Bitcast(I32)), must(x.Transpose()), must(x.Slice(At(0), All(), Span(1, 3)))} {
		want := [][]int{{1, 2, 3, 1, 1}, {1, 2, 3, 1, 1}, {1, 2, 3, 1, 1}, {1, 2, 3, 1, 1}, {2, 2, 3, 1, 1}, {1, 2, 3, 1, 1}, {1, 1, 3, 2, 1}, {2, 2, 1, 1}}[i]
		clear(x.Shape())
		_ = append(x.Shape()[:0], 9, 9)
		require.Equal(t, want, x.Shape(), i)
	}
	clear(f.Header().Tensors[0].Shape)
	require.Equal(t, []int{1, 2, 3, 1, 1}, f.Header().Tensors[0].Shape)
}

// TestAppendAllocates: models have many small tensors.
func TestAppendAllocates(t *testing.T) {
	x := must(NewTensor(F32, []int{256}, make([]float32, 256)))
	buf := make([]float32, 0, 256)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		if _, err := Append(buf, x); err != nil {
			t.Error(err)
		}
	}), 1.0)
}
