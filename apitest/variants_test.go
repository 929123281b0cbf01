package apitest_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestOpenVariant: next to a model its variants do not count, be they files, shards or
// indexes.
func TestOpenVariant(t *testing.T) {
	tensors, others := checkpointOf(t, 4), checkpointOf(t, 3)
	text := func(names ...string) string {
		part := make(map[string]Tensor)
		for _, name := range names {
			part[name] = tensors[name]
		}
		var b bytes.Buffer
		require.NoError(t, Write(&b, part, nil))
		return b.String()
	}
	var b bytes.Buffer
	require.NoError(t, Write(&b, others, nil))
	half := b.String()
	one, first, second := text("t00", "t01", "t02", "t03"), text("t00", "t01"), text("t02", "t03")
	index := `{"weight_map":{"t00":"x-00001-of-00002.safetensors","t01":"x-00001-of-00002.safetensors",
		"t02":"x-00002-of-00002.safetensors","t03":"x-00002-of-00002.safetensors"}}`
	const lost = `{"weight_map":{"t":"absent.safetensors"}}`
	for _, c := range []struct {
		rule  string
		files map[string]string
		opens map[string]Tensor // nil for an error
		want  string
	}{
		{"a file before its variant", map[string]string{"x.safetensors": one, "x.fp16.safetensors": half}, tensors, ""},
		{"before several", map[string]string{"x.safetensors": one, "x.fp16.safetensors": half, "x.non_ema.safetensors": half}, tensors, ""},
		{"before shards", map[string]string{"x.safetensors": one, "x.fp16-00001-of-00002.safetensors": half, "x.safetensors.index.fp16.json": lost}, tensors, ""},
		{"before shards of older writers", map[string]string{"x.safetensors": one, "x-00001-of-00002.fp16.safetensors": half}, tensors, ""},
		{"before an index", map[string]string{"x.safetensors": one, "x.fp16.safetensors.index.json": lost}, tensors, ""},
		{"before a variant of a variant", map[string]string{"x.safetensors": one, "x.ema.safetensors": half, "x.ema.fp16.safetensors": half}, tensors, ""},
		{"an index before that of a variant", map[string]string{"x.safetensors.index.json": index, "x-00001-of-00002.safetensors": first,
			"x-00002-of-00002.safetensors": second, "x.safetensors.index.fp16.json": lost, "x.fp16-00001-of-00001.safetensors": half}, tensors, ""},
		{"a set before a variant", map[string]string{"x-00001-of-00002.safetensors": first, "x-00002-of-00002.safetensors": second, "x.fp16.safetensors": half}, tensors, ""},
		{"a variant alone", map[string]string{"x.fp16.safetensors": half}, others, ""},
		{"its index alone", map[string]string{"x.safetensors.index.fp16.json": strings.ReplaceAll(index, "x-", "y_"),
			"y_00001-of-00002.safetensors": first, "y_00002-of-00002.safetensors": second}, tensors, ""},

		{"none of two variants", map[string]string{"x.fp16.safetensors": half, "x.bf16.safetensors": half}, nil, "several others: x.bf16.safetensors, x.fp16.safetensors"},
		{"half a set, not its variant", map[string]string{"x-00001-of-00002.safetensors": first, "x.fp16.safetensors": half}, nil, "1 of 2 shards are missing"},
		{"a version is no variant", map[string]string{"x2.safetensors": one, "x2.1.safetensors": half}, nil, "several others: x2.1.safetensors, x2.safetensors"},
		{"nor is what has a dash", map[string]string{"x.safetensors": one, "x.large-2.safetensors": half}, nil, "several others"},
		{"nor is that of another model", map[string]string{"x.safetensors": one, "y.fp16.safetensors": half}, nil, "several others"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666))
			}
			if c.opens != nil {
				requireCheckpoint(t, dir, c.opens)
				return
			}
			require.ErrorContains(t, errorOf(Open(dir)), c.want)
		})
	}
}

// TestOpenPipeline: the error for a pipeline of diffusers names its folders that have
// weights.
func TestOpenPipeline(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"model_index.json", "vae/x.safetensors", "unet/x.fp16.safetensors", "scheduler/config.json", "x/y/x.safetensors"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	for way, open := range map[string]func() (*File, error){
		"Open":   func() (*File, error) { return Open(dir) },
		"Load":   func() (*File, error) { return Load(dir) },
		"OpenFS": func() (*File, error) { return OpenFS(os.DirFS(dir), ".") },
	} {
		_, err := open()
		require.ErrorIs(t, err, fs.ErrNotExist, way)
		require.ErrorContains(t, err, "no .safetensors file in it, only in folders of its pipeline: unet, vae: ", way)
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "model_index.json")))
	require.ErrorContains(t, errorOf(Open(dir)), "only [scheduler, unet, vae, x]")
}
