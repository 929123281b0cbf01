package checkpoint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// files returns a file system with files of some content by name.
func files(contents map[string]string) fstest.MapFS {
	fsys := make(fstest.MapFS)
	for name, content := range contents {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return fsys
}

// TestModels: the directories with weights that the lists of parts name, and "." of a plain model.
func TestModels(t *testing.T) {
	const modules = `[{"path":"","type":"a.Transformer"},{"path":"1_Pooling","type":"a.Pooling"},{"path":"3_Dense","type":"a.Dense"},{"path":"2_Dense","type":"a.Dense"},{"path":"4_Gone","type":"a.Dense"}]`
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"plain":       {map[string]string{"x.safetensors": "", "a/model.safetensors": ""}, []string{"."}},
		"torch":       {map[string]string{"pytorch_model.bin": ""}, []string{"."}},
		"distributed": {map[string]string{".metadata": "", "__0_0.distcp": ""}, []string{"."}},
		"sentence":    {map[string]string{"model.safetensors": "", "modules.json": modules, "1_Pooling/config.json": "{}", "2_Dense/pytorch_model.bin": "", "3_Dense/model.safetensors": ""}, []string{".", "2_Dense", "3_Dense"}},
		"router": {map[string]string{"modules.json": `[{"path":"","type":"a.Router"},{"path":"1_Router","type":"a.Router"},{"path":"2_Router","type":"a.Router"}]`,
			"router_config.json":               `{"types":{"document_0_MLMTransformer":"a.MLMTransformer","document_1_SpladePooling":"a.SpladePooling","query_0_Static":"a.Static"}}`,
			"query_0_Static/model.safetensors": "", "document_0_MLMTransformer/pytorch_model.bin": "", "document_1_SpladePooling/config.json": "{}",
			"1_Router/router_config.json": `{"types":{"a_0_Dense":"a.Dense"}}`, "1_Router/a_0_Dense/model.safetensors": ""},
			[]string{"1_Router/a_0_Dense", "document_0_MLMTransformer", "query_0_Static"}},
		"pipeline": {map[string]string{"model_index.json": `{"_class_name":"P","vae":["d","A"],"unet":["d","U"],"none":[null,null],"tokenizer":["t","T"],"flag":[true,false],"time":Infinity}`,
			"old.safetensors": "", "vae/x.fp16.safetensors": "", "unet/x.bin": "", "tokenizer/vocab.json": ""}, []string{"unet", "vae"}},
	} {
		got, err := checkpoint.Models(files(c.files), ".")
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	sub, err := checkpoint.Models(files(map[string]string{"a/b/model.safetensors": ""}), "a/b")
	require.NoError(t, err)
	require.Equal(t, []string{"."}, sub, "directories are relative to the name")
}

// TestModelsErrors: a list of parts that leaves the directory, or cannot be read, is an error.
func TestModelsErrors(t *testing.T) {
	for text, c := range map[string]map[string]string{
		`the path "../x" of a module leaves the directory`: {"modules.json": `[{"path":"../x"}]`},
		`the path "/x" of a module leaves the directory`:   {"modules.json": `[{"path":"/x"}]`},
		`router_config.json: the module "../x" leaves`:     {"modules.json": `[{"path":"","type":"a.Router"}]`, "router_config.json": `{"types":{"../x":"a"}}`},
		`router_config.json: not the JSON that`:            {"modules.json": `[{"path":"","type":"a.Router"}]`, "router_config.json": `[]`},
		`the component "../x" leaves the directory`:        {"model_index.json": `{"../x":["a","b"]}`},
		`a Git LFS pointer`:                                {"model_index.json": "version https://git-lfs.github.com/spec/v1\n"},
		`a page of HTML`:                                   {"modules.json": "<html>"},
		`the file is empty`:                                {"modules.json": ""},
		`no path`:                                          {"modules.json": `[{}]`},
		`no model in it`:                                   {"config.json": `{}`},
	} {
		_, err := checkpoint.Models(files(c), ".")
		require.ErrorContains(t, err, text)
	}
	_, err := checkpoint.Models(files(map[string]string{"config.json": "{}"}), ".")
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, name := range []string{"none", "/x", "a/.."} {
		_, err = checkpoint.Models(files(nil), name)
		require.Error(t, err, name)
	}
	_, err = checkpoint.Models(nil, ".")
	require.ErrorContains(t, err, "the fs.FS is nil")
}

// TestVersion: it is the same for the same files, and another one after a file that Open would open,
// or that an index names in a directory below, has another size or time. Other files do not count.
func TestVersion(t *testing.T) {
	fsys := files(map[string]string{
		"model.safetensors.index.json": `{"weight_map":{"a":"below/a.safetensors","b":"b.safetensors"}}`,
		"b.safetensors":                "b", "below/a.safetensors": "a", "config.json": "{}", "README.md": "text",
	})
	version := func() string {
		v, err := checkpoint.Version(fsys, ".")
		require.NoError(t, err)
		return v
	}
	first := version()
	require.Equal(t, first, version())
	requireFaults(t, fsys)
	fsys["README.md"].Data = []byte("longer text")
	require.Equal(t, first, version())
	seen := map[string]bool{first: true}
	for _, name := range []string{"b.safetensors", "below/a.safetensors", "config.json", "model.safetensors.index.json"} {
		fsys[name].ModTime = time.Unix(1, 1)
		require.NotContains(t, seen, version(), name)
		seen[version()] = true
		fsys[name].Data = append(fsys[name].Data, ' ')
		require.NotContains(t, seen, version(), name)
		seen[version()] = true
	}
	delete(fsys, "below/a.safetensors")
	require.NotContains(t, seen, version())
	one, err := checkpoint.Version(fsys, "b.safetensors")
	require.NoError(t, err)
	require.NotContains(t, seen, one)
	_, err = checkpoint.Version(fsys, "none")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestVersionBelow: the version of a pipeline depends on its list and on all its models. A directory without models has none.
func TestVersionBelow(t *testing.T) {
	fsys := files(map[string]string{
		"model_index.json":                         `{"_class_name": "P", "unet": ["diffusers", "U"], "text": ["transformers", "T"]}`,
		"unet/diffusion_pytorch_model.safetensors": "u", "text/model.safetensors": "t", "text/config.json": "{}", "other/x.safetensors": "o",
	})
	seen := make(map[string]bool)
	changed := func() bool {
		v, err := checkpoint.Version(fsys, ".")
		require.NoError(t, err)
		defer func() { seen[v] = true }()
		return !seen[v]
	}
	require.True(t, changed())
	requireFaults(t, fsys)
	fsys["other/x.safetensors"].ModTime = time.Unix(1, 1)
	require.False(t, changed())
	for _, name := range []string{"model_index.json", "unet/diffusion_pytorch_model.safetensors", "text/model.safetensors", "text/config.json"} {
		fsys[name].ModTime = time.Unix(1, 1)
		require.True(t, changed(), name)
	}
	_, err := checkpoint.Version(files(map[string]string{"README.md": "text"}), ".")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestVersionOfReplaced: on systems that number files, a file that replaces another one of the same size and time
// changes the version.
func TestVersionOfReplaced(t *testing.T) {
	dir := t.TempDir()
	name, next := filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "next")
	version := func() string {
		v, err := checkpoint.Version(os.DirFS(dir), ".")
		require.NoError(t, err)
		return v
	}
	for _, file := range []string{name, next} {
		require.NoError(t, os.WriteFile(file, []byte("x"), 0o666))
		require.NoError(t, os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)))
	}
	old := version()
	require.NoError(t, os.Rename(next, name))
	switch runtime.GOOS {
	case "linux", "darwin", "freebsd":
		require.NotEqual(t, old, version())
	}
}
