package variant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCutVariant: a variant starts with a letter and goes on with letters, digits and
// underscores.
func TestCutVariant(t *testing.T) {
	for name, want := range map[string][2]string{
		"x.fp16": {"x", "fp16"}, "x.a": {"x", "a"}, "x.Z": {"x", "Z"}, "x.z0_9A": {"x", "z0_9A"}, "x.y.ema": {"x.y", "ema"}, "x.": {"x", ""},
		"x": {"x", ""}, ".fp16": {".fp16", ""}, "x2.1": {"x2.1", ""}, "x._a": {"x._a", ""}, "x.a-b": {"x.a-b", ""}, "x.a:": {"x.a:", ""},
		"x.`": {"x.`", ""}, "x.{": {"x.{", ""}, "x.a/": {"x.a/", ""}, "x.@": {"x.@", ""}, "x.[": {"x.[", ""}, "x.a\x7f": {"x.a\x7f", ""},
	} {
		model, variant := cutVariant(name)
		require.Equal(t, want, [2]string{model, variant}, name)
	}
}

// TestAmong: files and indexes of the endings, without variants of a model that is there.
func TestAmong(t *testing.T) {
	e := Endings{".bin", ".pt"}
	for _, c := range []struct{ names, files, indexes []string }{
		{[]string{"x.bin", "x.fp16.bin", "x.json", "x.safetensors", "y.pt"}, []string{"x.bin", "y.pt"}, nil},
		{[]string{"x.bin.index.json", "x-00001-of-00001.bin", "x.bin.index.fp16.json", "x.fp16-00001-of-00001.bin"}, []string{"x-00001-of-00001.bin"}, []string{"x.bin.index.json"}},
		{[]string{"x.bin.index.fp16.json", "x.safetensors.index.fp16.json", "x.index.json"}, nil, []string{"x.bin.index.fp16.json"}},
		{[]string{"x-00001-of-00002.fp16.bin", "x.pt"}, []string{"x.pt"}, nil},
		{[]string{"x-00001-of-0002.fp16.bin", "x-0001-of-00002.bin"}, []string{"x-00001-of-0002.fp16.bin", "x-0001-of-00002.bin"}, nil},
	} {
		files, indexes := e.Among(c.names)
		require.Equal(t, c.files, files, c.names)
		require.Equal(t, c.indexes, indexes, c.names)
	}
	for name, want := range map[string]string{"x.bin": "", "x.fp16.bin": "fp16", "x.bin.index.fp16.json": "fp16", "x-00001-of-00002.ema.bin": "ema", "x.1.bin": ""} {
		require.Equal(t, want, e.Of(name), name)
	}
	require.True(t, e.IsIndex("any.index.json"))
	require.False(t, e.IsIndex("any.json"))
}
