package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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
func counted[T Element](x Tensor) (Tensor, *atomic.Int64) {
	calls := new(atomic.Int64)
	y := must(NewTensorFunc(x.DType(), x.Shape(), func(dst []T) error {
		calls.Add(1)
		if cap(dst) != len(dst) {
			return errors.New("dst can grow")
		}
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

// TestComputedNotAtAll: the func of a computed tensor without elements is never called.
func TestComputedNotAtAll(t *testing.T) {
	y, calls := counted[byte](counting(F32, 4, 0))
	require.Empty(t, must(Append[float32](nil, y)))
	tensors := map[string]Tensor{"y": y}
	for i := range 20 { // so that there is time to compute y ahead
		tensors[fmt.Sprint(i)], _ = counted[byte](counting(U32, 1<<16))
	}
	require.NoError(t, Write(io.Discard, tensors, nil))
	z, zCalls := counted[byte](counting(F32, 4, 2))
	must(must(z.Slice(Span(1, 1))).WriteTo(io.Discard))
	require.Error(t, Write(io.Discard, map[string]Tensor{"z": z, "__metadata__": z}, nil), "refused before anything is read")
	require.ErrorIs(t, errorOf(View[float32](z)), errors.ErrUnsupported)
	require.Zero(t, calls.Load()+zCalls.Load())
}

// requireComputed computes a tensor of a dtype from elements of type T, and compares it
// with NewTensor of them, and with want.
func requireComputed[T Element](t *testing.T, dtype DType, data []T, want Tensor) {
	t.Helper()
	computed := must(NewTensorFunc(dtype, []int{2, 4}, func(dst []T) error {
		require.Equal(t, len(data), cap(dst))
		copy(dst, data)
		return nil
	}))
	for _, x := range []Tensor{computed, must(NewTensor(dtype, []int{2, 4}, data))} {
		require.Equal(t, want.String(), x.String())
		require.Equal(t, appended[byte](want), appended[byte](x), "%v from %T", dtype, data)
	}
}

// TestComputedElements gives elements of each kind: floats for narrower dtypes are rounded
// as Convert does.
func TestComputedElements(t *testing.T) {
	type bits16 uint16
	data := []float32{0, 1, -1.00390625, 3.1415927, 1e-8, 65504, 1e30, float32(math.NaN())}
	singles := must(NewTensor(F32, []int{2, 4}, data))
	doubles := must(singles.Convert(F64))
	for _, d := range []DType{F32, F16, BF16, F8_E4M3, F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ} {
		want := must(singles.Convert(d))
		requireComputed(t, d, data, want)
		requireComputed(t, d, appended[float64](doubles), want)
		requireComputed(t, d, appended[byte](want), want)
		if d.Bits() == 16 {
			requireComputed(t, d, appended[bits16](want), want)
		}
	}
	requireComputed(t, F32, appended[uint32](singles), singles)
	requireComputed(t, F64, appended[uint64](doubles), doubles)
	requireComputed(t, I16, make([]int16, 8), must(NewTensor(I16, []int{2, 4}, make([]byte, 16))))
	for _, d := range []DType{F4, F6_E2M3} {
		requireComputed(t, d, make([]byte, d.Bits()), must(NewTensor(d, []int{2, 4}, make([]byte, d.Bits()))))
	}
}

// TestComputedFaults: what a func of a computed tensor does wrong, by an error, a panic or a fault,
// comes out as an error of the operation.
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
			for way, write := range writings(dir) {
				_, err := write(tensors)
				require.ErrorContains(t, err, c.want)
				if way != "Create" { // whose caller has the tensor
					require.ErrorContains(t, err, `tensor "faulty": `)
				}
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

// TestComputedPanicPlace: the error of a panic names the calls in fill that led to it.
func TestComputedPanicPlace(t *testing.T) {
	var deep func(n int)
	deep = func(n int) {
		if n == 0 {
			panic("boom")
		}
		deep(n - 1)
	}
	const call = `\S+TestComputedPanicPlace\.func\d\S* at computed_test\.go:\d+`
	for want, f := range map[string]func([]byte) error{
		`boom \(in ` + call + `\)`: func([]byte) error { panic("boom") },
		`boom \(in ` + call + `, called by ` + call + `, called by ` + call + `\)`: func([]byte) error { deep(9); return nil },
		`index out of range \[9\] with length 1 \(in ` + call + `\)`:               func(dst []byte) error { dst[len(dst)+8] = 1; return nil },
		`strings: \D+ \(in strings\.\S+ at strings\.go:\d+, called by ` + call + `\)`: func([]byte) error {
			_ = strings.Repeat("x", -1)
			return nil
		},
	} {
		_, err := Append[byte](nil, must(NewTensorFunc(U8, []int{1}, f)))
		require.Regexp(t, "^safetensors: the func of a computed tensor panicked: .*"+want+"$", err)
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
	requireFew := func(way string) { // those ahead, and one for each piece that is read
		require.LessOrEqual(t, len(seen), parallel.CopyWorkers()+16, way)
		clear(seen)
	}
	ways := writings(t.TempDir())
	delete(ways, "Create") // whose tensors are read one by one
	for way, write := range ways {
		f := must(write(tensors))
		requireFew(way)
		for i := range n {
			require.Equal(t, bytes.Repeat([]byte{byte(i)}, size), appended[byte](must(f.Tensor(fmt.Sprintf("%02d", i)))), way)
		}
	}
	require.NoError(t, Write(io.Discard, columnsOf(t, tensors), nil))
	requireFew("Write of columns")
}

// TestClosedMeanwhile has the func of a computed tensor close a file before other tensors of
// it are lent to a writer, or read: that is an error, nobody waits for anybody, no other
// bytes are written in their place, and no file is left.
func TestClosedMeanwhile(t *testing.T) {
	tensors := checkpointOf(8)
	tensors["x"] = counting(U32, 1<<18)
	name := writeTemp(t, tensors)
	data := must(os.ReadFile(name))
	ways := maps.Clone(openedBy)
	ways["ranges"] = func(string) (*File, error) { return NewFile(rangesOf(bytes.NewReader(data)), int64(len(data))) }
	// closing comes first in a file if it has dtype F64.
	closing := func(f *File, dtype DType, size int) Tensor {
		return must(NewTensorFunc(dtype, []int{size * 8 / dtype.Bits()}, func([]byte) error { return f.Close() }))
	}
	for operation, c := range map[string]struct {
		ways []string // others may have read ahead
		do   func(f *File, x Tensor, dir string, file io.Writer) error
	}{
		"Write": {[]string{"Load", "Parse"}, func(f *File, x Tensor, _ string, file io.Writer) error {
			return Write(file, map[string]Tensor{"closing": closing(f, F64, 1<<20), "x": x}, nil)
		}},
		"joined": {slices.Collect(maps.Keys(ways)), func(f *File, x Tensor, _ string, file io.Writer) error {
			return errorOf(must(Concat(0, closing(f, U32, 1<<20), x)).WriteTo(file))
		}},
		"computed of it": {[]string{"Open", "NewFile"}, func(f *File, x Tensor, dir string, _ io.Writer) error {
			all := make(map[string]Tensor)
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				all[name+" plain"] = x
				all[name] = must(NewTensorFunc(U32, x.Shape(), func(dst []uint32) error {
					if name == "c" {
						require.NoError(t, f.Close())
					}
					return fillFrom(dst, x)
				}))
			}
			return WriteFile(filepath.Join(dir, "x"), all, nil)
		}},
		"read together": {[]string{"ranges"}, func(f *File, x Tensor, dir string, _ io.Writer) error {
			all := maps.Collect(f.Tensors())
			all["closing"] = closing(f, F64, 64<<20) // so that small tensors are not read before
			require.ErrorIs(t, Write(io.Discard, all, nil), fs.ErrClosed)
			return WriteFile(filepath.Join(dir, "x"), all, nil)
		}},
		"another shard": {[]string{"Open", "NewFile"}, func(f *File, x Tensor, dir string, _ io.Writer) error {
			if err := WriteShards(t.TempDir(), map[string]Tensor{"a": x, "z": closing(f, U32, 1<<20)}, nil, x.Size()); err != nil {
				return err // that of x may be complete, though
			}
			return errorOf(x.WriteTo(io.Discard))
		}},
	} {
		for _, way := range c.ways {
			f, dir := must(ways[way](name)), t.TempDir()
			x := must(f.Tensor("x"))
			var file bytes.Buffer
			var err error
			requireSoon(t, func() { err = c.do(f, x, dir, &file) })
			require.ErrorIs(t, err, fs.ErrClosed, "%s %s", way, operation)
			require.Regexp(t, `tensor "(x|t0.)"`, err.Error(), "%s %s", way, operation)
			require.Less(t, file.Len(), 2<<20)
			requireEmptyDir(t, dir)
		}
	}
}
