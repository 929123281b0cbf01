package dcp

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestManyFiles: a job of many ranks has more files than a process may have open.
func TestManyFiles(t *testing.T) {
	const n = 300
	offset, length := entry()
	data := must(os.ReadFile("testdata/distcp/one/__0_0.distcp"))
	folder := fstest.MapFS{}
	var chunks, places []string
	for i := range n {
		name := fmt.Sprint("f", i)
		folder[name] = &fstest.MapFile{Data: data}
		chunks = append(chunks, boxOf([]int{3 * i}, []int{3}))
		places = append(places, index("w", 3*i), info(name, offset, length))
	}
	folder[metadataFile] = &fstest.MapFile{Data: []byte(metadata(dict(str("w"), tensorOf("float32", []int{3 * n}, chunks...)), dict(places...)))}
	fsys := &counted{FS: folder}
	c := must(openSkipping(fsys, "."))
	read := func() ([]float32, error) { return safetensors.Elements[float32](c.File, "w", 3*n) }
	got := must(read())
	require.Equal(t, slices.Repeat(got[:3], n), got)
	require.Less(t, fsys.most.Load(), int64(n/2))
	require.LessOrEqual(t, fsys.open.Load(), int64(maxIdle))

	for i := range n { // some are still open
		folder[fmt.Sprint("f", i)] = &fstest.MapFile{Data: append(data, 0)}
	}
	require.ErrorContains(t, errorOf(read()), "has changed since it was first opened")
	require.NoError(t, c.Close())
	require.Zero(t, fsys.open.Load())
	require.ErrorIs(t, errorOf(read()), fs.ErrClosed)
}

// TestPanickingFS: a panic in a callback is the caller's, and a file that was opened is
// closed.
func TestPanickingFS(t *testing.T) {
	var b bytes.Buffer
	x := must(safetensors.NewTensor(safetensors.U8, []int{1}, []byte{1}))
	require.NoError(t, Write(&b, map[string]Piece{"x": must(NewPiece(x))}, nil))
	file := &fstest.MapFile{Data: b.Bytes()}
	fsys := &counted{FS: fstest.MapFS{"a.safetensors": file, "b.safetensors": file}, panics: "b.safetensors"}
	require.PanicsWithValue(t, "no such luck", func() { OpenFS(fsys, ".") })
	require.Zero(t, fsys.open.Load())
}
