package dest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func checkpoint(names ...string) map[string]safetensors.Tensor {
	tensors := make(map[string]safetensors.Tensor)
	for i, name := range names {
		tensors[name] = must(safetensors.NewTensor(safetensors.U8, []int{8}, []byte{byte(i), 1, 2, 3, 4, 5, 6, 7}))
	}
	return tensors
}

var errBroken = errors.New("broken")

// failing fails every read after the first n.
type failing struct {
	io.ReaderAt
	left *atomic.Int64
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if f.left.Add(-1) < 0 {
		return 0, errBroken
	}
	return f.ReaderAt.ReadAt(p, off)
}

// failingAfter returns tensors of which only n can be read.
func failingAfter(tensors map[string]safetensors.Tensor, n int64) map[string]safetensors.Tensor {
	left := new(atomic.Int64)
	left.Store(n)
	all := make(map[string]safetensors.Tensor)
	for name, x := range tensors {
		all[name] = must(safetensors.NewTensorAt(x.DType(), x.Shape(), failing{x, left}))
	}
	return all
}

// startBucket returns the URL and the bucket of an S3 server in memory.
func startBucket(t *testing.T, ctx context.Context) *bucket.Bucket {
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket(t.Context(), "models"))
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	b, _, err := bucket.Open(ctx, "s3://models?anonymous=true&endpoint="+server.URL)
	require.NoError(t, err)
	return b
}

// folders are a folder in a bucket and one of this machine.
func folders(t *testing.T, maxBytes int64) map[string]Shared {
	return map[string]Shared{
		"bucket": objects{startBucket(t, t.Context()), "folder", maxBytes},
		"plain":  folder{name: filepath.Join(t.TempDir(), "above", "plain"), maxBytes: maxBytes},
	}
}

// shardsOfThree and shardsOfTwo match the files of a checkpoint that has replaced one:
// the names of its shards have a random number.
const (
	shardsOfTwo   = `^(\d{9}-model|model\.\d+)-00001-of-00002\.safetensors \S+-00002-of-00002\.safetensors model\.safetensors\.index\.json$`
	shardsOfThree = `^(\d{9}-model|model\.\d+)-00001-of-00003\.safetensors \S+-00002-of-00003\.safetensors \S+-00003-of-00003\.safetensors model\.safetensors\.index\.json$`
)

func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
}

// TestFolder writes a checkpoint, then others over it, and fails at every place in
// between: there is always the earlier checkpoint or the new one.
func TestFolder(t *testing.T) {
	for kind, d := range folders(t, 16) {
		t.Run(kind, func(t *testing.T) {
			list := func() []string { return slices.Sorted(maps.Keys(must(d.Files("", false)))) }
			one := checkpoint("a", "b", "c")
			for n := range int64(3) {
				require.ErrorIs(t, d.Write(failingAfter(one, n), nil, nil), errBroken, "%d", n)
				require.Empty(t, list(), "nothing is left over")
			}
			require.NoError(t, d.Free())

			require.NoError(t, d.Write(one, nil, nil))
			first := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}
			require.Equal(t, first, list())
			require.ErrorContains(t, d.Free(), first[0]+" exists; --force replaces it")

			for n := range int64(3) {
				require.ErrorIs(t, d.Write(failingAfter(one, n), nil, nil), errBroken)
				require.Equal(t, first, list())
			}
			require.NoError(t, d.Write(checkpoint("a", "b", "c", "d", "e"), nil, nil))
			require.Regexp(t, shardsOfThree, strings.Join(list(), " "))
			require.NoError(t, d.Write(checkpoint("a"), nil, nil))
			require.Equal(t, []string{"model.safetensors"}, list())
			require.NoError(t, d.Write(one, nil, nil))
			require.Regexp(t, shardsOfTwo, strings.Join(list(), " "))
			last := list()
			require.NoError(t, d.Write(one, nil, nil))
			require.Regexp(t, shardsOfTwo, strings.Join(list(), " "))
			require.Equal(t, last[len(last)-1:], intersection(last, list()), "only the index keeps its name")
		})
	}
}

// TestObject fails at every place: the object appears complete or not at all.
func TestObject(t *testing.T) {
	dir := t.TempDir()
	all := map[string]Destination{"bucket": object{startBucket(t, t.Context()), "x", format.Safetensors}}
	for _, name := range []string{"y.safetensors", "z.npz"} {
		all[name] = single{name: filepath.Join(dir, name), format: format.ByName(name)}
	}
	for kind, d := range all {
		t.Run(kind, func(t *testing.T) {
			one := checkpoint("a", "b", "c")
			for n := range int64(3) {
				require.ErrorIs(t, d.Write(failingAfter(one, n), nil, nil), errBroken)
				require.NoError(t, d.Free())
			}
			require.NoError(t, d.Write(one, nil, nil))
			require.ErrorContains(t, d.Free(), " exists; ")
		})
	}
	require.Len(t, must(os.ReadDir(dir)), 2, "no temporary file")
}

// TestCancelledUpload cancels the context between two parts of an upload.
func TestCancelledUpload(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	b := startBucket(t, ctx)
	err := b.Write("y", 1<<30, func(w io.Writer) error {
		for i := 0; ; i++ {
			if i == 20 {
				cancel(errBroken)
			}
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	})
	require.ErrorIs(t, err, errBroken)
	_, err = b.Start("y", 1)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestParse: what cannot be written to is no local folder of that name, and the error does not
// show what may be a secret in a URL.
func TestParse(t *testing.T) {
	for _, name := range []string{"", "x.gguf", "x.BIN", "ftp://me:secret@host/x", "file://host/x", "file:///x?y", "hf://owner/name", "https://host/x?sig=secret", "https://x/y.safetensors", "x.pt/"} {
		_, err := Parse(t.Context(), name, io.Discard, 0)
		require.ErrorAs(t, err, new(UsageError), name)
		require.NotContains(t, err.Error(), "secret")
		_, err = ParseRanks(name, 2)
		require.ErrorAs(t, err, new(UsageError), name)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, name := range []string{"x.safetensors", "-", "file:///x.safetensors", "x.npz"} {
		_, err := Parse(t.Context(), name, io.Discard, 10)
		require.ErrorAs(t, err, new(UsageError), name)
	}
	for n, fits := range map[int]bool{0: false, 1: true, 1 << 20: true, 1<<20 + 1: false} {
		_, err := ParseRanks("x", n)
		require.Equal(t, fits, err == nil, "%d ranks", n)
	}
	for name, want := range map[string]Destination{
		"-": stream{io.Discard}, "x.safetensors": single{name: "x.safetensors", format: format.Safetensors}, "x": Folder("x"),
		"file:///x.safetensors": single{name: filepath.FromSlash("/x.safetensors"), format: format.Safetensors}, "file:///x": Folder(filepath.FromSlash("/x")),
		"llama-3.1": Folder("llama-3.1"), "x.nz": Folder("x.nz"), "x/": Folder("x/"), "x.npz": single{name: "x.npz", format: format.ByName("x.npz")},
	} {
		require.Equal(t, want, must(Parse(t.Context(), name, io.Discard, 0)))
	}
}

// TestWithin: a file keeps its name in the folder, but not the folders of that name, nor another ending.
func TestWithin(t *testing.T) {
	dir := t.TempDir()
	for file, want := range map[string]string{
		"x/a.safetensors": "a.safetensors", "a.safetensors": "a.safetensors", "x/y/pytorch_model.bin": "model.safetensors", "a.npz": "a.safetensors",
	} {
		d, err := Within(t.Context(), dir, file, io.Discard)
		require.NoError(t, err)
		require.NoError(t, d.Write(checkpoint("x"), nil, nil))
		require.NoError(t, os.Remove(filepath.Join(dir, want)), file)
	}
}

// TestWriteFile: an error leaves the old file and nothing else.
func TestWriteFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	for _, text := range []string{"old", "new"} {
		require.NoError(t, WriteFile(name, Writing([]byte(text))))
	}
	err := WriteFile(name, func(w io.Writer) error {
		io.WriteString(w, "half")
		return errBroken
	})
	require.ErrorIs(t, err, errBroken)
	require.ErrorContains(t, err, name)
	require.Equal(t, "new", string(must(os.ReadFile(name))))
	require.Len(t, must(os.ReadDir(filepath.Dir(name))), 1)
}

var errDisk = errors.New("the disk fails")

// A dying system opens folders that cannot be flushed, or opens none.
type dying struct {
	osfile.System
	opens bool
}

func (d dying) OpenDir(string) (osfile.Folder, error) {
	if d.opens {
		return d, nil
	}
	return nil, errDisk
}

func (dying) Sync() error  { return errDisk }
func (dying) Close() error { return nil }

// TestFlushFails: a folder that cannot be opened leaves the old file; one that cannot be
// flushed may be left with either, and the error says so.
func TestFlushFails(t *testing.T) {
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("folders have no flush")
	}
	dir := t.TempDir()
	temp, name := filepath.Join(dir, "temp"), filepath.Join(dir, "name")
	for _, file := range []string{temp, name} {
		require.NoError(t, os.WriteFile(file, []byte(filepath.Base(file)), 0o666))
	}
	for _, opens := range []bool{false, true} {
		func() {
			defer osfile.Wrap(func(s osfile.System) osfile.System { return dying{s, opens} })()
			require.ErrorIs(t, rename(temp, name), errDisk)
		}()
		require.Equal(t, map[bool]string{false: "name", true: "temp"}[opens], string(must(os.ReadFile(name))))
	}
}

// TestParseTerminal: a file is not written to a terminal. The device ptmx of Linux is one.
func TestParseTerminal(t *testing.T) {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil || !term.Is(f) {
		t.Skip("there is no terminal")
	}
	defer f.Close()
	_, err = Parse(t.Context(), "-", f, 0)
	require.ErrorAs(t, err, new(UsageError))
	require.ErrorContains(t, err, "standard output is a terminal")
}

// TestAlmost: an ending that looks like a misspelt one of a file is not taken for a part of the name of a folder.
func TestAlmost(t *testing.T) {
	for name, want := range map[string]string{
		"x.safetensor": "x.safetensors", "x.safetenors": "x.safetensors", "x.SafeTensrs": "x.safetensors", "x.saftensor": "x.safetensors", "x.safensor": "",
		"x.npx": "x.npz", "x.NPY": "x.npz", "x.npyz": "x.npz", "x.mpy": "", "x.np": "", "x.nz": "", "x": "", "x.": "", "llama-3.1": "", "a.b/x": "",
	} {
		require.Equal(t, want, almost(name), name)
	}
}

// TestReplaced: a link to a regular file is followed, and any other link is an error of all that write to its name.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Mkdir(at("folder"), 0o777))
	require.NoError(t, os.WriteFile(at("file"), []byte("old"), 0o666))
	for link, target := range map[string]string{"to file": "file", "to link": "to file", "to folder": "folder", "dangling": "none", "round": "round", "to blob": "../../blobs/" + strings.Repeat("a1", 32)} {
		if err := os.Symlink(filepath.FromSlash(target), at(link)); err != nil {
			t.Skip(err)
		}
		if info, err := os.Lstat(at(link)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Skip("links do not look like links, as in wine")
		}
	}
	real := must(filepath.EvalSymlinks(dir))
	for name, want := range map[string]string{"file": at("file"), "new": at("new"), "folder": at("folder"), "to file": filepath.Join(real, "file"), "to link": filepath.Join(real, "file")} {
		require.Equal(t, want, must(Replaced(at(name))), name)
	}
	for name, want := range map[string]string{
		"to folder": "which is not a regular file", "dangling": "a symbolic link to a file that does not exist", "to blob": "a link to a file in the cache of a hub", "round": "",
	} {
		_, err := Replaced(at(name))
		require.ErrorContains(t, err, want)
		require.EqualError(t, single{name: at(name), format: format.Safetensors}.Write(checkpoint("x"), nil, nil), err.Error())
		require.EqualError(t, single{name: at(name), format: format.ByName("x.npz")}.Write(checkpoint("x"), nil, nil), err.Error())
		require.EqualError(t, WriteFile(at(name), Writing(nil)), err.Error())
	}
	require.NoError(t, WriteFile(at("to link"), Writing([]byte("new"))))
	require.Equal(t, "new", string(must(os.ReadFile(at("file")))))
	require.NoError(t, single{name: at("to file"), format: format.Safetensors}.Write(checkpoint("x"), nil, nil))
	require.NotEqual(t, "new", string(must(os.ReadFile(at("file")))))
	require.True(t, must(os.Lstat(at("to file"))).Mode()&fs.ModeSymlink != 0)
	require.Len(t, must(os.ReadDir(dir)), 8, "no temporary file stays")
}

// TestEarlierShards: the shards that an index names are replaced with it, whatever their names are; a file that no index names stays.
func TestEarlierShards(t *testing.T) {
	to := folder{name: t.TempDir(), maxBytes: 16}
	require.NoError(t, to.Write(checkpoint("a", "b", "c"), nil, nil))
	for i, name := range []string{"first.safetensors", "second.safetensors"} {
		require.NoError(t, os.Rename(to.PathOf([]string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}[i]), to.PathOf(name)))
	}
	require.NoError(t, to.Put("model.safetensors.index.json", []byte(`{"weight_map":{"a":"first.safetensors","b":"first.safetensors","c":"second.safetensors"}}`)))
	require.NoError(t, safetensors.WriteFile(to.PathOf("adapter.safetensors"), checkpoint("x"), nil))
	require.NoError(t, to.Write(checkpoint("y"), nil, nil))
	require.Equal(t, []string{"adapter.safetensors", "model.safetensors"}, slices.Sorted(maps.Keys(must(to.Files("", false)))))

	require.Error(t, writeCopy(filepath.Join(to.name, "none", "x"), func(io.Writer) error { return nil }), "the folder is missing")
	require.ErrorIs(t, writeCopy(to.PathOf("x"), func(io.Writer) error { return errBroken }), errBroken)
}

// TestCreatedFolders: unlock removes the folders that a destination has created, also those for files below it, except
// those that have a file of another program, and those in which another process writes.
func TestCreatedFolders(t *testing.T) {
	for _, together := range []bool{false, true} {
		dir := t.TempDir()
		above := filepath.Join(dir, "above")
		to := Folder(filepath.Join(above, "new"))
		unlock := must(to.Lock(together))
		require.NoError(t, to.Put("sub/sub/a", nil))
		require.NoError(t, to.Remove("sub/sub/a"))
		unlock()
		require.NoDirExists(t, above)

		unlock = must(to.Lock(together))
		other := filepath.Join(above, "other")
		require.NoError(t, os.WriteFile(other, nil, 0o666))
		unlock()
		require.NoDirExists(t, to.PathOf("."))
		require.FileExists(t, other)

		require.NoError(t, os.Mkdir(to.PathOf("."), 0o777))
		must(Folder(to.PathOf(".")).Lock(together))()
		require.DirExists(t, to.PathOf("."), "it was there before")
	}
	first := Folder(filepath.Join(t.TempDir(), "new"))
	unlock := must(first.Lock(true))
	other := must(Folder(first.PathOf(".")).Lock(true))
	unlock()
	require.DirExists(t, first.PathOf("."))
	other()
}

// A sticky system does not remove files with some names.
type sticky struct {
	osfile.System
	names []string
}

func (s sticky) Remove(name string) error {
	if slices.Contains(s.names, filepath.Base(name)) {
		return &fs.PathError{Op: "remove", Path: name, Err: errBroken}
	}
	return s.System.Remove(name)
}

// TestOldShardsStay: if files of the earlier checkpoint cannot be removed, the others are removed, and the error names each
// file that stays. Only the shards of an index that stays are kept. The next save removes all of them.
func TestOldShardsStay(t *testing.T) {
	const index = "model.safetensors.index.json"
	shard := func(i int) string { return fmt.Sprintf("model-%05d-of-00003.safetensors", i) }
	for _, c := range []struct{ sticky, stay []string }{
		{[]string{shard(1)}, []string{shard(1)}}, {[]string{shard(1), shard(3)}, []string{shard(1), shard(3)}},
		{[]string{"custom.safetensors"}, []string{"custom.safetensors"}}, {[]string{shard(2)}, []string{shard(2)}}, {[]string{index}, []string{shard(1), shard(2), shard(3), index}},
	} {
		to := folder{name: t.TempDir(), maxBytes: 8}
		require.NoError(t, to.Write(checkpoint("a", "b", "c"), nil, nil))
		before := slices.Sorted(maps.Keys(must(to.Files("", true))))
		require.Equal(t, []string{shard(1), shard(2), shard(3), index}, before)
		const custom = "custom.safetensors" // WriteShards does not recognize this name
		if !slices.Contains(c.stay, shard(1)) {
			require.NoError(t, os.Rename(to.PathOf(shard(1)), to.PathOf(custom)))
			text := must(to.Read(index, MostSmall))
			require.NoError(t, to.Put(index, bytes.ReplaceAll(text, []byte(shard(1)), []byte(custom))))
		}
		to.maxBytes = 0
		restore := osfile.Wrap(func(s osfile.System) osfile.System { return sticky{s, c.sticky} })
		err := to.Write(checkpoint("x"), nil, nil)
		restore()
		require.ErrorIs(t, err, errBroken)
		require.ErrorContains(t, err, "is complete")
		stay := slices.DeleteFunc(slices.Sorted(maps.Keys(must(to.Files("", true)))), func(name string) bool { return name == "model.safetensors" || name == recordName })
		require.Equal(t, c.stay, stay)
		for _, name := range stay {
			require.ErrorContains(t, err, name)
		}
		require.NoError(t, to.Write(checkpoint("y"), nil, nil))
		require.Equal(t, []string{"model.safetensors"}, slices.Sorted(maps.Keys(must(to.Files("", true)))))
	}
}
