// Package apitest_test tests the exported API as a program uses it. Tests that
// need the inside of the package are next to it, in the root.
package apitest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// littleEndian reports whether the host can view elements of several bytes.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

// fileOf returns a file of a header and a data buffer of dataSize zero bytes.
func fileOf(header string, dataSize int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, dataSize)...)
}

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// counting returns a tensor of four-byte elements with the bits 0, 1, 2, and so on.
func counting(dtype DType, shape ...int) Tensor {
	data := make([]uint32, elements(shape))
	for i := range data {
		data[i] = uint32(i)
	}
	return must(NewTensor(dtype, shape, data))
}

// bytesHead returns the header of a file with a tensor x of bytes.
func bytesHead(shape ...int) []byte {
	return must((&Header{Tensors: []TensorInfo{{Name: "x", DType: U8, Shape: shape}}}).AppendBinary(nil))
}

// saved returns the file that Write makes of tensors.
func saved(tensors map[string]Tensor, metadata map[string]string) []byte {
	var file bytes.Buffer
	if err := Write(&file, tensors, metadata); err != nil {
		panic(err)
	}
	return file.Bytes()
}

// writeTemp writes tensors to a new file and returns its name.
func writeTemp(t testing.TB, tensors map[string]Tensor) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, WriteFile(name, tensors, nil))
	return name
}

// checkpointOf returns n tensors of 64 bytes each, t00, t01 and so on.
func checkpointOf(n int) map[string]Tensor {
	tensors := make(map[string]Tensor)
	for i := range n {
		tensors[fmt.Sprintf("t%02d", i)] = must(NewTensor(U32, []int{4, 4}, slices.Repeat([]uint32{uint32(i)}, 16)))
	}
	return tensors
}

// openedBy lists the ways to open a file, by the function that opens it.
var openedBy = map[string]func(name string) (*File, error){
	"Open":   Open,
	"Load":   Load,
	"OpenFS": func(name string) (*File, error) { return OpenFS(os.DirFS(filepath.Dir(name)), filepath.Base(name)) },
	"Parse":  func(name string) (*File, error) { return Parse(must(os.ReadFile(name))) },
	"Read": func(name string) (*File, error) {
		file := must(os.Open(name))
		defer file.Close()
		return Read(file)
	},
	"NewFile": func(name string) (*File, error) {
		data := must(os.ReadFile(name))
		return NewFile(bytes.NewReader(data), int64(len(data)))
	},
}

// appended returns the elements of a tensor, as Append does.
func appended[T Element](x Tensor) []T {
	return must(Append[T](nil, x))
}

// requireCheckpoint checks that each way to open a checkpoint finds exactly the wanted
// tensors.
func requireCheckpoint(t testing.TB, name string, want map[string]Tensor) {
	t.Helper()
	for _, way := range []string{"Open", "Load", "OpenFS"} {
		f, err := openedBy[way](name)
		require.NoError(t, err, way)
		requireTensors(t, want, f)
		_, err = f.Tensor("absent\n")
		require.Regexp(t, `^safetensors: no tensor of .+ is named "absent\\n"$`, err.Error())
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NotErrorIs(t, err, fs.ErrClosed)
		require.NoError(t, f.Close())
	}
}

// requireTensors checks that a File has exactly the wanted tensors.
func requireTensors(t testing.TB, want map[string]Tensor, f *File) {
	t.Helper()
	require.Len(t, maps.Collect(f.Tensors()), len(want))
	for name, x := range want {
		got := must(f.Tensor(name))
		require.Equal(t, x.DType(), got.DType(), name)
		require.Equal(t, x.Shape(), got.Shape(), name)
		require.True(t, bytes.Equal(appended[byte](x), appended[byte](got)), name)
	}
}

// namesOf returns the names of tensors in the order of a File.
func namesOf(f *File) (names []string) {
	for name := range f.Tensors() {
		names = append(names, name)
	}
	return names
}

// listDir returns the sorted names in a folder.
func listDir(dir string) []string {
	entries := must(os.ReadDir(dir))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// requireEmptyDir checks that a folder holds nothing, no temporary file either.
func requireEmptyDir(t testing.TB, dir string) {
	t.Helper()
	require.Empty(t, listDir(dir))
}

// A failingReader fails after left bytes, for good or once.
type failingReader struct {
	io.ReaderAt
	mu   sync.Mutex
	left int64
	once bool
}

var errReader = errors.New("the reader fails")

func (r *failingReader) ReadAt(b []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int64(len(b)) > r.left {
		n, _ := r.ReaderAt.ReadAt(b[:r.left], off)
		r.left = 0
		if r.once {
			r.left = math.MaxInt64
		}
		return n, errReader
	}
	r.left -= int64(len(b))
	return r.ReaderAt.ReadAt(b, off)
}

// A readerAtFunc is an io.ReaderAt.
type readerAtFunc func(b []byte, off int64) (int, error)

func (f readerAtFunc) ReadAt(b []byte, off int64) (int, error) { return f(b, off) }

// A writerFunc is an io.Writer.
type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

var errWriter = errors.New("the writer fails")

// failingWriter returns a writer that fails after left bytes.
func failingWriter(left int) writerFunc {
	return func(b []byte) (int, error) {
		n := min(len(b), left)
		left -= n
		if n < len(b) {
			return n, errWriter
		}
		return n, nil
	}
}

// requireStated checks that doc/testing.md states how many things a test leaves none out of.
func requireStated(t testing.TB, what string, n int, things string) {
	t.Helper()
	text := must(os.ReadFile(filepath.Join("..", "doc", "testing.md")))
	row := fmt.Sprintf("\n| %s | %d %s |", strings.ReplaceAll(what, ",", ""), n, things)
	require.True(t, strings.Contains(strings.ReplaceAll(string(text), ",", ""), row), "doc/testing.md has no row %q, its numbers with commas", row)
}
