package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// writings are the ways to write tensors, which open what was written; all but Write write into dir.
func writings(dir string) map[string]func(tensors map[string]Tensor) (*File, error) {
	name := filepath.Join(dir, "x")
	loaded := func(name string, err error) (*File, error) {
		if err != nil {
			return nil, err
		}
		return Load(name)
	}
	return map[string]func(map[string]Tensor) (*File, error){
		"Write": func(tensors map[string]Tensor) (*File, error) {
			var file bytes.Buffer
			if err := Write(&file, tensors, nil); err != nil {
				return nil, err
			}
			return Parse(file.Bytes())
		},
		"WriteFile":   func(tensors map[string]Tensor) (*File, error) { return loaded(name, WriteFile(name, tensors, nil)) },
		"WriteShards": func(tensors map[string]Tensor) (*File, error) { return loaded(dir, WriteShards(dir, tensors, nil, 1)) },
		"Create":      func(tensors map[string]Tensor) (*File, error) { return loaded(name, createFile(name, tensors, 0)) },
	}
}

// createFile writes tensors with Create, in pieces unless they are 0.
func createFile(name string, tensors map[string]Tensor, piece int) error {
	return writeBy(func(h *Header) (*Writer, error) { return Create(name, h) }, must(FileOf(tensors, nil, nil)), piece)
}

// writeBy writes the tensors of a File by a Writer, in pieces unless they are 0.
func writeBy(open func(*Header) (*Writer, error), f *File, piece int) error {
	w, err := open(f.Header())
	if err != nil {
		return err
	}
	defer w.Close() // after a panic, too
	for name, x := range f.Tensors() {
		to, err := w.Tensor(name)
		if err == nil && piece == 0 {
			_, err = x.WriteTo(to)
		} else if err == nil {
			in := io.NewSectionReader(x, 0, x.Size())
			_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{in}, make([]byte, piece))
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// readings are the ways to read a tensor wholly; those that write a file write it into dir.
func readings(dir string) map[string]func(x Tensor) ([]byte, error) {
	all := map[string]func(x Tensor) ([]byte, error){
		"Append": func(x Tensor) ([]byte, error) { return Append[byte](nil, x) },
		"ReadAt": func(x Tensor) ([]byte, error) {
			b := make([]byte, x.Size())
			_, err := x.ReadAt(b, 0)
			return b, err
		},
		"WriteTo": func(x Tensor) ([]byte, error) {
			var out bytes.Buffer
			n, err := x.WriteTo(&out)
			if int(n) != out.Len() {
				return nil, fmt.Errorf("WriteTo says %d of %d bytes: %v", n, out.Len(), err)
			}
			return out.Bytes(), err
		},
		"WriteTo file": func(x Tensor) ([]byte, error) {
			f, err := os.Create(filepath.Join(dir, "f"))
			if err != nil {
				return nil, err
			}
			defer os.Remove(f.Name())
			defer f.Close() // first
			if _, err = x.WriteTo(f); err != nil {
				return nil, err
			}
			return os.ReadFile(f.Name())
		},
	}
	for way, write := range writings(dir) {
		all[way] = func(x Tensor) ([]byte, error) {
			f, err := write(map[string]Tensor{"x": x})
			if err != nil {
				return nil, err
			}
			if y := must(f.Tensor("x")); y.DType() == x.DType() && slices.Equal(y.Shape(), x.Shape()) {
				return Append[byte](nil, y)
			}
			return nil, fmt.Errorf("%v is written as %v", x, must(f.Tensor("x")))
		}
	}
	return all
}

// requireElements compares the elements as every Go type, viewed and appended, with those
// of a tensor in memory.
func (x twin) requireElements(t testing.TB) {
	t.Helper()
	y := x.plain(t)
	requireSame[int8](t, x, y)
	requireSame[int16](t, x, y)
	requireSame[int32](t, x, y)
	requireSame[int64](t, x, y)
	requireSame[uint8](t, x, y)
	requireSame[uint16](t, x, y)
	requireSame[uint32](t, x, y)
	requireSame[uint64](t, x, y)
	requireSame[float32](t, x, y)
	requireSame[float64](t, x, y)
	requireSame[complex64](t, x, y)
}

func requireSame[T Element](t testing.TB, x twin, y Tensor) {
	t.Helper()
	want, wantErr := Append([]T{7}, y)
	got, err := Append([]T{7}, x.Tensor)
	view, viewErr := View[T](x.Tensor)
	if wantErr != nil {
		require.EqualError(t, err, wantErr.Error(), x.steps)
		require.Len(t, got, 1)
		require.Error(t, viewErr)
		require.NotErrorIs(t, viewErr, errors.ErrUnsupported, x.steps)
		return
	}
	require.NoError(t, err, x.steps)
	requireBits(t, want, got, x.steps)
	if viewErr != nil {
		require.ErrorIs(t, viewErr, errors.ErrUnsupported, x.steps)
		return
	}
	require.Equal(t, len(view), cap(view))
	requireBits(t, want[1:], view, x.steps)
}

// requireBits compares elements, and NaN with NaN.
func requireBits[T Element](t testing.TB, want, got []T, steps []string) {
	t.Helper()
	if fmt.Sprintf("%x", want) != fmt.Sprintf("%x", got) {
		require.Equal(t, want, got, steps)
	}
}

// requireWindows reads windows of bytes that start and end anywhere: each of a small
// tensor, some of a large one, one that ends beyond it, and one after it.
func (x twin) requireWindows(e *expression, want []byte) {
	e.Helper()
	read := func(off, n int) {
		p := bytes.Repeat([]byte{0xee}, n+1)
		got, err := x.ReadAt(p[:n], int64(off))
		all := want[min(off, len(want)):min(off+n, len(want))]
		ok := got == len(all) && bytes.Equal(all, p[:got]) && p[n] == 0xee
		if !ok || err != nil && err != io.EOF || (err == io.EOF) != (got < n) {
			require.FailNow(e, "wrong bytes", "%v: %d bytes at %d: %x, %v", x.steps, n, off, p, err)
		}
	}
	if len(want) > 40 {
		for range 20 {
			off := e.choose(len(want))
			read(off, e.choose(len(want)-off+1))
		}
	} else {
		for off := range len(want) {
			for n := range len(want) - off {
				read(off, n+1)
			}
		}
	}
	read(max(0, len(want)-3), 5)
	read(len(want)+1, 1)
	read(0, 0)
}

// ways returns some of the readings: those in memory, and one that writes a file.
func (e *expression) ways(dir string) map[string]func(Tensor) ([]byte, error) {
	ways := readings(dir)
	files := []string{"WriteTo file", "WriteFile", "WriteShards", "Create"}
	one := e.choose(len(files))
	for i, way := range files {
		if i != one {
			delete(ways, way)
		}
	}
	return ways
}

// requireWays reads a tensor in every way. Each calls the func of a computed tensor once at
// most, and tells who watches of each byte once.
func (x twin) requireWays(e *expression, want []byte) {
	e.Helper()
	var told atomic.Int64
	watching := watched(x.Tensor, func(n int) error {
		told.Add(int64(n))
		return nil
	})
	for way, read := range e.ways(e.TempDir()) {
		for _, calls := range e.calls {
			calls.Store(0)
		}
		told.Store(0)
		got, err := read(watching)
		require.NoError(e, err, "%s of %v", way, x.steps)
		require.True(e, bytes.Equal(want, got), "%s of %v: %x, not %x", way, x.steps, got, want)
		require.EqualValues(e, len(want), told.Load(), "%s of %v", way, x.steps)
		for _, calls := range e.calls {
			require.LessOrEqual(e, calls.Load(), int64(min(1, len(want))), "%s of %v", way, x.steps)
		}
	}
	if len(want) > 0 {
		kept, _ := Tie(map[string]Tensor{"x": x.Tensor, "y": watching}, nil)
		require.Len(e, kept, 1, x.steps)
	}
}

// requireFailures fails each reader after any number of the bytes that are read of it, after
// each if they are few, and closes each file: every way of reading fails with that error, and
// leaves no file.
func (x twin) requireFailures(e *expression) {
	e.Helper()
	dir := filepath.Join(e.TempDir(), "empty")
	require.NoError(e, os.Mkdir(dir, 0o777))
	fails := func(want error, prepare func()) {
		for way, read := range e.ways(dir) {
			prepare()
			require.ErrorIs(e, errorOf(read(x.Tensor)), want, "%s of %v", way, x.steps)
		}
		prepare()
		got, err := Append([]byte{1}, x.Tensor)
		require.ErrorIs(e, err, want)
		require.Equal(e, []byte{1}, got)
		requireEmptyDir(e, dir)
	}
	for _, r := range e.readers {
		r.left = math.MaxInt64
		appended[byte](x.Tensor)
		all := int(math.MaxInt64 - r.left)
		first, end := 0, all
		if all > 30 {
			first = e.choose(all)
			end = first + 1
		}
		for left := first; left < end; left++ {
			r.once = !r.once
			fails(errReader, func() { r.left = int64(left) })
		}
		r.left = math.MaxInt64
	}
	if e.leaves == 1 && len(x.codes) > 0 && len(e.opened) > 0 {
		_, before := View[byte](x.Tensor)
		require.NoError(e, e.opened[0].Close())
		fails(fs.ErrClosed, func() {})
		_, err := View[byte](x.Tensor)
		require.True(e, errors.Is(err, fs.ErrClosed) || before != nil && err.Error() == before.Error(), "%v: %v", x.steps, err)
	}
}
