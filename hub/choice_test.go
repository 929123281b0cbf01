package hub

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// TestOpenFindsWhatOpenFSFinds: for a repository, online and in the cache, Open opens the same
// files as safetensors.OpenFS does in a directory with the same content, or returns an error with
// the reason why there are none.
func TestOpenFindsWhatOpenFSFinds(t *testing.T) {
	weights, other := string(craft(100, 10)), string(craft(100, 20))
	const index = `{"weight_map":{"t":"part.safetensors"}}`
	for _, c := range []struct {
		name     string
		files    map[string]string
		requests int    // number of requests, for files and for the list
		text     string // text of the error, in addition to the text of OpenFS
	}{
		{"model.safetensors", map[string]string{"model.safetensors": weights, "model.safetensors.index.json": index, "x.safetensors": other}, 1, ""},
		{"the usual index", map[string]string{"model.safetensors.index.json": index, "part.safetensors": weights, "x.safetensors": other}, 3, ""},
		{"adapter", map[string]string{"adapter_model.safetensors": weights, "adapter_config.json": "{}"}, 4, ""},
		{"variant", map[string]string{"model.fp16.safetensors": weights, "config.json": "{}"}, 4, ""},
		{"model beside its variant", map[string]string{"x.safetensors": weights, "x.fp16.safetensors": other}, 4, ""},
		{"the only other index", map[string]string{"diffusion.safetensors.index.json": index, "part.safetensors": weights}, 5, ""},
		{"the index of a variant", map[string]string{"model.safetensors.index.fp16.json": index, "part.safetensors": weights}, 5, ""},
		{"a set without an index", map[string]string{"x-00001-of-00002.safetensors": weights, "x-00002-of-00002.safetensors": strings.ReplaceAll(other, `"t"`, `"u"`)}, 5, ""},
		{"a set with a gap", map[string]string{"x-00001-of-00002.safetensors": weights}, 3, "x-00002-of-00002.safetensors"},
		{"several", map[string]string{"a.safetensors": weights, "b.safetensors": other}, 3, "a.safetensors, b.safetensors"},
		{"a missing shard", map[string]string{"x.safetensors.index.json": index, "config.json": "{}"}, 4, `"part.safetensors"`},
		{"PyTorch", map[string]string{"pytorch_model.bin": "PK", "config.json": "{}", "training_args.bin": ""}, 3, "it has pytorch_model.bin: checkpoint.OpenFS reads it through Client.FS"},
		{"PyTorch beside an optimizer", map[string]string{"model.pt": "PK", "a.pt": ""}, 3, "it has model.pt: checkpoint.OpenFS"},
		{"only the state of a job", map[string]string{"optimizer.pt": "PK", "rng_state.pth": "PK"}, 3, "only optimizer.pt"},
		{"distributed", map[string]string{".metadata": "", "__0_0.distcp": ""}, 3, "it has __0_0.distcp: checkpoint.OpenFS"},
		{"nothing", map[string]string{"README.md": ""}, 3, "only README.md"},
		{"pipeline", map[string]string{"model_index.json": "{}", "unet/x.safetensors": weights}, 3, "only in folders of its pipeline: unet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, local, cache := newServer(t), fstest.MapFS{}, t.TempDir()
			s.addRepo(t, c.files)
			for name, text := range c.files {
				local[name] = &fstest.MapFile{Data: []byte(text)}
				s.add("/owner/name/resolve/main/"+name, []byte(text))
			}
			want, wanted := safetensors.OpenFS(local, ".")
			require.Equal(t, c.text == "", wanted == nil, wanted)

			client := newClient(t, s.URL)
			got, err := client.Open(t.Context(), "owner/name", "")
			requireSame(t, want, got, err)
			for _, r := range s.requests {
				require.NotContains(t, r.URL.Path, "README")
			}
			if err == nil {
				require.Len(t, s.requests, c.requests)
			} else {
				require.ErrorContains(t, err, "safetensors: open owner/name at revision main: ")
				require.ErrorContains(t, err, c.text)
				require.Equal(t, strings.Contains(c.text, "it has"), strings.Contains(err.Error(), "it has"), err)
				require.NotContains(t, err.Error(), "open .:")
			}

			t.Setenv("HF_HUB_OFFLINE", "1")
			t.Setenv("HF_HUB_CACHE", cache)
			repo := filepath.Join(cache, "models--owner--name")
			require.NoError(t, os.MkdirAll(filepath.Join(repo, "refs"), 0o777))
			require.NoError(t, os.WriteFile(filepath.Join(repo, "refs", "main"), []byte(commitOne), 0o666))
			require.NoError(t, os.CopyFS(filepath.Join(repo, "snapshots", commitOne), local))
			offline, err := client.Open(t.Context(), "owner/name", "")
			requireSame(t, want, offline, err)
			if err != nil {
				require.ErrorContains(t, err, "safetensors: HF_HUB_OFFLINE is set: the model of owner/name at revision main")
			}
		})
	}
}

// requireSame compares the tensors of two files. If want is nil, there must be an error.
func requireSame(t *testing.T, want, got *safetensors.File, err error) {
	t.Helper()
	if want == nil {
		require.Error(t, err)
		require.Nil(t, got)
		return
	}
	require.NoError(t, err)
	require.Equal(t, slices.Sorted(maps.Keys(maps.Collect(want.Tensors()))), slices.Sorted(maps.Keys(maps.Collect(got.Tensors()))))
	require.Equal(t, want.ParameterCount(), got.ParameterCount())
	for name := range want.Tensors() {
		require.Equal(t, must(safetensors.Elements[byte](want, name)), must(safetensors.Elements[byte](got, name)))
	}
	require.NoError(t, got.Close())
}

// TestListOffline: offline, there is no list of files. The error names the cache, and whether the
// repository is in it. Its text does not contain the text of errors.ErrUnsupported.
func TestListOffline(t *testing.T) {
	client, cache := newClient(t, ""), t.TempDir()
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("HF_HUB_CACHE", cache)
	err := errorOf(client.Files(t.Context(), "owner/name", ""))
	require.ErrorContains(t, err, `safetensors: HF_HUB_OFFLINE is set: "owner/name" at revision "main" is not in the cache `+cache)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotContains(t, err.Error(), "unsupported")
	require.NoError(t, os.MkdirAll(filepath.Join(cache, "models--owner--name", "snapshots", commitOne), 0o777))
	err = errorOf(client.FS(t.Context(), "owner/name", commitOne))
	require.ErrorContains(t, err, "is in the cache "+cache+", but the list of its files is only on the hub")
	require.NotContains(t, err.Error(), "unsupported")
}
