package safetensors

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/stretchr/testify/require"
)

// watched returns a folder that calls the func index after it has read an index, and the func file
// before it opens a file.
func watched(in folder, index, file func()) folder {
	open := in.openFile
	in.FS = watchedFS{in.FS.(listedFS), index}
	in.openFile = func(name string) (*File, error) {
		file()
		return open(name)
	}
	return in
}

type listedFS interface {
	fs.StatFS
	fs.ReadDirFS
}

type watchedFS struct {
	listedFS
	index func()
}

func (w watchedFS) Open(name string) (fs.File, error) {
	text, err := fs.ReadFile(w.listedFS, name)
	if err != nil {
		return nil, err
	}
	w.index()
	return fstest.MapFS{"index": {Data: text}}.Open("index")
}

// saveGeneration saves a checkpoint to a directory, in this many shards. All its elements are n.
func saveGeneration(t *testing.T, dir string, n uint32, shards int) {
	tensors := make(map[string]Tensor)
	for i := range shards {
		tensors[fmt.Sprint(i)] = must(NewTensor(U32, []int{1}, []uint32{n}))
	}
	require.NoError(t, WriteShards(dir, tensors, nil, 4))
}

// TestReplacedWhileOpened: a checkpoint that is replaced after its index or its directory was read
// opens as the new one.
func TestReplacedWhileOpened(t *testing.T) {
	nothing := func() {}
	for _, first := range []int{1, 3} {
		for _, second := range []int{1, 2, 3} {
			for name, in := range map[string]func(dir string) (folder, string){
				"Open":   func(dir string) (folder, string) { return mapped, dir },
				"Load":   func(dir string) (folder, string) { return loaded, dir },
				"OpenFS": func(dir string) (folder, string) { return folderOf(must(osfile.TreeOf(os.DirFS(dir), "."))), "." },
			} {
				for _, when := range []string{"index", "file"} {
					t.Run(fmt.Sprintf("%s, %d by %d, %s", name, first, second, when), func(t *testing.T) {
						dir := t.TempDir()
						saveGeneration(t, dir, 1, first)
						replace := sync.OnceFunc(func() { saveGeneration(t, dir, 2, second) })
						inner, path := in(dir)
						w := watched(inner, nothing, replace)
						if when == "index" && first > 1 {
							w = watched(inner, replace, nothing)
						}
						f := must(openCheckpoint(w, path))
						defer f.Close()
						require.Equal(t, second, f.Len())
						require.Equal(t, []uint32{2}, must(Elements[uint32](f, "0")))
					})
				}
			}
		}
	}
}

// TestReplacedForEver: if a checkpoint is replaced during each try to open it, Open gives up after
// ten tries.
func TestReplacedForEver(t *testing.T) {
	dir := t.TempDir()
	saveGeneration(t, dir, 0, 2)
	n := uint32(0)
	replace := func() {
		n++
		saveGeneration(t, dir, n, 2)
	}
	_, err := openCheckpoint(watched(mapped, replace, func() {}), dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualValues(t, 10, n)
}

// TestMissingShard: if a shard is missing and the index has not changed, Open reads the index
// again, but opens no file again.
func TestMissingShard(t *testing.T) {
	dir := t.TempDir()
	saveGeneration(t, dir, 0, 3)
	require.NoError(t, os.Remove(filepath.Join(dir, "model-00002-of-00003.safetensors")))
	var indexes, files atomic.Int64
	in := watched(loaded, func() { indexes.Add(1) }, func() { files.Add(1) })
	_, err := openCheckpoint(in, dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, `shard "model-00002-of-00003.safetensors"`)
	require.EqualValues(t, 2, indexes.Load())
	require.EqualValues(t, 3, files.Load())
}
