package apitest_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/gosafetensors/safetensors/torch"
	"github.com/stretchr/testify/require"
)

// A wrappedFS is a file system with other files.
type wrappedFS struct {
	fs.FS
	wrap func(fs.File) fs.File
}

func (w wrappedFS) Open(name string) (fs.File, error) {
	f, err := w.FS.Open(name)
	if err == nil {
		f = w.wrap(f)
	}
	return f, err
}

func (w wrappedFS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(w.FS, name) }

// A countedFile is one of those that are open.
type countedFile struct {
	fs.File
	open *atomic.Int64
}

func (f countedFile) Close() error {
	f.open.Add(-1)
	return f.File.Close()
}

// countOpen returns the same file system, and how many of its files are open.
func countOpen(fsys fs.FS) (fs.FS, *atomic.Int64) {
	open := new(atomic.Int64) // shards are opened concurrently
	return wrappedFS{fsys, func(f fs.File) fs.File {
		open.Add(1)
		if r, ok := f.(io.ReaderAt); ok {
			return struct {
				countedFile
				io.ReaderAt
			}{countedFile{f, open}, r}
		}
		return countedFile{f, open}
	}}, open
}

// zipOf returns the files of a folder as a zip archive, whose files are no io.ReaderAts.
func zipOf(t *testing.T, dir string) *zip.Reader {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	require.NoError(t, w.AddFS(os.DirFS(dir)))
	require.NoError(t, w.Close())
	return must(zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len())))
}

// TestOpenFS opens a file, an index and a folder in file systems of every kind.
func TestOpenFS(t *testing.T) {
	tensors := checkpointOf(6)
	dir := t.TempDir()
	require.NoError(t, WriteShards(filepath.Join(dir, "sharded"), tensors, nil, 128))
	require.NoError(t, WriteShards(filepath.Join(dir, "whole"), tensors, nil, 1<<30))
	for kind, fsys := range map[string]fs.FS{"os.DirFS": os.DirFS(dir), "zip": zipOf(t, dir)} {
		for _, name := range []string{"whole", "whole/model.safetensors", "sharded", "sharded/model.safetensors.index.json"} {
			counted, open := countOpen(fsys)
			f, err := OpenFS(counted, name)
			require.NoError(t, err, "%s %s", kind, name)
			requireTensors(t, tensors, f)
			x := must(f.Tensor("t00"))
			require.NoError(t, f.Close())
			require.Zero(t, open.Load(), "%s %s: files are left open", kind, name)
			require.ErrorIs(t, errorOf(Append[byte](nil, x)), fs.ErrClosed)
		}
	}
}

// TestZippedSum has a zip entry of a file, or of an index, whose sum does not match.
func TestZippedSum(t *testing.T) {
	for maxBytes, name := range map[int64]string{0: "model.safetensors", 64: "model.safetensors.index.json"} {
		dir := t.TempDir()
		require.NoError(t, WriteShards(dir, checkpointOf(2), nil, maxBytes))
		broken := zipOf(t, dir)
		require.NoError(t, must(OpenFS(broken, ".")).Close())
		broken.File[slices.IndexFunc(broken.File, func(f *zip.File) bool { return f.Name == name })].CRC32++
		require.ErrorIs(t, errorOf(OpenFS(broken, ".")), zip.ErrChecksum)
	}
}

// TestJoin: a File joined from two has the tensors of both, file by file, and their metadata, and
// closing it closes both.
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

	require.EqualError(t, refusal(Join(f, g, f)), fmt.Sprintf(`safetensors: tensor "b": duplicate tensor name, in %q and %q`, base, base))
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

// TestOpenSet opens a folder with a whole set of shards and no index.
func TestOpenSet(t *testing.T) {
	tensors, dir := checkpointOf(6), t.TempDir()
	for name, part := range Split(tensors, 128) {
		require.NoError(t, WriteFile(filepath.Join(dir, name), part, map[string]string{"shard": name}))
	}
	requireCheckpoint(t, dir, tensors)
	require.Equal(t, "model-00001-of-00003.safetensors", must(Load(dir)).Metadata()["shard"], "that of the first")
}

// TestOpenFolder: which of the files in a folder Open, Load and OpenFS choose.
func TestOpenFolder(t *testing.T) {
	type files = map[string]string
	tensors, others := checkpointOf(4), checkpointOf(3)
	text := func(names ...string) string {
		part := make(map[string]Tensor)
		for _, name := range names {
			part[name] = tensors[name]
		}
		return string(saved(part, nil))
	}
	one, first, second, half := text("t00", "t01", "t02", "t03"), text("t00", "t01"), text("t02", "t03"), string(saved(others, nil))
	index := `{"weight_map":{"t00":"x-00001-of-00002.safetensors","t01":"x-00001-of-00002.safetensors",
		"t02":"x-00002-of-00002.safetensors","t03":"x-00002-of-00002.safetensors"}}`
	const lost = `{"weight_map":{"t":"absent.safetensors"}}`
	pipeline := files{"vae/x.safetensors": one, "unet/x.fp16.safetensors": one, "scheduler/config.json": "", "x/y/x.safetensors": one}
	indexed := maps.Clone(pipeline)
	indexed["model_index.json"] = ""
	const unique = "unique names"
	for _, c := range []struct {
		rule  string
		files files
		opens map[string]Tensor // nil for an error
		is    error
		want  string
	}{
		{"model.safetensors comes first", files{"model.safetensors": one, "other.safetensors": half, "x.json": ""}, tensors, nil, ""},
		{"another name may be the only one", files{"adapter.safetensors": one, "config.json": ""}, tensors, nil, ""},
		{"an index of other files does not count", files{"adapter.safetensors": one, "pytorch_model.bin.index.json": ""}, tensors, nil, ""},
		{"temporary files do not count", files{".safetensors-12.tmp": "", "a.safetensors": one}, tensors, nil, ""},
		{"of several other names none is chosen", files{"a.safetensors": one, "b.safetensors": one}, nil, nil, "no model.safetensors in it, but several other files: a.safetensors, b.safetensors; open those of one model by name, and Join them"},
		{"there is a .safetensors file", files{"config.json": "", "pytorch_model.bin": ""}, nil, fs.ErrNotExist, "no .safetensors file in it, only config.json, pytorch_model.bin (package torch reads the files of PyTorch)"},
		{"there is a .safetensors file, beside files of ranks", files{"model_world_size_2_rank_0.pt": "", "optimizer.pt": ""}, nil, fs.ErrNotExist, "no .safetensors file in it, only model_world_size_2_rank_0.pt, optimizer.pt (package dcp joins the files of ranks)"},
		{"there is a .safetensors file, beside a numbered one", files{"model_3.pt": ""}, nil, fs.ErrNotExist, "no .safetensors file in it, only model_3.pt (package torch reads the files of PyTorch)"},
		{"a distributed checkpoint is not safetensors", files{".metadata": "", "__0_0.distcp": "", "extra.pt": ""}, nil, fs.ErrNotExist, "(package dcp reads the distributed checkpoint)"},
		{"a folder of something else", files{"config.json": ""}, nil, fs.ErrNotExist, "no .safetensors file in it, only config.json"},
		{"a folder is not empty", nil, nil, fs.ErrNotExist, "no .safetensors file in it: it is empty"},
		{"an index may have another name", files{"mine.safetensors.index.json": index, "x-00001-of-00002.safetensors": first, "x-00002-of-00002.safetensors": second}, tensors, nil, ""},
		{"of several others none is chosen", files{"mine.safetensors.index.json": index, "other.safetensors.index.json": index}, nil, nil, "mine.safetensors.index.json, other.safetensors.index.json"},
		{"model.safetensors.index.json comes first", files{"model.safetensors.index.json": index, "other.safetensors.index.json": lost,
			"x-00001-of-00002.safetensors": first, "x-00002-of-00002.safetensors": second}, tensors, nil, ""},

		{"a set of one", files{"x-00001-of-00001.safetensors": one}, tensors, nil, ""},
		{"a set of any stem", files{"x-00002-of-00002.safetensors": first, "x-00001-of-00002.safetensors": second}, tensors, nil, ""},
		{"a set and no other file", files{"x-00001-of-00002.safetensors": first, "x-00002-of-00002.safetensors": second, "consolidated.safetensors": one}, nil, nil,
			"several other files: consolidated.safetensors, x-00001-of-00002.safetensors, x-00002-of-00002.safetensors; open those of one model by name"},
		{"no lone shard of several", files{"model-00002-of-00004.safetensors": one}, nil, fs.ErrNotExist,
			"3 of 4 shards are missing: model-00001-of-00004.safetensors, model-00003-of-00004.safetensors, model-00004-of-00004.safetensors"},
		{"no incomplete set", files{"m-00001-of-00003.safetensors": first, "m-00003-of-00003.safetensors": second}, nil, fs.ErrNotExist,
			"1 of 3 shards is missing: m-00002-of-00003.safetensors"},
		{"one set", files{"m-00001-of-00002.safetensors": first, "n-00002-of-00002.safetensors": second}, nil, nil, "several other files"},
		{"one count", files{"m-00001-of-00002.safetensors": first, "m-00002-of-00003.safetensors": second}, nil, nil, "several other files"},
		{unique, files{"m-00001-of-00002.safetensors": first, "m-00002-of-00002.safetensors": first}, nil, nil, `: duplicate tensor name`},
		{"at most 10,000", files{"m-00001-of-99999.safetensors": one}, nil, nil, "99999 shards exceed the limit of 10000"},
		{"10,000 are not too many", files{"m-00001-of-10000.safetensors": one}, nil, fs.ErrNotExist,
			"9999 of 10000 shards are missing: m-00002-of-10000.safetensors, m-00003-of-10000.safetensors"},
		{"10,001 are", files{"m-00001-of-10001.safetensors": one}, nil, nil, "10001 shards exceed the limit of 10000"},
		{"none beyond the count", files{"m-00001-of-00001.safetensors": first, "m-00002-of-00001.safetensors": second}, nil, nil, "several other files"},
		{"no number twice", files{"m-00001-of-00001.safetensors": first, "m-000001-of-00001.safetensors": second}, nil, nil, "several other files"},
		{"no number zero", files{"m-00000-of-00001.safetensors": one}, nil, fs.ErrNotExist, "1 of 1 shards is missing"},
		{"whole shards", files{"m-00001-of-00002.safetensors": first, "m-00002-of-00002.safetensors": second[:20]}, nil, io.ErrUnexpectedEOF,
			`shard "m-00002-of-00002.safetensors": header length`},

		{"a file before its variant", files{"x.safetensors": one, "x.fp16.safetensors": half}, tensors, nil, ""},
		{"before one of the first and last letters", files{"x.safetensors": one, "x.Az_Za.safetensors": half}, tensors, nil, ""},
		{"before several", files{"x.safetensors": one, "x.fp16.safetensors": half, "x.non_ema.safetensors": half}, tensors, nil, ""},
		{"before shards", files{"x.safetensors": one, "x.fp16-00001-of-00002.safetensors": half, "x.safetensors.index.fp16.json": lost}, tensors, nil, ""},
		{"before shards of older writers", files{"x.safetensors": one, "x-00001-of-00002.fp16.safetensors": half}, tensors, nil, ""},
		{"before an index", files{"x.safetensors": one, "x.fp16.safetensors.index.json": lost}, tensors, nil, ""},
		{"before a variant of a variant", files{"x.safetensors": one, "x.ema.safetensors": half, "x.ema.fp16.safetensors": half}, tensors, nil, ""},
		{"an index before that of a variant", files{"x.safetensors.index.json": index, "x-00001-of-00002.safetensors": first,
			"x-00002-of-00002.safetensors": second, "x.safetensors.index.fp16.json": lost, "x.fp16-00001-of-00001.safetensors": half}, tensors, nil, ""},
		{"a set before a variant", files{"x-00001-of-00002.safetensors": first, "x-00002-of-00002.safetensors": second, "x.fp16.safetensors": half}, tensors, nil, ""},
		{"a variant alone", files{"x.fp16.safetensors": half}, others, nil, ""},
		{"its index alone", files{"x.safetensors.index.fp16.json": strings.ReplaceAll(index, "x-", "y_"),
			"y_00001-of-00002.safetensors": first, "y_00002-of-00002.safetensors": second}, tensors, nil, ""},
		{"none of two variants", files{"x.fp16.safetensors": half, "x.bf16.safetensors": half}, nil, nil, "several other files: x.bf16.safetensors, x.fp16.safetensors"},
		{"half a set, not its variant", files{"x-00001-of-00002.safetensors": first, "x.fp16.safetensors": half}, nil, fs.ErrNotExist, "1 of 2 shards is missing"},
		{"a version is no variant", files{"x2.safetensors": one, "x2.1.safetensors": half}, nil, nil, "several other files: x2.1.safetensors, x2.safetensors"},
		{"nor is what has a dash", files{"x.safetensors": one, "x.large-2.safetensors": half}, nil, nil, "several other files"},
		{"nor is that of another model", files{"x.safetensors": one, "y.fp16.safetensors": half}, nil, nil, "several other files"},

		{"the folders of a pipeline of diffusers", indexed, nil, fs.ErrNotExist, "no .safetensors file in it, only in folders of its pipeline: unet, vae"},
		{"other folders", pipeline, nil, fs.ErrNotExist, "only scheduler, unet, vae, x"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666))
			}
			if c.opens != nil {
				requireCheckpoint(t, dir, c.opens)
				return
			}
			counted, open := countOpen(os.DirFS(dir))
			for _, err := range []error{errorOf(Open(dir)), errorOf(Load(dir)), errorOf(OpenFS(counted, "."))} {
				require.ErrorContains(t, err, c.want)
				require.Equal(t, c.is == fs.ErrNotExist, errors.Is(err, fs.ErrNotExist))
				require.Equal(t, c.rule == unique || c.is == io.ErrUnexpectedEOF, errors.As(err, new(*FormatError)), "whether bytes are at fault")
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
			}
			require.Zero(t, open.Load(), "files are left open")
		})
	}
}

// TestUnknownTensor: the error names the checkpoint as it was opened, if it has a name.
func TestUnknownTensor(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, WriteFile("model.safetensors", checkpointOf(2), nil))
	require.NoError(t, WriteShards("shards", checkpointOf(2), nil, 64))
	for want, f := range map[string]*File{
		" of model.safetensors":                   must(Open("model.safetensors")),
		" of shards/model.safetensors.index.json": must(Load(filepath.FromSlash("shards"))),
		"": must(Parse(saved(nil, nil))),
	} {
		require.EqualError(t, errorOf(f.Tensor("typo")), "safetensors: no tensor"+filepath.FromSlash(want)+` is named "typo"`)
		require.EqualError(t, errorOf(must(Join(f)).Tensor("typo")), `safetensors: no tensor is named "typo"`)
		require.NoError(t, f.Close())
	}
}

// TestBrokenLink: the error names the link that leads nowhere, whether it is the file, its directory, or
// a file in the directory.
func TestBrokenLink(t *testing.T) {
	testplatform.NeedSymlinks(t)
	t.Chdir(t.TempDir())
	nowhere := filepath.FromSlash("../blobs/absent")
	require.NoError(t, os.Mkdir("dir", 0o777))
	require.NoError(t, os.Mkdir("indexed", 0o777))
	require.NoError(t, os.WriteFile("indexed/model.safetensors.index.json", []byte(`{"weight_map":{"x":"shard.safetensors"}}`), 0o666))
	for _, link := range []string{"link.safetensors", "linked", "dir/model.safetensors", "indexed/shard.safetensors"} {
		require.NoError(t, os.Symlink(nowhere, link))
	}
	for name, want := range map[string]string{
		"link.safetensors": "open link.safetensors: it",
		"linked/x":         filepath.FromSlash("open linked/x: linked"),
		"dir":              filepath.FromSlash("open dir/model.safetensors: it"),
		"indexed":          filepath.FromSlash("open indexed/model.safetensors.index.json: ") + `shard "shard.safetensors": it`,
	} {
		for _, err := range []error{errorOf(Open(filepath.FromSlash(name))), errorOf(Load(filepath.FromSlash(name)))} {
			require.EqualError(t, err, "safetensors: "+want+" is a link to "+nowhere+", which does not exist")
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
	}
}

// TestOpenURL: the error for a URL names the package that opens it.
func TestOpenURL(t *testing.T) {
	t.Chdir(t.TempDir())
	for url, want := range map[string]string{
		"hf://owner/name": "(package hub opens models of a hub)", "https://host/x.safetensors": "(package remote opens files of web servers)",
		"http://host/x": "(package remote opens files of web servers)", "file://host/x": "", "hf:/owner/name": "",
	} {
		for _, open := range []func(string) (*File, error){Open, Load, torch.Open, dcp.Open, checkpoint.Open} {
			err := errorOf(open(url))
			require.ErrorContains(t, err, "open "+url+": ")
			require.ErrorContains(t, err, want)
			require.Equal(t, want != "", strings.Contains(err.Error(), "(package"), err)
		}
	}
}

// TestTruncatedInput cuts a file at every length: each way to open it says that it
// is incomplete, as a server that resumes downloads asks.
func TestTruncatedInput(t *testing.T) {
	file := saved(map[string]Tensor{"a": counting(U32, 4)}, nil)
	for n := range len(file) {
		for way, err := range openingErrors(t, file[:n]) {
			require.ErrorAs(t, err, new(*FormatError), "%s %d", way, n)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s %d", way, n)
		}
	}
	require.NotErrorIs(t, errorOf(Parse(append(file, 0))), io.ErrUnexpectedEOF, "it is too long")
	require.NotErrorIs(t, errorOf(Parse([]byte("version https://git-lfs.github.com/spec/v1"))), io.ErrUnexpectedEOF, "it is something else")
}

// TestUnlistable: why a folder cannot be listed is the error, not that nothing is in it.
func TestUnlistable(t *testing.T) {
	_, err := OpenFS(unlistableFS{fstest.MapFS{"a.safetensors": {Data: fileOf("{}", 0)}}}, ".")
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NotErrorIs(t, err, fs.ErrNotExist)
}

type unlistableFS struct{ fstest.MapFS }

func (unlistableFS) ReadDir(string) ([]fs.DirEntry, error) { return nil, fs.ErrPermission }
