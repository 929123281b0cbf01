package apitest_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/fstest"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A closeCounter is an fs.FS that counts the files that are open.
type closeCounter struct {
	fs.FS
	open atomic.Int64 // shards are opened concurrently
}

type countedFile struct {
	fs.File
	c *closeCounter
}

func (c *closeCounter) Open(name string) (fs.File, error) {
	f, err := c.FS.Open(name)
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	if _, ok := f.(io.ReaderAt); ok {
		return struct {
			countedFile
			io.ReaderAt
		}{countedFile{f, c}, f.(io.ReaderAt)}, nil
	}
	return countedFile{f, c}, nil
}

func (c *closeCounter) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(c.FS, name) }

func (f countedFile) Close() error {
	f.c.open.Add(-1)
	return f.File.Close()
}

// zipOf returns the files of a folder as a zip archive, deflated or stored.
func zipOf(t *testing.T, dir string, method uint16) *zip.Reader {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out := must(w.CreateHeader(&zip.FileHeader{Name: name, Method: method}))
			must(out.Write(must(os.ReadFile(filepath.Join(dir, name)))))
		}
		return err
	}))
	require.NoError(t, w.Close())
	return must(zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len())))
}

// TestOpenFS opens a file, an index and a folder in file systems of every kind.
func TestOpenFS(t *testing.T) {
	tensors := checkpointOf(6)
	dir := t.TempDir()
	require.NoError(t, WriteShards(filepath.Join(dir, "sharded"), tensors, nil, 128))
	require.NoError(t, WriteShards(filepath.Join(dir, "whole"), tensors, nil, 1<<30))
	for kind, fsys := range map[string]fs.FS{
		"os.DirFS": os.DirFS(dir), "zip, deflated": zipOf(t, dir, zip.Deflate), "zip, stored": zipOf(t, dir, zip.Store),
	} {
		for _, name := range []string{"whole", "whole/model.safetensors", "sharded", "sharded/model.safetensors.index.json"} {
			counter := &closeCounter{FS: fsys}
			f, err := OpenFS(counter, name)
			require.NoError(t, err, "%s %s", kind, name)
			requireTensors(t, tensors, f)
			x := must(f.Tensor("t00"))
			require.NoError(t, f.Close())
			require.Zero(t, counter.open.Load(), "%s %s: files are left open", kind, name)
			require.ErrorIs(t, errorOf(Append[byte](nil, x)), fs.ErrClosed)
		}
	}
}

func TestOpenFSRefuses(t *testing.T) {
	file := saved(map[string]Tensor{"x": counting(U32, 4)}, nil)
	fsys := fstest.MapFS{
		"a/x.safetensors":                {Data: file},
		"link.safetensors":               {Mode: fs.ModeDevice},
		"b/model.safetensors.index.json": {Data: []byte(`{"weight_map":{"x":"../a/x.safetensors"}}`)},
		"c/model.safetensors.index.json": {Data: []byte(`{"weight_map":{"x":"missing.safetensors"}}`)},
	}
	for _, c := range []struct {
		rule, name string
		is         error
		want       string
	}{
		{"a valid path", "../a", fs.ErrInvalid, "open ../a: "},
		{"no absolute path", "/a/x.safetensors", fs.ErrInvalid, "open /a/x.safetensors: "},
		{"a file that exists", "missing", fs.ErrNotExist, "open missing: "},
		{"a regular file", "link.safetensors", nil, "open link.safetensors: is a device"},
		{"shards next to the index", "b", nil, "is not a local, slash-separated file name"},
		{"shards that exist", "c", fs.ErrNotExist, `open c/model.safetensors.index.json: shard "missing.safetensors": file does not exist`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			counter := &closeCounter{FS: fsys}
			_, err := OpenFS(counter, c.name)
			require.ErrorContains(t, err, "safetensors: ")
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			require.Zero(t, counter.open.Load(), "files are left open")
		})
	}
	require.ErrorContains(t, errorOf(OpenFS(nil, "x")), "the fs.FS is nil")

}

// TestZippedSum has a zip entry of a file, or of an index, whose sum does not match.
func TestZippedSum(t *testing.T) {
	for maxBytes, name := range map[int64]string{0: "model.safetensors", 64: "model.safetensors.index.json"} {
		dir := t.TempDir()
		require.NoError(t, WriteShards(dir, checkpointOf(2), nil, maxBytes))
		for _, method := range []uint16{zip.Store, zip.Deflate} {
			broken := zipOf(t, dir, method)
			require.NoError(t, must(OpenFS(broken, ".")).Close())
			broken.File[slices.IndexFunc(broken.File, func(f *zip.File) bool { return f.Name == name })].CRC32++
			require.ErrorIs(t, errorOf(OpenFS(broken, ".")), zip.ErrChecksum)
		}
	}
}

func TestJoin(t *testing.T) {
	base := writeTemp(t, map[string]Tensor{"a": counting(U32, 4), "b": counting(F32, 2)})
	adapter := filepath.Join(t.TempDir(), "adapter.safetensors")
	require.NoError(t, WriteFile(adapter, map[string]Tensor{"lora": counting(U32, 3)}, map[string]string{"k": "v"}))
	f := must(Open(base))
	g := must(Open(adapter))
	joined := must(Join(g, f))
	names := namesOf(joined)
	require.Equal(t, []string{"lora", "b", "a"}, names, "file by file")
	require.Equal(t, map[string]string{"k": "v"}, joined.Metadata())
	for _, name := range names {
		must(joined.Tensor(name))
	}
	again := must(Join(joined))

	require.EqualError(t, errorOf(Join(f, g, f)), fmt.Sprintf(`safetensors: tensor "b": duplicate tensor name, in %q and %q`, base, base))
	unnamed := must(FileOf(map[string]Tensor{"x": counting(U32), "y": counting(U32), "lora": counting(U32)}, nil, nil))
	require.EqualError(t, errorOf(Join(f, unnamed, joined)), fmt.Sprintf(`safetensors: tensor "lora": duplicate tensor name, in files[1] and %q`, adapter), "that of the part")
	require.ErrorContains(t, errorOf(Join(unnamed, unnamed)), "duplicate tensor name, in files[0] and files[1]")
	require.ErrorContains(t, errorOf(Join(f, nil)), "files[1] to join is nil")
	x := must(again.Tensor("a"))
	require.Equal(t, []uint32{0, 1, 2, 3}, appended[uint32](x), "refused Joins close nothing")
	require.NoError(t, again.Close())
	for _, file := range []*File{f, g, joined} {
		for _, x := range file.Tensors() {
			require.ErrorIs(t, errorOf(Append[byte](nil, x)), fs.ErrClosed)
		}
	}
	none := must(Join())
	require.Empty(t, maps.Collect(none.Tensors()))
	require.Nil(t, none.Metadata())
	require.NoError(t, none.Close())
}
