package variant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCutVariant: a variant starts with a letter, which letters, digits and underscores may follow.
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

// TestAmong: Among returns the files and the indexes with these endings, without the variants of a
// model whose plain files are present.
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
	for _, names := range [][]string{
		{"x.pt", "x.fp16.123456789-00001-of-00002.pt"}, {"x.pt", "x.123456789-00001-of-00002.fp16.pt"},
		{"x.123456789-00001-of-00002.pt", "x.fp16.123456789-00001-of-00002.pt"},
	} {
		files, _ := e.Among(names)
		require.Equal(t, names[:1], files, "the digits of a save do not hide what a variant is a variant of")
	}
	require.True(t, e.IsIndex("any.index.json"))
	require.False(t, e.IsIndex("any.json"))
}

// TestParseShard: every part is found, and String puts the parts together again.
func TestParseShard(t *testing.T) {
	for name, want := range map[string]Shard{
		"model-00001-of-00003.safetensors":                     {Stem: "model", Number: "00001", Count: "00003", Ending: ".safetensors"},
		"model.123456789-00001-of-00003.safetensors":           {Stem: "model", Save: "123456789", Number: "00001", Count: "00003", Ending: ".safetensors"},
		"model.fp16-000001-of-000003.bin":                      {Stem: "model", Variant: "fp16", Number: "000001", Count: "000003", Ending: ".bin"},
		"model.fp16.123456789-00001-of-00003.bin":              {Stem: "model", Variant: "fp16", Save: "123456789", Number: "00001", Count: "00003", Ending: ".bin"},
		"model-00001-of-00003.fp16.safetensors":                {Stem: "model", Variant: "fp16", Number: "00001", Count: "00003", Ending: ".safetensors", late: true},
		"model.123456789-00001-of-00003.fp16.safetensors":      {Stem: "model", Variant: "fp16", Save: "123456789", Number: "00001", Count: "00003", Ending: ".safetensors", late: true},
		"x.fp16-00001-of-00003.ema.bin":                        {Stem: "x.fp16", Variant: "ema", Number: "00001", Count: "00003", Ending: ".bin", late: true},
		"model.2-00001-of-00003.safetensors":                   {Stem: "model.2", Number: "00001", Count: "00003", Ending: ".safetensors"},
		"model.12345678-00001-of-00003.safetensors":            {Stem: "model.12345678", Number: "00001", Count: "00003", Ending: ".safetensors"},
		"model.1234567890-00001-of-00003.safetensors":          {Stem: "model.1234567890", Number: "00001", Count: "00003", Ending: ".safetensors"},
		"model.-00001-of-00003.safetensors":                    {Stem: "model.", Number: "00001", Count: "00003", Ending: ".safetensors"},
		"model.12345678x-00001-of-00003.safetensors":           {Stem: "model.12345678x", Number: "00001", Count: "00003", Ending: ".safetensors"},
		"123456789-00001-of-00003.safetensors":                 {Stem: "123456789", Number: "00001", Count: "00003", Ending: ".safetensors"},
		".123456789-00001-of-00003.safetensors":                {Stem: ".123456789", Number: "00001", Count: "00003", Ending: ".safetensors"},
		"a-00001-of-00002-00003-of-00004.safetensors":          {Stem: "a-00001-of-00002", Number: "00003", Count: "00004", Ending: ".safetensors"},
		"unet/x-y.non_ema-00001-of-00002.safetensors":          {Stem: "unet/x-y", Variant: "non_ema", Number: "00001", Count: "00002", Ending: ".safetensors"},
		"shard-00001-model-00001-of-00001.safetensors":         {Stem: "shard-00001-model", Number: "00001", Count: "00001", Ending: ".safetensors"},
		"model.123456789.987654321-00001-of-00002.bin":         {Stem: "model.123456789", Save: "987654321", Number: "00001", Count: "00002", Ending: ".bin"},
		"diffusion_pytorch_model-00001-of-00002.safetensors":   {Stem: "diffusion_pytorch_model", Number: "00001", Count: "00002", Ending: ".safetensors"},
		"model-00001-of-00002-fp16-00001-of-00009.safetensors": {Stem: "model-00001-of-00002-fp16", Number: "00001", Count: "00009", Ending: ".safetensors"},
	} {
		s, ok := ParseShard(name)
		require.True(t, ok, name)
		require.Equal(t, want, s, name)
		require.Equal(t, name, s.String())
		s.Number = "99999"
		require.Equal(t, want.Set(), s.Set(), name)
	}
	for _, name := range []string{
		"", ".safetensors", "model.safetensors", "model.123456789.safetensors", "model-0001-of-00002.safetensors", "model-00001-of-0002.safetensors",
		"-00001-of-00002.safetensors", "00001-of-00002.safetensors", "model-00001-of-.safetensors", "model--of-00002.safetensors", "model_00001-of-00002.safetensors",
		"model-0000a-of-00002.safetensors", "model-00001-of-0000a.safetensors", "model-00001-of-00002.2.safetensors", "model-00001-of-00002.safetensors.index.json",
		"model-00001-of-00002.fp16.ema.safetensors", "model-0001-of-00002.fp16.safetensors",
	} {
		s, ok := ParseShard(name)
		require.False(t, ok, name)
		require.Zero(t, s, name)
	}
}

// TestWithSave: the digits of a save come before the number of the shard, once.
func TestWithSave(t *testing.T) {
	for range 1000 {
		save := NewSave()
		require.Regexp(t, "^[1-9][0-9]{8}$", save)
		s, ok := ParseShard(WithSave("x-00001-of-00002.bin", save))
		require.True(t, ok && s.Save == save)
	}
	for name, want := range map[string]string{
		"model-00001-of-00002.safetensors":           "model.987654321-00001-of-00002.safetensors",
		"model.123456789-00001-of-00002.safetensors": "model.987654321-00001-of-00002.safetensors",
		"model.fp16-00001-of-00002.safetensors":      "model.fp16.987654321-00001-of-00002.safetensors",
		"model-00001-of-00002.fp16.safetensors":      "model.987654321-00001-of-00002.fp16.safetensors",
		"model.2-00001-of-00002.safetensors":         "model.2.987654321-00001-of-00002.safetensors",
		"model.safetensors":                          "model.987654321.safetensors",
		"model.fp16.safetensors":                     "model.fp16.987654321.safetensors",
		"model.123456789.safetensors":                "model.987654321.safetensors",
	} {
		require.Equal(t, want, WithSave(name, "987654321"))
	}
}

// TestIsRank tries the names that HuggingFaceStorageWriter gives to files, and similar names.
func TestIsRank(t *testing.T) {
	for _, name := range []string{"shard-00001-model-00001-of-00001.safetensors", "shard-100000-x.safetensors"} {
		require.True(t, IsRank(name), name)
	}
	for _, name := range []string{"", "shard-0001-x.safetensors", "shard-00001-.safetensors", "shard-00001.safetensors", "00001-x.safetensors", "shard-0000a-x.safetensors", "shard-00001-x.bin", "shard-00001-xsafetensors", "ashard-00001-x.safetensors"} {
		require.False(t, IsRank(name), name)
	}
}

// TestSplit splits names of files and of indexes.
func TestSplit(t *testing.T) {
	for name, want := range map[string][2]string{
		"model.safetensors": {"model", ""}, "model.123456789-00001-of-00002.safetensors": {"model", ""}, "consolidated.safetensors.index.json": {"consolidated", ""},
		"x.safetensors.index.fp16.json": {"x", "fp16"}, "x.fp16.safetensors.index.json": {"x", "fp16"}, "x.fp16.123456789-00001-of-00002.safetensors": {"x", "fp16"},
	} {
		model, of := Endings{".safetensors"}.Split(name)
		require.Equal(t, want, [2]string{model, of}, name)
	}
}

// TestNames: FileName and IndexName make names that Split splits, and only the name of an index is one of an index.
func TestNames(t *testing.T) {
	e := Endings{".safetensors"}
	for of, want := range map[string][2]string{
		"": {"x-y.safetensors", "x-y.safetensors.index.json"}, "fp16": {"x-y.fp16.safetensors", "x-y.safetensors.index.fp16.json"},
	} {
		require.Equal(t, want, [2]string{FileName("x-y", of, ".safetensors"), IndexName("x-y", of, ".safetensors")})
		for i, name := range want {
			model, found := e.Split(name)
			require.Equal(t, [2]string{"x-y", of}, [2]string{model, found})
			require.Equal(t, i == 1, e.IsIndex(name))
		}
	}
}

// TestMainOf: Main prefers the usual file to its index, and that to any other index.
func TestMainOf(t *testing.T) {
	const usual, index, other = "m.safetensors", "m.safetensors.index.json", "x.safetensors.index.json"
	require.Equal(t, usual, Main(usual, []string{"a", usual}, []string{index, other}))
	require.Equal(t, index, Main(usual, []string{"a"}, []string{other, index}))
	require.Equal(t, other, Main(usual, []string{"a"}, []string{other}))
	require.Empty(t, Main(usual, []string{"a"}, []string{other, "y"}))
	require.Empty(t, Main(usual, []string{"a"}, nil))
}

func TestModel(t *testing.T) {
	for _, name := range []string{"x.safetensors", "x.fp16.safetensors", "x-00001-of-00002.safetensors", "x.fp16-00001-of-00002.safetensors",
		"x-00001-of-00002.fp16.safetensors", "x.123456789-00001-of-00002.safetensors", "x.bin", "x"} {
		require.Equal(t, "x", Model(name), name)
	}
	require.Equal(t, "wan2.1", Model("wan2.1.safetensors"), "a version is not a variant")
	require.Equal(t, "consolidated.00", Model("consolidated.00.pth"))
}
