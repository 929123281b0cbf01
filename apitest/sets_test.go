package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestOpenSet opens a folder with a whole set of shards and no index.
func TestOpenSet(t *testing.T) {
	tensors := checkpointOf(t, 6)
	dir := t.TempDir()
	for name, part := range Split(tensors, 128) {
		require.NoError(t, WriteFile(filepath.Join(dir, name), part, map[string]string{"shard": name}))
	}
	for way, open := range map[string]func() (*File, error){
		"Open":   func() (*File, error) { return Open(dir) },
		"Load":   func() (*File, error) { return Load(dir) },
		"OpenFS": func() (*File, error) { return OpenFS(os.DirFS(dir), ".") },
	} {
		f, err := open()
		require.NoError(t, err, way)
		got := maps.Collect(f.Tensors())
		require.Len(t, got, len(tensors))
		for name, x := range tensors {
			require.Equal(t, appended[byte](t, x), appended[byte](t, got[name]), way)
		}
		require.Equal(t, "model-00001-of-00003.safetensors", f.Metadata()["shard"], "that of the first")
		require.NoError(t, f.Close())
	}
}

func TestOpenSetRefuses(t *testing.T) {
	var a, b bytes.Buffer
	require.NoError(t, Write(&a, map[string]Tensor{"a": counting(t, U32, 1)}, nil))
	require.NoError(t, Write(&b, map[string]Tensor{"b": counting(t, U32, 1)}, nil))
	for _, c := range []struct {
		rule  string
		files map[string][]byte
		is    error
		want  string // "" if it opens
	}{
		{"a set of one", map[string][]byte{"x-00001-of-00001.safetensors": a.Bytes()}, nil, ""},
		{"any stem", map[string][]byte{"x-00002-of-00002.safetensors": a.Bytes(), "x-00001-of-00002.safetensors": b.Bytes()}, nil, ""},
		{"no lone shard of several", map[string][]byte{"model-00002-of-00004.safetensors": a.Bytes()}, fs.ErrNotExist,
			"3 of 4 shards are missing: model-00001-of-00004.safetensors, model-00003-of-00004.safetensors, model-00004-of-00004.safetensors"},
		{"no incomplete set", map[string][]byte{"m-00001-of-00003.safetensors": a.Bytes(), "m-00003-of-00003.safetensors": b.Bytes()}, fs.ErrNotExist,
			"1 of 3 shards are missing: m-00002-of-00003.safetensors"},
		{"one set", map[string][]byte{"m-00001-of-00002.safetensors": a.Bytes(), "n-00002-of-00002.safetensors": b.Bytes()}, nil, "several others"},
		{"one count", map[string][]byte{"m-00001-of-00002.safetensors": a.Bytes(), "m-00002-of-00003.safetensors": b.Bytes()}, nil, "several others"},
		{"unique names", map[string][]byte{"m-00001-of-00002.safetensors": a.Bytes(), "m-00002-of-00002.safetensors": a.Bytes()}, nil, `tensor "a": duplicate tensor name`},
		{"at most 10,000", map[string][]byte{"m-00001-of-99999.safetensors": a.Bytes()}, nil, "99999 shards exceed the limit of 10000"},
		{"10,000 are not too many", map[string][]byte{"m-00001-of-10000.safetensors": a.Bytes()}, fs.ErrNotExist,
			"9999 of 10000 shards are missing: m-00002-of-10000.safetensors, m-00003-of-10000.safetensors"},
		{"10,001 are", map[string][]byte{"m-00001-of-10001.safetensors": a.Bytes()}, nil, "10001 shards exceed the limit of 10000"},
		{"none beyond the count", map[string][]byte{"m-00001-of-00001.safetensors": a.Bytes(), "m-00002-of-00001.safetensors": b.Bytes()}, nil, "several others"},
		{"no number twice", map[string][]byte{"m-00001-of-00001.safetensors": a.Bytes(), "m-000001-of-00001.safetensors": b.Bytes()}, nil, "several others"},
		{"no number zero", map[string][]byte{"m-00000-of-00001.safetensors": a.Bytes()}, fs.ErrNotExist, "1 of 1 shards are missing"},
		{"whole shards", map[string][]byte{"m-00001-of-00002.safetensors": a.Bytes(), "m-00002-of-00002.safetensors": b.Bytes()[:20]}, io.ErrUnexpectedEOF,
			`shard "m-00002-of-00002.safetensors": header length`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, data := range c.files {
				fsys[name] = &fstest.MapFile{Data: data}
			}
			counter := &closeCounter{FS: fsys}
			f, err := OpenFS(counter, ".")
			if c.want == "" {
				require.NoError(t, err)
				require.Len(t, maps.Collect(f.Tensors()), len(c.files))
				return
			}
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			require.Zero(t, counter.open.Load(), "files are left open")
		})
	}
}

// TestTruncatedInput cuts a file at every length: each way to open it says that it
// is incomplete, as a server that resumes downloads asks.
func TestTruncatedInput(t *testing.T) {
	var file bytes.Buffer
	require.NoError(t, Write(&file, map[string]Tensor{"a": counting(t, U32, 4)}, nil))
	name := filepath.Join(t.TempDir(), "x.safetensors")
	for n := range file.Len() {
		data := file.Bytes()[:n]
		require.NoError(t, os.WriteFile(name, data, 0o666))
		for way, open := range map[string]func() (*File, error){
			"Open":    func() (*File, error) { return Open(name) },
			"Load":    func() (*File, error) { return Load(name) },
			"Parse":   func() (*File, error) { return Parse(data) },
			"NewFile": func() (*File, error) { return NewFile(bytes.NewReader(data), int64(n)) },
			"OpenFS":  func() (*File, error) { return OpenFS(os.DirFS(filepath.Dir(name)), "x.safetensors") },
		} {
			_, err := open()
			var broken *FormatError
			require.ErrorAs(t, err, &broken, fmt.Sprint(way, n))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, fmt.Sprint(way, n))
		}
	}
	_, err := Parse(append(file.Bytes(), 0))
	require.False(t, errors.Is(err, io.ErrUnexpectedEOF), "it is too long")
	_, err = Parse([]byte("version https://git-lfs.github.com/spec/v1"))
	require.False(t, errors.Is(err, io.ErrUnexpectedEOF), "it is something else")
}

// TestUnlistable: why a folder cannot be listed is the error, not that nothing is in it.
func TestUnlistable(t *testing.T) {
	_, err := OpenFS(unlistableFS{fstest.MapFS{"a.safetensors": {Data: fileOf("{}", 0)}}}, ".")
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NotErrorIs(t, err, fs.ErrNotExist)
}

type unlistableFS struct{ fstest.MapFS }

func (unlistableFS) ReadDir(string) ([]fs.DirEntry, error) { return nil, fs.ErrPermission }
