package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/stretchr/testify/require"
)

// counted returns a computed tensor of the elements of x and the number of calls
// of its func.
func counted(x Tensor) (Tensor, *atomic.Int64) {
	calls := new(atomic.Int64)
	y := must(NewTensorFunc(x.DType(), x.Shape(), func(dst []byte) error {
		calls.Add(1)
		return fillFrom(dst, x)
	}))
	return y, calls
}

// fillFrom fills dst with the elements of x.
func fillFrom[T Element](dst []T, x Tensor) error {
	filled, err := Append(dst[:0], x)
	if err == nil && len(dst) != len(filled) {
		err = fmt.Errorf("dst has %d elements for %d", len(dst), len(filled))
	}
	return err
}

func TestComputedNotAtAll(t *testing.T) {
	y, calls := counted(counting(F32, 4, 0))
	require.Empty(t, must(Append[float32](nil, y)))
	tensors := map[string]Tensor{"y": y}
	for i := range 20 { // so that there is time to compute y ahead
		tensors[fmt.Sprint(i)], _ = counted(counting(U32, 1<<16))
	}
	require.NoError(t, Write(io.Discard, tensors, nil))
	z, zCalls := counted(counting(F32, 4, 2))
	must(must(z.Slice(Span(1, 1))).WriteTo(io.Discard))
	require.Error(t, Write(io.Discard, map[string]Tensor{"z": z, "__metadata__": z}, nil), "refused before anything is read")
	require.ErrorIs(t, errorOf(View[float32](z)), errors.ErrUnsupported)
	require.Zero(t, calls.Load()+zCalls.Load())
}

// testElements computes a tensor of a dtype from elements of type T, and compares it
// with NewTensor of them.
func testElements[T Element](t *testing.T, dtype DType, n int) {
	t.Run(fmt.Sprintf("%v from %v", dtype, reflect.TypeFor[T]()), func(t *testing.T) {
		elements := make([]T, n)
		for i := range elements {
			elements[i] = T(reflect.ValueOf(i*i + 1).Convert(reflect.TypeFor[T]()).Interface().(T))
		}
		want := must(NewTensor(dtype, []int{6, 8}, elements))
		got := must(NewTensorFunc(dtype, []int{6, 8}, func(dst []T) error {
			require.Len(t, dst, n)
			require.Equal(t, n, cap(dst))
			copy(dst, elements)
			return nil
		}))
		require.Equal(t, want.String(), got.String())
		require.Equal(t, bytesOfTensor(t, want), bytesOfTensor(t, got))
		column := []Range{Span(1, 5), Span(0, 8)}
		require.Equal(t, appended[byte](must(want.Slice(column...))), appended[byte](must(got.Slice(column...))))
	})
}

type bits16 uint16

func TestComputedElements(t *testing.T) {
	testElements[float32](t, F32, 48)
	testElements[uint32](t, F32, 48)
	testElements[byte](t, F32, 4*48)
	testElements[byte](t, F4, 48/2)
	testElements[byte](t, F6_E2M3, 48/8*6)
	testElements[bits16](t, BF16, 48)
	testElements[int16](t, I16, 48)
	testElements[uint64](t, F64, 48)
	testElements[float32](t, BF16, 48)
	testElements[float32](t, F16, 48)
	testElements[float32](t, F8_E4M3, 48)
	testElements[float64](t, F32, 48)
	testElements[float64](t, F8_E5M2, 48)
}

// TestRoundedElements gives floats for narrower dtypes: they are rounded as Convert
// does.
func TestRoundedElements(t *testing.T) {
	data := []float32{0, 1, -1.00390625, 3.1415927, 1e-8, 65504, 1e30, float32(math.NaN())}
	wide := must(NewTensor(F32, []int{2, 4}, data))
	for _, d := range []DType{F16, BF16, F8_E4M3, F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ} {
		require.Equal(t, must(wide.Convert(d)), must(NewTensor(d, []int{2, 4}, data)), "%v", d)
	}
}

func TestComputedFaults(t *testing.T) {
	x := counting(F32, 4)
	failure := errors.New("failure")
	file := must(Open(writeTemp(t, map[string]Tensor{"x": x})))
	stored := must(file.Tensor("x"))
	for _, c := range []struct {
		rule string
		f    func([]float32) error
		is   error
		want string
	}{
		{"its error", func([]float32) error { return failure }, failure, "failure"},
		{"an error of this package", func([]float32) error { _, err := Append[float32](nil, Tensor{}); return err }, nil, "the zero Tensor has no dtype"},
		{"a panic", func([]float32) error { panic("boom") }, nil, "the func of a computed tensor panicked: boom"},
		{"runtime.Goexit", func([]float32) error { runtime.Goexit(); return nil }, nil, "called runtime.Goexit"},
		{"it closes the file that it reads", func(dst []float32) error {
			require.NoError(t, file.Close())
			return fillFrom(dst, stored)
		}, fs.ErrClosed, "file already closed"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			y := must(NewTensorFunc(F32, []int{4}, c.f))
			before := runtime.NumGoroutine()
			dir := t.TempDir()
			tensors := map[string]Tensor{"a": x, "faulty": y, "z": x}
			for _, write := range []func() error{
				func() error { return Write(io.Discard, tensors, nil) },
				func() error { return WriteFile(filepath.Join(dir, "file"), tensors, nil) },
				func() error { return WriteShards(dir, tensors, nil, 16) },
			} {
				err := write()
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, `tensor "faulty": `)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
			}
			requireEmptyDir(t, dir)
			got, err := Append([]float32{1}, y)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, []float32{1}, got)
			requireGoroutines(t, before)
		})
	}
}

// requireGoroutines waits until no more than n goroutines are left.
func requireGoroutines(t testing.TB, n int) {
	t.Helper()
	if runtime.GOOS == "js" {
		return // its runtime has one more at times
	}
	for range 10_000 {
		if runtime.NumGoroutine() <= n {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), n, "goroutines are left")
}

// TestComputedClosesFiles lets a func close a file that other tensors of the same
// operation need: the operation fails, and nobody waits for anybody.
func TestComputedClosesFiles(t *testing.T) {
	big := counting(F32, 1<<20)
	name := writeTemp(t, map[string]Tensor{"a": big, "b": big, "c": big, "d": big, "e": big})
	for _, way := range []string{"Open", "NewFile"} {
		f := openedBy[way](name)
		tensors := map[string]Tensor{}
		for name, x := range f.Tensors() {
			y := must(NewTensorFunc(F32, x.Shape(), func(dst []float32) error {
				if name == "c" {
					require.NoError(t, f.Close())
				}
				return fillFrom(dst, x)
			}))
			tensors[name], tensors["plain "+name] = y, x
		}
		dir := t.TempDir()
		require.ErrorIs(t, WriteFile(filepath.Join(dir, "x"), tensors, nil), fs.ErrClosed)
		requireEmptyDir(t, dir)
		f = openedBy[way](name)
		x := must(f.Tensor("a"))
		last, err := NewTensorFunc(F32, x.Shape(), func([]float32) error { return f.Close() })
		require.NoError(t, err)
		// Its shard is another one than that of the tensor of f.
		err = WriteShards(dir, map[string]Tensor{"a": x, "z": last}, nil, x.Size())
		if err != nil {
			require.ErrorIs(t, err, fs.ErrClosed)
		}
	}
}

// columnsOf returns columns of tensors of bytes that are read through twice.
func columnsOf(t *testing.T, tensors map[string]Tensor) map[string]Tensor {
	columns := make(map[string]Tensor)
	for name, x := range tensors {
		rows := must(x.Reshape(256, x.Len()/256))
		part := must(must(must(rows.Transpose()).Reshape(64, x.Len()/64)).Slice(All(), Span(10, 1000)))
		columns[name] = must(must(must(part.Transpose()).Reshape(64*99, 10)).Slice(All(), Span(2, 5)))
	}
	return columns
}

// TestComputedMemoryIsReused computes many tensors in the memory of a few.
func TestComputedMemoryIsReused(t *testing.T) {
	const n, size = 60, 1 << 20
	var mu sync.Mutex
	seen := make(map[*byte]bool)
	tensors := map[string]Tensor{}
	for i := range n {
		x := must(NewTensorFunc(U8, []int{size}, func(dst []byte) error {
			mu.Lock()
			defer mu.Unlock()
			seen[&dst[0]] = true
			for k := range dst {
				dst[k] = byte(i)
			}
			return nil
		}))
		tensors[fmt.Sprintf("%02d", i)] = x
	}
	file := filepath.Join(t.TempDir(), "x")
	for name, write := range map[string]func() error{
		"Write":            func() error { return Write(io.Discard, tensors, nil) },
		"WriteFile":        func() error { return WriteFile(file, tensors, nil) },
		"WriteShards":      func() error { return WriteShards(t.TempDir(), tensors, nil, 1<<40) },
		"Write of columns": func() error { return Write(io.Discard, columnsOf(t, tensors), nil) },
	} {
		clear(seen)
		require.NoError(t, write())
		// Those ahead, and one for each piece that is read.
		require.LessOrEqual(t, len(seen), parallel.CopyWorkers()+16, name)
	}
	f := must(Load(file))
	for i := range n {
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, size), appended[byte](must(f.Tensor(fmt.Sprintf("%02d", i)))))
	}
}

// closing returns a computed tensor that comes first in a file and whose func closes f.
func closing(f *File, dtype DType, size int) Tensor {
	return must(NewTensorFunc(dtype, []int{size * 8 / dtype.Bits()}, func([]byte) error { return f.Close() }))
}

// TestClosedWhileLent closes a file before its tensors are lent to a writer, or read: that
// is an error, nobody waits for anybody, and no other bytes are written in their place.
func TestClosedWhileLent(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"x": counting(U32, 1<<18)})
	for way, open := range openedBy {
		for operation, do := range map[string]func(f *File, x Tensor, file io.Writer) error{
			"Write": func(f *File, x Tensor, file io.Writer) error {
				return Write(file, map[string]Tensor{"closing": closing(f, F64, 1<<20), "x": x}, nil)
			},
			"joined": func(f *File, x Tensor, file io.Writer) error {
				return errorOf(must(Concat(0, closing(f, U32, 1<<20), x)).WriteTo(file))
			},
		} {
			if operation == "Write" && way != "Load" && way != "Parse" {
				continue // it may have been read ahead
			}
			f := open(name)
			x := must(f.Tensor("x"))
			var file bytes.Buffer
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				err = do(f, x, &file)
			}()
			requireSoon(t, done)
			require.ErrorIs(t, err, fs.ErrClosed, "%s %s", way, operation)
			require.ErrorContains(t, err, `tensor "x"`, "%s %s", way, operation)
			require.Less(t, file.Len(), 2<<20)
		}
	}
}

// TestClosedWhileReadTogether closes a file of small tensors that are read in one call
// of ReadRanges.
func TestClosedWhileReadTogether(t *testing.T) {
	const blocks = 64 << 20 // so that small tensors are not read before
	data := saved(checkpointOf(8), nil)
	f := must(NewFile(rangesOf(data), int64(len(data))))
	tensors := map[string]Tensor{"closing": closing(f, F64, blocks)}
	for name, x := range f.Tensors() {
		tensors[name] = x
	}
	err := Write(io.Discard, tensors, nil)
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorContains(t, err, `tensor "t0`)
	dir := t.TempDir()
	require.ErrorIs(t, WriteFile(filepath.Join(dir, "x"), tensors, nil), fs.ErrClosed, "another save finds it closed")
	requireEmptyDir(t, dir)
}

// TestRangesOfOverlappingTensors writes small tensors that share some of their bytes in
// a file: a RangeReader is never asked for ranges that overlap, wherever they do.
func TestRangesOfOverlappingTensors(t *testing.T) {
	data := saved(map[string]Tensor{"x": counting(U32, 100)}, nil)
	for _, parts := range [][][2]int{
		{{0, 10}, {10, 20}, {20, 30}}, // adjacent ones do not
		{{0, 10}, {20, 40}, {30, 50}},
		{{0, 20}, {10, 30}, {40, 50}},
		{{0, 10}, {20, 40}, {20, 40}},
		{{50, 60}, {40, 51}, {0, 10}},
	} {
		r := rangesOf(data)
		x := must(must(NewFile(r, int64(len(data)))).Tensor("x"))
		tensors := map[string]Tensor{}
		for i, p := range parts {
			tensors[fmt.Sprint(i)] = must(x.Slice(Span(p[0], p[1])))
		}
		written := saved(tensors, nil)
		g := must(Parse(written))
		for name, want := range tensors {
			require.Equal(t, appended[uint32](want), appended[uint32](must(g.Tensor(name))), "%v %s", parts, name)
		}
	}
}
