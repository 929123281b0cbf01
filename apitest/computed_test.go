package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/stretchr/testify/require"
)

// counted returns a computed tensor of the elements of x and the number of calls
// of its func.
func counted(t testing.TB, x Tensor) (Tensor, *atomic.Int64) {
	calls := new(atomic.Int64)
	y, err := NewTensorFunc(x.DType(), x.Shape(), func() (Tensor, error) {
		calls.Add(1)
		return x, nil
	})
	require.NoError(t, err)
	return y, calls
}

func TestComputedOncePerOperation(t *testing.T) {
	x := counting(t, F32, 3000, 1000) // two blocks
	y, calls := counted(t, x)
	column, err := y.Slice(All(), Span(1, 3))
	require.NoError(t, err)
	half, err := y.Convert(BF16)
	require.NoError(t, err)
	joined, err := Concat(1, y, x)
	require.NoError(t, err)
	require.Zero(t, calls.Load(), "nothing was read")
	for name, z := range map[string]Tensor{"whole": y, "column": column, "converted": half, "joined": joined} {
		for operation, read := range map[string]func() error{
			"Append":    func() error { _, err := Append[byte](nil, z); return err },
			"WriteTo":   func() error { _, err := z.WriteTo(io.Discard); return err },
			"ReadAt":    func() error { _, err := z.ReadAt(make([]byte, 10), 3); return err },
			"Write":     func() error { return Write(io.Discard, map[string]Tensor{"z": z}, nil) },
			"WriteFile": func() error { return WriteFile(filepath.Join(t.TempDir(), "z"), map[string]Tensor{"z": z}, nil) },
		} {
			calls.Store(0)
			require.NoError(t, read(), "%s %s", operation, name)
			require.EqualValues(t, 1, calls.Load(), "%s %s", operation, name)
		}
	}
	calls.Store(0)
	require.NoError(t, Write(io.Discard, map[string]Tensor{"a": y, "b": y}, nil))
	require.EqualValues(t, 1, calls.Load(), "two names of one tensor")
}

// TestComputedParts writes the parts of a computed tensor as tensors of their own, as
// a fused projection is split, in another order, and joined again: its func is
// called once for each file.
func TestComputedParts(t *testing.T) {
	x := counting(t, F32, 6, 4)
	y, calls := counted(t, x)
	tensors := map[string]Tensor{}
	var parts []Tensor
	for i, name := range []string{"q", "k", "v"} {
		part, err := y.Part(0, i, 3)
		require.NoError(t, err)
		tensors[name] = part
		parts = append(parts, part)
	}
	var err error
	tensors["turned"], err = Concat(0, parts[2], parts[0], parts[1])
	require.NoError(t, err)
	tensors["rounded"], err = y.Convert(BF16)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, Write(&file, tensors, nil))
	require.EqualValues(t, 1, calls.Load())
	f, err := Parse(file.Bytes())
	require.NoError(t, err)
	for name, want := range tensors {
		got, err := f.Tensor(name)
		require.NoError(t, err)
		require.Equal(t, appended[byte](t, want), appended[byte](t, got), name)
	}
	calls.Store(0)
	require.NoError(t, WriteFile(filepath.Join(t.TempDir(), "x"), tensors, nil))
	require.EqualValues(t, 1, calls.Load())
}

func TestComputedNotAtAll(t *testing.T) {
	y, calls := counted(t, counting(t, F32, 4, 0))
	whole, err := Append[float32](nil, y)
	require.NoError(t, err)
	require.Empty(t, whole)
	require.NoError(t, Write(io.Discard, map[string]Tensor{"y": y}, nil))
	z, zCalls := counted(t, counting(t, F32, 4, 2))
	none, err := z.Slice(Span(1, 1))
	require.NoError(t, err)
	_, err = none.WriteTo(io.Discard)
	require.NoError(t, err)
	require.Error(t, Write(io.Discard, map[string]Tensor{"z": z, "__metadata__": z}, nil), "refused before anything is read")
	_, err = View[float32](z)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Zero(t, calls.Load()+zCalls.Load())
}

// TestComputedResults has results that are slices, conversions, joined or computed
// themselves, and reads them whole and in parts.
func TestComputedResults(t *testing.T) {
	x := counting(t, F32, 6, 8)
	column, err := counting(t, F32, 6, 20).Slice(All(), Span(3, 11))
	require.NoError(t, err)
	wide, err := x.Convert(F64)
	require.NoError(t, err)
	back, err := wide.Convert(F32)
	require.NoError(t, err)
	left, err := x.Part(1, 0, 2)
	require.NoError(t, err)
	joined, err := Concat(1, left, left)
	require.NoError(t, err)
	nested, _ := counted(t, column)
	for name, result := range map[string]Tensor{"contiguous": x, "sliced": column, "converted": back, "joined": joined, "computed": nested} {
		y, _ := counted(t, result)
		require.Equal(t, bytesOfTensor(t, result), bytesOfTensor(t, y), name)
		for _, f := range []func(Tensor) (Tensor, error){
			func(x Tensor) (Tensor, error) { return x.Slice(Span(1, 5), All().By(3)) },
			func(x Tensor) (Tensor, error) { return x.Slice(At(2)) },
			func(x Tensor) (Tensor, error) { return x.Convert(BF16) },
		} {
			want, err := f(result)
			require.NoError(t, err)
			got, err := f(y)
			require.NoError(t, err)
			require.Equal(t, want.Shape(), got.Shape(), name)
			require.Equal(t, bytesOfTensor(t, want), bytesOfTensor(t, got), name)
		}
		shaped, err := y.Reshape(48)
		require.NoError(t, err)
		cast, err := shaped.Bitcast(U8)
		require.NoError(t, err)
		require.Equal(t, []int{192}, cast.Shape())
		require.Equal(t, bytesOfTensor(t, result), bytesOfTensor(t, cast), name)
	}
}

func TestComputedFaults(t *testing.T) {
	x := counting(t, F32, 4)
	failure := errors.New("failure")
	file, err := Open(writeTemp(t, map[string]Tensor{"x": x}))
	require.NoError(t, err)
	stored, err := file.Tensor("x")
	require.NoError(t, err)
	for _, c := range []struct {
		rule string
		f    func() (Tensor, error)
		is   error
		want string
	}{
		{"its error", func() (Tensor, error) { return x, failure }, failure, "failure"},
		{"its dtype", func() (Tensor, error) { return x.Convert(BF16) }, nil, "returned BF16 [4] instead of F32 [4]"},
		{"its shape", func() (Tensor, error) { return x.Reshape(2, 2) }, nil, "returned F32 [2,2] instead of F32 [4]"},
		{"the zero Tensor", func() (Tensor, error) { return Tensor{}, nil }, nil, "the zero Tensor has no dtype"},
		{"a panic", func() (Tensor, error) { panic("boom") }, nil, "the func of a computed tensor panicked: boom"},
		{"runtime.Goexit", func() (Tensor, error) { runtime.Goexit(); return x, nil }, nil, "called runtime.Goexit"},
		{"a reader that fails", func() (Tensor, error) {
			return NewTensorAt(F32, []int{4}, bytes.NewReader(nil))
		}, io.ErrUnexpectedEOF, "reading 16 bytes"},
		{"it closes the file that it reads", func() (Tensor, error) { return stored, file.Close() }, fs.ErrClosed, "file already closed"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			y, err := NewTensorFunc(F32, []int{4}, c.f)
			require.NoError(t, err)
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
	_, err = NewTensorFunc(F32, []int{4}, nil)
	require.ErrorContains(t, err, "is nil")
	_, err = NewTensorFunc(F4, []int{3}, func() (Tensor, error) { return x, nil })
	require.ErrorContains(t, err, "12 bits")
}

// requireGoroutines waits until no more than n goroutines are left.
func requireGoroutines(t testing.TB, n int) {
	t.Helper()
	for range 200 {
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
	big := counting(t, F32, 1<<20)
	name := writeTemp(t, map[string]Tensor{"a": big, "b": big, "c": big, "d": big, "e": big})
	for _, way := range []string{"Open", "NewFile"} {
		f := openedBy[way](t, name)
		tensors := map[string]Tensor{}
		for name, x := range f.Tensors() {
			y, err := NewTensorFunc(F32, x.Shape(), func() (Tensor, error) {
				if name == "c" {
					return x, f.Close()
				}
				return x, nil
			})
			require.NoError(t, err)
			tensors[name], tensors["plain "+name] = y, x
		}
		dir := t.TempDir()
		require.ErrorIs(t, WriteFile(filepath.Join(dir, "x"), tensors, nil), fs.ErrClosed)
		requireEmptyDir(t, dir)
		f = openedBy[way](t, name)
		x, err := f.Tensor("a")
		require.NoError(t, err)
		last, err := NewTensorFunc(F32, x.Shape(), func() (Tensor, error) { return big, f.Close() })
		require.NoError(t, err)
		// Its shard is another one than that of the tensor of f.
		err = WriteShards(dir, map[string]Tensor{"a": x, "z": last}, nil, x.Size())
		if err != nil {
			require.ErrorIs(t, err, fs.ErrClosed)
		}
	}
}

// TestComputedResultsAreDropped counts the results that are alive while others are
// computed: they are freed as they are written.
func TestComputedResultsAreDropped(t *testing.T) {
	n, size := 60, 1<<20
	if testing.Short() {
		n = 30
	}
	var alive, most atomic.Int64
	tensors := map[string]Tensor{}
	for i := range n {
		x, err := NewTensorFunc(U8, []int{size}, func() (Tensor, error) {
			runtime.GC()
			runtime.Gosched() // finalizers run
			data := make([]byte, size)
			for k := range data {
				data[k] = byte(i)
			}
			for now := alive.Add(1); now > most.Load(); now = alive.Load() {
				most.Store(now)
			}
			runtime.SetFinalizer(&data[0], func(*byte) { alive.Add(-1) })
			return NewTensor(U8, []int{size}, data)
		})
		require.NoError(t, err)
		tensors[fmt.Sprintf("%02d", i)] = x
	}
	for name, write := range map[string]func() error{
		"Write":       func() error { return Write(io.Discard, tensors, nil) },
		"WriteFile":   func() error { return WriteFile(filepath.Join(t.TempDir(), "x"), tensors, nil) },
		"WriteShards": func() error { return WriteShards(t.TempDir(), tensors, nil, 1<<40) },
	} {
		most.Store(0)
		require.NoError(t, write())
		// The window, and results whose finalizers have not run yet.
		require.Less(t, most.Load(), int64(parallel.CopyWorkers()+1+10), name)
	}
}

// BenchmarkWriteFileFrom writes the same bytes from slices, from readers, from
// funcs and from pieces.
func BenchmarkWriteFileFrom(b *testing.B) {
	const n, size = 8, 16 << 20
	parts := map[string]map[string]Tensor{"slices": {}, "NewTensorAt": {}, "NewTensorFunc": {}, "Concat": {}}
	for i := range n {
		data := make([]byte, size)
		for k := range data {
			data[k] = byte(i + k*k)
		}
		name := fmt.Sprint(i)
		x, err := NewTensor(F32, []int{1024, size / 4096}, data)
		require.NoError(b, err)
		parts["slices"][name] = x
		at, err := NewTensorAt(F32, x.Shape(), bytes.NewReader(data))
		require.NoError(b, err)
		parts["NewTensorAt"][name] = at
		computed, err := NewTensorFunc(F32, x.Shape(), func() (Tensor, error) { return x, nil })
		require.NoError(b, err)
		parts["NewTensorFunc"][name] = computed
		top, err := NewTensor(F32, []int{256, size / 4096}, data[:size/4])
		require.NoError(b, err)
		rest, err := NewTensor(F32, []int{768, size / 4096}, data[size/4:])
		require.NoError(b, err)
		parts["Concat"][name], err = Concat(0, top, rest)
		require.NoError(b, err)
	}
	dir := b.TempDir()
	for _, kind := range []string{"slices", "NewTensorAt", "NewTensorFunc", "Concat"} {
		b.Run(kind, func(b *testing.B) {
			b.SetBytes(n * size)
			for b.Loop() {
				require.NoError(b, WriteFile(filepath.Join(dir, "x"), parts[kind], nil))
			}
		})
	}
	for kind, tensors := range parts {
		name := filepath.Join(dir, kind)
		require.NoError(b, WriteFile(name, tensors, nil))
		want, err := os.ReadFile(filepath.Join(dir, "x"))
		require.NoError(b, err)
		got, err := os.ReadFile(name)
		require.NoError(b, err)
		require.True(b, bytes.Equal(want, got), kind)
	}
}
