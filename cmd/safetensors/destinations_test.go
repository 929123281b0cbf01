package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/stretchr/testify/require"
)

// A destination is a folder under test, which the file system of a machine or a store holds.
type destination struct {
	name  string                   // of the folder, as DST
	files func() map[string]string // what the folder holds, read without package dest
	locks bool                     // Lock keeps others out
	ctx   context.Context          // the context of uploads
	stop  context.CancelFunc       // ends ctx
}

// open returns the folder as the verbs see it, with shards of at most 64 bytes.
func (d destination) open(t *testing.T) dest.Shared {
	t.Helper()
	return must(dest.Parse(d.ctx, d.name, io.Discard, 64)).(dest.Shared)
}

// contract lists what the verbs rely on, whatever holds a folder. Each rule gets an empty folder.
var contract = []struct {
	rule string
	test func(t *testing.T, d destination)
}{
	{"Put writes files and replaces them", func(t *testing.T, d destination) {
		to := d.open(t)
		for name, text := range map[string]string{"a": "one", "sub/b": "two", "empty": ""} {
			require.NoError(t, to.Put(name, []byte("before")))
			require.NoError(t, to.Put(name, []byte(text)))
		}
		require.Equal(t, map[string]string{"a": "one", "sub/b": "two", "empty": ""}, d.files())
	}},
	{"Read returns the start of a file", func(t *testing.T, d destination) {
		to := d.open(t)
		require.NoError(t, to.Put("a", []byte("text")))
		require.NoError(t, to.Put("empty", nil))
		for n, want := range map[int64]string{0: "", 3: "tex", 4: "text", 1000: "text"} {
			require.Equal(t, want, string(must(to.Read("a", n))))
		}
		require.Empty(t, must(to.Read("empty", 10)))
		_, err := to.Read("absent", 10)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}},
	{"Create never replaces a file", func(t *testing.T, d destination) {
		to := d.open(t)
		require.NoError(t, to.Create("a", []byte("first")))
		require.ErrorIs(t, to.Create("a", []byte("second")), fs.ErrExist)
		require.Equal(t, map[string]string{"a": "first"}, d.files())
	}},
	{"of several that create a file at once, one does", func(t *testing.T, d destination) {
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			to := d.open(t)
			all.Add(1)
			go func() {
				defer all.Done()
				errs[i] = to.Create("a", fmt.Append(nil, i))
			}()
		}
		all.Wait()
		winner := slices.Index(errs, nil)
		require.GreaterOrEqual(t, winner, 0, "%v", errs)
		for i, err := range errs {
			if i != winner {
				require.ErrorIs(t, err, fs.ErrExist)
			}
		}
		require.Equal(t, map[string]string{"a": fmt.Sprint(winner)}, d.files())
	}},
	{"Files lists the files of one folder", func(t *testing.T, d destination) {
		to := d.open(t)
		for _, fresh := range []bool{false, true} {
			require.Empty(t, must(to.Files("absent", fresh)))
			require.NoError(t, to.Put("a", []byte("one")))
			require.NoError(t, to.Put("sub/b", nil))
			files := must(to.Files("", fresh))
			require.Equal(t, []string{"a"}, slices.Collect(maps.Keys(files)))
			require.EqualValues(t, 3, files["a"].Size)
			require.Equal(t, files, must(to.Files("", fresh)), "a file that stays has the same version")
			require.Equal(t, []string{"b"}, slices.Collect(maps.Keys(must(to.Files("sub", fresh)))))
			require.NoError(t, to.Put("a", []byte("other")))
			require.NotEqual(t, files, must(to.Files("", fresh)), "a file was replaced")
		}
	}},
	{"Remove removes one file", func(t *testing.T, d destination) {
		to := d.open(t)
		for _, name := range []string{"a", "ab", "sub/a"} {
			require.NoError(t, to.Put(name, []byte("x")))
		}
		for range 2 {
			require.NoError(t, to.Remove("a"), "also if it is not there")
		}
		require.NoError(t, to.Remove("sub/a"))
		require.Equal(t, map[string]string{"ab": "x"}, d.files())
	}},
	{"WriteShard writes tensors or copies bytes", func(t *testing.T, d destination) {
		to := d.open(t)
		tensors := map[string]safetensors.Tensor{"w": counting(t, 3)}
		require.NoError(t, to.WriteShard("sub/a", dest.Shard{Tensors: tensors}, map[string]string{"k": "v"}, nil))
		require.NoError(t, to.WriteShard("b", copyOf("bytes", nil), nil, func() error { return nil }))
		var want bytes.Buffer
		require.NoError(t, safetensors.Write(&want, tensors, map[string]string{"k": "v"}))
		require.Equal(t, map[string]string{"sub/a": want.String(), "b": "bytes"}, d.files())
	}},
	{"a shard that fails leaves what was there", func(t *testing.T, d destination) {
		broken := errors.New("broken")
		fail := func() error { return broken }
		to := d.open(t)
		require.NoError(t, to.Put("a", []byte("before")))
		unreadable := map[string]safetensors.Tensor{"w": must(safetensors.NewTensorFunc(safetensors.U8, []int{8}, func([]byte) error { return broken }))}
		large := strings.Repeat("large ", 3<<20) // several parts of an upload
		for _, name := range []string{"a", "new"} {
			for what, shard := range map[string]dest.Shard{"tensors": {Tensors: unreadable}, "start": copyOf("", broken), "end": copyOf("x", broken), "parts": copyOf(large, broken)} {
				err := to.WriteShard(name, shard, nil, nil)
				require.ErrorIs(t, err, broken, what)
				require.NotContains(t, err.Error(), ": safetensors: ", what)
			}
			for what, shard := range map[string]dest.Shard{"tensors": {Tensors: map[string]safetensors.Tensor{"w": counting(t, 3)}}, "copy": copyOf("x", nil), "parts": copyOf(large, nil)} {
				require.ErrorIs(t, to.WriteShard(name, shard, nil, fail), broken, what)
			}
		}
		require.Equal(t, map[string]string{"a": "before"}, d.files())
		require.NoError(t, to.WriteShard("a", copyOf(large, nil), nil, nil))
		require.True(t, d.files()["a"] == large)
	}},
	{"Write writes a checkpoint that Open opens", func(t *testing.T, d destination) {
		to := d.open(t)
		require.NoError(t, to.Put("config.json", []byte("{}")))
		require.NoError(t, to.Free(), "a config is not a checkpoint")
		tensors := map[string]safetensors.Tensor{"a": counting(t, 16), "b": counting(t, 5), "c": counting(t, 7)}
		require.NoError(t, to.Write(tensors, map[string]string{"k": "v"}, nil))
		require.Contains(t, d.files(), "model.safetensors.index.json")
		f, err := to.Open()
		require.NoError(t, err)
		defer f.Close()
		require.Equal(t, map[string]string{"k": "v"}, f.Metadata())
		for name, want := range tensors {
			require.True(t, must(safetensors.Equal(want, must(f.Tensor(name)))), name)
		}
		require.ErrorContains(t, to.Free(), "--force replaces it")
		before := d.files()
		to.Sweep()
		require.Equal(t, before, d.files(), "complete files are not swept")
	}},
	{"no name leaves the folder", func(t *testing.T, d destination) {
		outside := d
		outside.name = strings.Replace(d.name, "/folder", "/outside", 1)
		require.NoError(t, outside.open(t).Put("a", []byte("x")))
		to := d.open(t)
		for _, name := range []string{"../outside/a", "sub/../../outside/a", "/a", ".", ""} {
			require.Error(t, to.Put(name, []byte("y")), name)
			require.Error(t, to.Create(name, []byte("y")), name)
			require.Error(t, to.WriteShard(name, copyOf("y", nil), nil, nil), name)
			require.Error(t, to.Remove(name), name)
			_, err := to.Read(name, 1)
			require.Error(t, err, name)
		}
		_, err := to.Files("../outside", false)
		require.Error(t, err)
		require.Empty(t, d.files())
		require.Equal(t, "x", string(must(outside.open(t).Read("a", 10))))
	}},
	{"PathOf names a file for people", func(t *testing.T, d destination) {
		to := d.open(t)
		require.True(t, strings.HasSuffix(filepath.ToSlash(to.PathOf("sub/a")), "/folder/sub/a"), to.PathOf("sub/a"))
		require.NotContains(t, to.PathOf("a"), "?", "a query may hold secrets")
		require.Positive(t, to.AtOnce())
	}},
	{"Lock keeps others out, or nobody", func(t *testing.T, d destination) {
		unlock := must(d.open(t).Lock(false))
		other, err := d.open(t).Lock(false)
		require.Equal(t, d.locks, err != nil, "%v", err)
		if err == nil {
			other()
		}
		unlock()
		require.Empty(t, d.files())
		for _, together := range []bool{true, true} {
			defer must(d.open(t).Lock(together))()
		}
		require.NoError(t, d.open(t).Put("a", nil), "the lock is not in the way of the files")
	}},
	{"an upload that is cancelled leaves nothing, and can be cleaned up", func(t *testing.T, d destination) {
		to := d.open(t)
		require.NoError(t, to.Put("a", []byte("before")))
		large := dest.Shard{Size: 1 << 30, CopyTo: func(w io.Writer) error {
			for i := 0; i < 32; i++ {
				if i == 20 {
					d.stop()
				}
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return err
				}
			}
			return d.ctx.Err() // a file is written without a context
		}}
		require.ErrorIs(t, to.WriteShard("b", large, nil, nil), context.Canceled)
		require.Equal(t, map[string]string{"a": "before"}, d.files())
		require.Equal(t, "before", string(must(to.Read("a", 10))), "what is there decides what is cleaned up")
		require.NoError(t, to.Remove("a"))
		require.Empty(t, d.files())
	}},
}

// copyOf returns a shard that is copied: text, and then err.
func copyOf(text string, err error) dest.Shard {
	return dest.Shard{Size: int64(len(text)), CopyTo: func(w io.Writer) error {
		if _, writeErr := io.WriteString(w, text); writeErr != nil {
			return writeErr
		}
		return err
	}}
}

// keeps tests every rule of the contract with folders of one kind.
func keeps(t *testing.T, at func(t *testing.T, key string) destination) {
	for i, c := range contract {
		t.Run(c.rule, func(t *testing.T) {
			d := at(t, fmt.Sprint("rule", i, "/folder"))
			d.ctx, d.stop = context.WithCancel(t.Context())
			defer d.stop()
			c.test(t, d)
		})
	}
}

// TestDestinations: a folder of this machine and a folder in each kind of store keep one contract.
func TestDestinations(t *testing.T) {
	for name, c := range clouds(t) {
		t.Run(name, func(t *testing.T) { keeps(t, c.destination) })
	}
	t.Run("local", func(t *testing.T) {
		root := t.TempDir()
		keeps(t, func(t *testing.T, key string) destination {
			dir := filepath.Join(root, filepath.FromSlash(key))
			return destination{name: root + "/" + key, locks: true, files: func() map[string]string {
				if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return tree(t, dir)
			}}
		})
	})
}

// TestS3Destination: S3 keeps the contract, also on the real server that step s3 of CI starts.
func TestS3Destination(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		keeps(t, cloud{"s3://models", s.faulty, s.complete(t)}.destination)
	})
}

// destination returns the folder of a key.
func (c cloud) destination(_ *testing.T, key string) destination {
	return destination{name: c.at(key), files: func() map[string]string { return c.folder(key) }}
}
