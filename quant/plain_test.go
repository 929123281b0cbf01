package quant_test

import (
	"fmt"
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
	"github.com/gosafetensors/safetensors/quant"
)

// TestPlainConfig: the sections that describe how weights were quantised are removed, the dtype
// becomes that of the weights, and everything else stays unchanged, in its order.
func TestPlainConfig(t *testing.T) {
	section := `{"quant_method":"fp8"}`
	for _, c := range []struct {
		config string
		d      safetensors.DType
		want   string // the members, one in each line; "" if the result is the config itself
	}{
		{`{"z":1,"torch_dtype":"float16","quantization_config":` + section + `,"a":{"b":[1, 2]},"<":"&"}`, safetensors.BF16, `{"z":1,"torch_dtype":"bfloat16","a":{"b":[1,2]},"<":"&"}`},
		{`{"dtype":"float16","torch_dtype":"float16","quantization_config":{"bits":4,"group_size":64},"quantization":{"bits":4,"group_size":64}}`, safetensors.F32, `{"dtype":"float32","torch_dtype":"float32"}`},
		{`{"b":1,"a":2,"quantization_config":` + section + `}`, safetensors.BF16, `{"b":1,"a":2,"torch_dtype":"bfloat16"}`},
		{`{"dtype":null,"quantization_config":null}`, safetensors.F16, `{"dtype":null,"torch_dtype":"float16"}`},
		{`{"thinker_config":{"x":1,"text_config":{"dtype":"float16","quantization_config":` + section + `},"audio_config":{"dtype":"float16"}}}`, safetensors.BF16,
			`{"thinker_config":{"x":1,"text_config":{"dtype":"bfloat16"},"audio_config":{"dtype":"float16"}}}`},
		{`{"text_config":{"compression_config":` + section + `,"hidden_size":8},"vision_config":{"quantization":{"levels":8},"torch_dtype":"float16"},"torch_dtype":"float16"}`, safetensors.F32,
			`{"text_config":{"hidden_size":8},"vision_config":{"quantization":{"levels":8},"torch_dtype":"float16"},"torch_dtype":"float32"}`},
		{`{"compression_config":{"ratio":4},"dtype":"bfloat16"}`, safetensors.BF16, ""},
		{`{"time_step_limit":[0.0,Infinity],"x":-Infinity,"y":"NaN","n":NaN,"dtype":"auto"}`, safetensors.BF16, `{"time_step_limit":[0.0,Infinity],"x":-Infinity,"y":"NaN","n":NaN,"dtype":"bfloat16"}`},
		{`{"torch_dtype":"float16","quantization_config":` + section + `}`, 0, `{"torch_dtype":"float16"}`},
		{`{"a":1e400,"big":12345678901234567890}`, 0, ""},
		{`{}`, 0, ""},
		{`{"quantization_config":` + section + `}`, 0, `{}`},
	} {
		before := []byte(c.config)
		got := must(quant.PlainConfig(before, c.d))
		require.Equal(t, c.config, string(before))
		if c.want == "" {
			require.Equal(t, c.config, string(got))
			continue
		}
		compact := strings.NewReplacer("\n", "", "  ", "", ": ", ":").Replace(string(got))
		require.Equal(t, c.want, compact)
		require.True(t, strings.HasSuffix(string(got), "}\n"))
		require.Equal(t, got, must(quant.PlainConfig(got, c.d)), "it is plain already")
	}
	for config, want := range map[string]string{
		`[]`: "safetensors: the config: [] is not an object", `{`: "safetensors: the config: unexpected end of JSON input", ``: "safetensors: the config: unexpected end of JSON input",
		`{"a":1,"a":2}`: `safetensors: the config: duplicate key "a"`, `{"x":"` + strings.Repeat("y", 4<<20) + `"}`: "safetensors: the config: 4194312 bytes exceed the limit of 4194304",
	} {
		require.EqualError(t, errorOf(quant.PlainConfig([]byte(config), safetensors.BF16)), want)
	}
	require.EqualError(t, errorOf(quant.PlainConfig([]byte("{}"), safetensors.I8)), "safetensors: I8 is not a dtype in which models are loaded")
}

// TestPlainConfigs: for the config of each vector, the result contains nothing that Dequantize
// would use.
func TestPlainConfigs(t *testing.T) {
	for _, name := range vectorFiles(t, "[^q]*.safetensors") {
		v := readVector(t, name)
		if v.config == nil {
			continue
		}
		plain := must(quant.PlainConfig(v.config, safetensors.BF16))
		tensors := map[string]safetensors.Tensor{}
		zeroed("a.weight", safetensors.BF16, 2, 2)(tensors)
		require.Equal(t, tensors, dequantized(t, tensors, plain), name)
		require.Contains(t, string(plain), `"torch_dtype": "bfloat16"`)
	}
}

// filesOf returns the files of a directory as a file system in memory.
func filesOf(t *testing.T, folder string) fstest.MapFS {
	t.Helper()
	fsys := fstest.MapFS{}
	for _, e := range must(os.ReadDir(folder)) {
		fsys["models/m/"+e.Name()] = &fstest.MapFile{Data: must(os.ReadFile(filepath.Join(folder, e.Name())))}
	}
	return fsys
}

// TestOpenFS opens in a file system what Open opens in a directory: a directory, a file, a single
// shard.
func TestOpenFS(t *testing.T) {
	v := readVector(t, "testdata/ct-packed-4-zero-group.safetensors")
	folder := t.TempDir()
	require.NoError(t, safetensors.WriteShards(folder, v.tensors, nil, 1))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), v.config, 0o666))
	fsys := filesOf(t, folder)
	for _, fsys := range []fs.FS{fsys, os.DirFS(filepath.Dir(folder))} {
		name := "models/m"
		if _, ok := fsys.(fstest.MapFS); !ok {
			name = filepath.Base(folder)
		}
		for _, name := range []string{name, name + "/model.safetensors.index.json"} {
			f := must(quant.OpenFS(fsys, name))
			for name, want := range v.want {
				requireSame(t, want, elements[float32](t, must(f.Tensor(name))), name)
			}
			require.NoError(t, f.Close())
		}
	}
	fsys["models/m/model-00001-of-00002.fp16.safetensors"] = &fstest.MapFile{Data: normShard(t)}
	require.Equal(t, 1, must(quant.OpenFS(fsys, "models/m/model-00001-of-00002.fp16.safetensors")).Len())

	fsys["models/m/config.json"].Mode = fs.ModeNamedPipe
	require.EqualError(t, errorOf(quant.OpenFS(fsys, "models/m")), "safetensors: open models/m/config.json: is a named pipe")
	fsys["models/m/config.json"] = &fstest.MapFile{Data: make([]byte, 4<<20+1)}
	require.EqualError(t, errorOf(quant.OpenFS(fsys, "models/m")), "safetensors: read models/m/config.json: it has more than 4194304 bytes")
	fsys["models/m/config.json"] = &fstest.MapFile{Data: []byte("{")}
	require.EqualError(t, errorOf(quant.OpenFS(fsys, "models/m")), "safetensors: open models/m: the config: unexpected end of JSON input")
	require.ErrorIs(t, errorOf(quant.OpenFS(fsys, "models/none")), fs.ErrNotExist)
	require.ErrorIs(t, errorOf(quant.OpenFS(fsys, "../m")), fs.ErrInvalid)
	require.ErrorContains(t, errorOf(quant.OpenFS(nil, ".")), "the fs.FS is nil")
}

// normShard returns a shard without quantised tensors.
func normShard(t *testing.T) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, safetensors.WriteFile(name, checkpoint(zeroed("norm.weight", safetensors.BF16, 2)), nil))
	return must(os.ReadFile(name))
}

// TestSkip: tensors that are quantised in an unknown layout are left out, with all that belongs to
// them, and Skip is called. All other tensors are right.
func TestSkip(t *testing.T) {
	good := []change{zeroed("g.weight", safetensors.F8_E4M3, 2, 2), zeroed("g.weight_scale_inv", safetensors.F32, 1, 1), zeroed("g.bias", safetensors.BF16, 2), zeroed("norm.weight", safetensors.BF16, 2)}
	for title, c := range map[string]struct {
		changes []change
		left    []string // names for which Skip is called
		kept    []string // names in the result, in addition to those of good
		why     string
	}{
		"HQQ": {[]change{zeroed("a.W_q", safetensors.U8, 2, 2), zeroed("a.scale", safetensors.F32, 2, 1), zeroed("a.zero", safetensors.F32, 2, 1), zeroed("a.bias", safetensors.F32, 2)},
			[]string{"a.W_q", "a.scale", "a.zero"}, []string{"a.bias"}, "quantised by HQQ or SINQ"},
		"Quanto": {[]change{zeroed("a.weight._data", safetensors.I8, 2, 2), zeroed("a.weight._scale", safetensors.F32, 2, 1)}, []string{"a.weight._data", "a.weight._scale"}, nil, "Quanto"},
		"experts": {[]change{zeroed("e.up", safetensors.U8, 2, 2, 8), zeroed("e.up_weight_scale", safetensors.F8_E4M3, 2, 2, 1), zeroed("e.up_bias", safetensors.F32, 2)},
			[]string{"e.up", "e.up_weight_scale"}, []string{"e.up_bias"}, `tensor "e.up`},
		"low rank": {[]change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale_inv", safetensors.F32, 1, 1), zeroed("a.svdquant_lora_a", safetensors.BF16, 2, 2), zeroed("a.svdquant_lora_b", safetensors.BF16, 2, 2), zeroed("a.bias", safetensors.BF16, 2)},
			[]string{"a.svdquant_lora_a", "a.svdquant_lora_b", "a.weight"}, []string{"a.bias"}, `next to "a.weight"`},
		"shape":    {[]change{zeroed("a.weight", safetensors.F8_E4M3, 200, 2), zeroed("a.weight_scale_inv", safetensors.F32, 1, 2)}, []string{"a.weight"}, nil, "needs [2,1]"},
		"no scale": {[]change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.bias", safetensors.F32, 2)}, []string{"a.weight"}, []string{"a.bias"}, "its scales"},
		"nothing":  {nil, nil, nil, ""},
	} {
		for _, config := range []string{method("fp8", object{}), "{}"} {
			if title == "no scale" && config == "{}" {
				continue // there the tensor is plain
			}
			m := checkpoint(append(slices.Clone(good), c.changes...)...)
			folder := t.TempDir()
			require.NoError(t, safetensors.WriteFile(filepath.Join(folder, "model.safetensors"), m, nil))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o666))
			var left []string
			o := quant.Opener{Skip: func(name string, why error) {
				left = append(left, name)
				require.ErrorContains(t, why, c.why)
				require.ErrorContains(t, why, "safetensors: ")
			}}
			for _, open := range []func() (*safetensors.File, error){
				func() (*safetensors.File, error) { return o.Open(folder) },
				func() (*safetensors.File, error) { return o.OpenFS(filesOf(t, folder), "models/m") },
			} {
				left = nil
				f := must(open())
				slices.Sort(left)
				require.Equal(t, c.left, left, title)
				want := append([]string{"g.bias", "g.weight", "norm.weight"}, c.kept...)
				slices.Sort(want)
				require.Equal(t, want, slices.Sorted(maps.Keys(maps.Collect(f.Tensors()))), title)
				require.Equal(t, []float32{0, 0, 0, 0}, elements[float32](t, must(f.Tensor("g.weight"))))
				require.NoError(t, f.Close())
			}
			f, err := quant.Open(folder)
			require.Equal(t, len(c.left) > 0, err != nil, title)
			if err == nil {
				require.NoError(t, f.Close())
			}
		}
	}
}

// TestSkipExperts: if the matrices of the experts of a layer do not fit each other, both tensors of the layer are left out, and
// the other layers stay.
func TestSkipExperts(t *testing.T) {
	var changes []change
	for _, layer := range []string{"layers.0.", "layers.1."} {
		for _, name := range []string{"0.gate_proj", "0.up_proj", "0.down_proj", "1.gate_proj", "1.up_proj", "1.down_proj"} {
			rows := 2
			if layer+name == "layers.0.1.down_proj" {
				rows = 4
			}
			name = layer + "feed_forward.experts." + name
			changes = append(changes, zeroed(name+".weight", safetensors.F8_E4M3, rows, 2), zeroed(name+".weight_scale_inv", safetensors.F32, 1, 1))
		}
	}
	folder := t.TempDir()
	require.NoError(t, safetensors.WriteFile(filepath.Join(folder, "model.safetensors"), checkpoint(changes...), nil))
	config := `{"model_type":"llama4",` + method("fp8", object{})[1:]
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o666))
	var left []string
	f := must(quant.Opener{Skip: func(name string, why error) {
		left = append(left, name)
		require.ErrorContains(t, why, `tensor "layers.0.feed_forward.experts.1.down_proj.weight": its shape is [4,2]`)
	}}.Open(folder))
	defer f.Close()
	require.Equal(t, []string{"layers.0.feed_forward.experts.gate_up_proj", "layers.0.feed_forward.experts.down_proj"}, left)
	require.ElementsMatch(t, []string{"layers.1.feed_forward.experts.gate_up_proj", "layers.1.feed_forward.experts.down_proj"}, slices.Collect(maps.Keys(maps.Collect(f.Tensors()))))
}

// TestSkipMarkers: layers whose marker cannot be used are left out. Their tensors are not mistaken
// for parts of another layout.
func TestSkipMarkers(t *testing.T) {
	layer := func(name string) []change {
		return []change{zeroed(name+".weight", safetensors.F8_E4M3, 2, 2), zeroed(name+".weight_scale", safetensors.F32)}
	}
	for title, m := range map[string]struct {
		tensors  map[string]safetensors.Tensor
		metadata map[string]string
	}{
		"markers":  {checkpoint(slices.Concat(layer("a"), layer("b"), []change{bytesOf("a.comfy_quant", `{"format":"x"}`), bytesOf("b.comfy_quant", `{"format":"float8_e4m3fn"}`)})...), nil},
		"no JSON":  {checkpoint(slices.Concat(layer("a"), layer("b"), []change{bytesOf("a.comfy_quant", `{`), bytesOf("b.comfy_quant", `{"format":"float8_e4m3fn"}`)})...), nil},
		"metadata": {checkpoint(append(layer("a"), layer("b")...)...), map[string]string{"_quantization_metadata": `{"format_version":"1.0","layers":{"a":{"format":"float8_e4m3fn","x":1},"b":{"format":"float8_e4m3fn"}}}`}},
	} {
		name := filepath.Join(t.TempDir(), "x.safetensors")
		require.NoError(t, safetensors.WriteFile(name, m.tensors, m.metadata))
		var left []string
		f := must(quant.Opener{Skip: func(name string, _ error) { left = append(left, name) }}.Open(name))
		require.Equal(t, 1, f.Len(), title)
		require.Equal(t, safetensors.F32, must(f.Tensor("b.weight")).DType())
		require.Subset(t, left, []string{"a.weight", "a.weight_scale"}, title)
		require.NoError(t, f.Close())
		require.Error(t, errorOf(quant.Open(name)), title)
	}
}

// TestSkipErrors: even with Skip, a problem of the whole model is an error, and so is a tensor that
// cannot be read.
func TestSkipErrors(t *testing.T) {
	none := quant.Opener{Skip: func(name string, why error) { require.Fail(t, name, "%v", why) }}
	m := checkpoint(zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32, 1))
	for i, config := range []string{method("quark", object{}), "{", method("fp8", object{"x": 1}), method("gptq", object{})} {
		folder := t.TempDir()
		require.NoError(t, safetensors.WriteFile(filepath.Join(folder, "model.safetensors"), map[string]safetensors.Tensor{"norm": m["a.weight_scale"]}, nil))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o666))
		require.Error(t, errorOf(none.Open(folder)), fmt.Sprint(i))
	}
}

// A failingFS fails once, at the operation (Open, Stat or ReadDir) whose number is at.
type failingFS struct {
	fs.FS
	at, seen int
}

func (f *failingFS) fails() error {
	if f.seen++; f.seen == f.at {
		return errDisk
	}
	return nil
}

func (f *failingFS) Open(name string) (fs.File, error) {
	if err := f.fails(); err != nil {
		return nil, err
	}
	return f.FS.Open(name)
}

func (f *failingFS) Stat(name string) (fs.FileInfo, error) {
	if err := f.fails(); err != nil {
		return nil, err
	}
	return fs.Stat(f.FS, name)
}

func (f *failingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.fails(); err != nil {
		return nil, err
	}
	return fs.ReadDir(f.FS, name)
}

// TestFailingFS: an operation that fails is an error of OpenFS. If it were not, a quantised model
// could be taken for plain numbers.
func TestFailingFS(t *testing.T) {
	v := readVector(t, "testdata/ct-packed-4-zero-group.safetensors")
	folder := t.TempDir()
	require.NoError(t, safetensors.WriteFile(filepath.Join(folder, "model.safetensors"), v.tensors, nil))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), v.config, 0o666))
	fsys := filesOf(t, folder)
	for _, name := range []string{"models/m", "models/m/model.safetensors"} {
		for at := 1; ; at++ {
			failing := &failingFS{FS: fsys, at: at}
			_, err := quant.OpenFS(failing, name)
			if failing.seen < at {
				require.NoError(t, err)
				require.Greater(t, at, 4)
				break
			}
			require.ErrorIs(t, err, errDisk, "%s, operation %d", name, at)
		}
	}
}
