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

// closer returns a computed tensor that comes first in a file and whose func closes f.
func closer(t *testing.T, f *File, size int) Tensor {
	return must(NewTensorFunc(F64, []int{size / 8}, func([]float64) error { return f.Close() }))
}

// TestClosedWhileLent closes a file, before its tensors are lent to a writer: that is an
// error, and no other bytes are written in their place.
func TestClosedWhileLent(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"x": counting(t, U32, 1<<18)})
	for _, way := range []string{"Load", "Parse"} {
		f := openedBy[way](name)
		x := must(f.Tensor("x"))
		var file bytes.Buffer
		err := Write(&file, map[string]Tensor{"closer": closer(t, f, 1<<20), "x": x}, nil)
		require.ErrorIs(t, err, fs.ErrClosed, way)
		require.ErrorContains(t, err, `tensor "x"`, way)
		require.Less(t, file.Len(), 2<<20, way)
	}
}

// TestClosedWhileReadTogether closes a file of small tensors that are read in one call
// of ReadRanges.
func TestClosedWhileReadTogether(t *testing.T) {
	const blocks = 64 << 20 // so that small tensors are not read before
	data := saved(checkpointOf(t, 8), nil)
	f := must(NewFile(rangesOf(data), int64(len(data))))
	tensors := map[string]Tensor{"closer": closer(t, f, blocks)}
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
	data := saved(map[string]Tensor{"x": counting(t, U32, 100)}, nil)
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
			got := must(g.Tensor(name))
			require.Equal(t, appended[uint32](t, want), appended[uint32](t, got), "%v %s", parts, name)
		}
	}
}
