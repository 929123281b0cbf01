package checkpoint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/gosafetensors/safetensors/torch"
	"github.com/stretchr/testify/require"
)

// tree writes files and links below a new directory: a content that starts with "-> " is the target of a link.
func tree(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range contents {
		at := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o777))
		if len(content) > 3 && content[:3] == "-> " {
			if err := os.Symlink(content[3:], at); err != nil {
				t.Skip("no links here: ", err)
			}
			continue
		}
		require.NoError(t, os.WriteFile(at, []byte(content), 0o666))
	}
	return dir
}

// TestLinks: links within a directory and to the blobs of the hub's cache are followed. Links out of the directory
// are findings that name them, and errors of Open, whether they are weights, configs, directories or go through others.
func TestLinks(t *testing.T) {
	if _, ok := os.DirFS(".").(interface{ ReadLink(string) (string, error) }); !ok {
		t.Skip("os.DirFS tells no links before Go 1.25")
	}
	const sum = "6383774fe85c66ebdbfff2dc75f6d4ed756309d4593eca12a586aa1b888ef841"
	packed := weights(t, map[string]float32{"x": 1})
	other := index(t, map[string]string{"x": "sub/model.safetensors"})
	outside := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, os.WriteFile(outside, []byte(packed), 0o666))
	for name, c := range map[string]struct {
		files map[string]string
		finds string // a part of the finding; "" if there is none
		opens bool
	}{
		"plain":                 {map[string]string{"m/model.safetensors": packed}, "", true},
		"within":                {map[string]string{"m/model.safetensors": "-> x/y", "m/x/y": packed}, "", true},
		"up and down":           {map[string]string{"m/model.safetensors": "-> x/../z", "m/x/y": packed, "m/z": packed}, "", true},
		"blob":                  {map[string]string{"snapshots/c/model.safetensors": "-> ../../blobs/" + sum, "blobs/" + sum: packed}, "", true},
		"blob of a local copy":  {map[string]string{"m/model.safetensors": "-> ../hub/models--o--n/blobs/" + sum, "hub/models--o--n/blobs/" + sum: packed}, "", true},
		"blob without a sum":    {map[string]string{"snapshots/c/model.safetensors": "-> ../../blobs/secret", "blobs/secret": packed}, `"model.safetensors" is a link that leads out of the directory, to "../../blobs/secret"`, false},
		"absolute":              {map[string]string{"m/model.safetensors": "-> " + outside}, `"model.safetensors" is a link that leads out`, false},
		"beside":                {map[string]string{"m/model.safetensors": "-> ../x", "x": packed}, `to "../x"`, false},
		"second link":           {map[string]string{"m/model.safetensors": "-> a", "m/a": "-> ../x", "x": packed}, `to "../x"`, false},
		"up from a link":        {map[string]string{"m/model.safetensors": "-> a/../y", "m/a": "-> b/c", "m/b/c/z": "", "m/b/y": packed}, "", true},
		"up from another place": {map[string]string{"m/model.safetensors": "-> a/../y", "m/a": "-> ../b", "y": packed, "m/y": packed, "b/z": ""}, `to "../b"`, false},
		"config":                {map[string]string{"m/model.safetensors": packed, "m/config.json": "-> ../x", "x": "{}"}, `"config.json" is a link`, true},
		"directory of an index": {map[string]string{"m/model.safetensors.index.json": other, "m/sub": "-> ../out", "out/model.safetensors": packed}, `"sub/model.safetensors" is a link`, false},
		"component":             {map[string]string{"m/model_index.json": `{"vae":["diffusers","A"]}`, "m/vae": "-> ../out", "out/model.safetensors": packed}, `"vae" is a link`, false},
		"circle":                {map[string]string{"m/model.safetensors": packed, "m/model-2.safetensors": "-> model-2.safetensors"}, `"model-2.safetensors" is a link`, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, c.files)
			for _, below := range []string{"m", "snapshots/c"} {
				if _, err := os.Stat(filepath.Join(dir, below)); err == nil {
					dir = filepath.Join(dir, below)
				}
			}
			found := check(t, os.DirFS(dir))
			if c.finds == "" {
				require.Empty(t, found)
			} else {
				require.Len(t, found, 1)
				require.Contains(t, found[0], c.finds)
			}
			f, err := checkpoint.Open(dir)
			if err == nil {
				require.NoError(t, f.Close())
			}
			g, errFS := checkpoint.OpenFS(os.DirFS(dir), ".")
			if errFS == nil {
				require.NoError(t, g.Close())
			}
			require.Equal(t, c.opens, err == nil, err)
			require.Equal(t, c.opens, errFS == nil, errFS)
		})
	}
}

// TestLinksOfVariants: Open and OpenFS with a Variant refuse a link that leads out of the directory as they do without
// one, also in a directory of the file system.
func TestLinksOfVariants(t *testing.T) {
	if _, ok := os.DirFS(".").(interface{ ReadLink(string) (string, error) }); !ok {
		t.Skip("os.DirFS tells no links before Go 1.25")
	}
	packed := weights(t, map[string]float32{"x": 1})
	dir := tree(t, map[string]string{
		"m/model.safetensors": packed, "m/model.fp16.safetensors": "-> ../secret", "m/model.bf16.safetensors": "-> stored", "m/stored": packed,
		"secret": packed,
	})
	m := filepath.Join(dir, "m")
	opened := func(f *safetensors.File, err error) error {
		if err == nil {
			return f.Close()
		}
		return err
	}
	for variant, want := range map[string]string{"fp16": `is a link that leads out of the directory, to "../secret"`, "bf16": ""} {
		o := checkpoint.Opener{Variant: variant}
		for _, err := range []error{opened(o.Open(m)), opened(o.OpenFS(os.DirFS(m), ".")), opened(o.OpenFS(os.DirFS(dir), "m"))} {
			if want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, want)
			}
		}
	}
}

// TestPipesOfFileSystems: a named pipe in the place of a file is an error, in a file system that has links. Nothing
// waits for its writer.
func TestPipesOfFileSystems(t *testing.T) {
	if _, ok := os.DirFS(".").(interface{ ReadLink(string) (string, error) }); !ok {
		t.Skip("os.DirFS tells no links before Go 1.25")
	}
	for _, name := range []string{"model.safetensors", "model.fp16.safetensors", "model.safetensors.index.json", "pytorch_model.bin", ".metadata"} {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "m"), 0o777))
		testplatform.MakePipe(t, filepath.Join(dir, "m", name))
		below, err := fs.Sub(os.DirFS(dir), "m")
		require.NoError(t, err)
		for _, variant := range []string{"", "fp16"} {
			if variant != "" && name != "model.fp16.safetensors" {
				continue
			}
			o := checkpoint.Opener{Variant: variant}
			for _, open := range []func() (*safetensors.File, error){
				func() (*safetensors.File, error) { return o.OpenFS(os.DirFS(filepath.Join(dir, "m")), ".") },
				func() (*safetensors.File, error) { return o.OpenFS(os.DirFS(dir), "m") },
				func() (*safetensors.File, error) { return o.OpenFS(below, ".") },
			} {
				_, err := open()
				require.ErrorContains(t, err, "is a named pipe", name)
			}
		}
		require.NotEmpty(t, check(t, below), name)
	}
}

// TestPipeOutOfFileSystem: a link that leads out of the file system of fs.Sub to a named pipe is an error, for each
// func that opens a name in it. Nothing waits for the writer of the pipe.
func TestPipeOutOfFileSystem(t *testing.T) {
	testplatform.NeedSymlinks(t)
	if _, ok := os.DirFS(".").(interface{ ReadLink(string) (string, error) }); !ok {
		t.Skip("os.DirFS tells no links before Go 1.25")
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "m"), 0o777))
	testplatform.MakePipe(t, filepath.Join(dir, "pipe"))
	below, err := fs.Sub(os.DirFS(dir), "m")
	require.NoError(t, err)
	for _, name := range []string{"x.safetensors", "x.pt", ".metadata"} {
		require.NoError(t, os.Symlink("../pipe", filepath.Join(dir, "m", name)))
	}
	opened := func(_ *safetensors.File, err error) error { return err }
	for _, err := range []error{
		opened(checkpoint.OpenFS(below, "x.safetensors")), opened(checkpoint.OpenFS(below, "x.pt")), opened(checkpoint.OpenFS(below, ".")),
		opened(safetensors.OpenFS(below, "x.safetensors")), opened(torch.OpenFS(below, "x.pt")), opened(dcp.OpenFS(below, ".")),
	} {
		require.ErrorContains(t, err, `is a link that leads out of the directory, to "../pipe"`)
	}
}
