package apitest_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

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
