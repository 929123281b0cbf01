package quant_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/stretchr/testify/require"
)

// TestOpen opens directories and files with each kind of config. In some, the values, the scales
// and the other parts of a module are in different shards.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		vector, file string
		more         map[string]string
	}{
		{"gpt-oss", "config.json", nil},
		{"modelopt-nvfp4-file", "hf_quant_config.json", map[string]string{"config.json": `{"model_type":"llama"}`}},
		{"fp8-block-128", "", nil}, // names and dtypes alone determine the layout
		{"ct-packed-4-zero-group", "config.json", nil},
	} {
		v := readVector(t, filepath.Join("testdata", c.vector+".safetensors"))
		folder, format := t.TempDir(), map[string]string{"format": "pt"}
		file, shards := filepath.Join(folder, "model.safetensors"), filepath.Join(folder, "shards")
		require.NoError(t, safetensors.WriteFile(file, v.tensors, format))
		require.NoError(t, safetensors.WriteShards(shards, v.tensors, format, 1))
		for _, folder := range []string{folder, shards} {
			for name, text := range c.more {
				require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666))
			}
			if c.file != "" {
				require.NoError(t, os.WriteFile(filepath.Join(folder, c.file), v.config, 0o666))
			}
		}
		for _, name := range []string{folder, file, shards} {
			f := must(quant.Open(name))
			require.Equal(t, format, f.Metadata())
			for name, want := range v.want {
				x := must(f.Tensor(name))
				requireSame(t, want, elements[float32](t, x), name)
				require.NoError(t, f.Close())
				require.ErrorIs(t, errorOf(safetensors.Append[float32](nil, x)), fs.ErrClosed)
			}
		}
	}
}

// TestOpenShard opens a single shard, or a file that is not a shard, in which nothing is quantised,
// or something may be.
func TestOpenShard(t *testing.T) {
	for _, c := range []struct {
		title, file, config string
		dtype               safetensors.DType
		refused             bool
	}{
		{"a model that is not quantised", "model.safetensors", "{}", safetensors.F8_E4M3, false},
		{"a shard of norms", "model-00002-of-00003.safetensors", method("fp8", object{}), safetensors.BF16, false},
		{"a shard of many", "model-00010-of-00010.safetensors", method("gptq", object{"bits": 4}), safetensors.F32, false},
		{"a whole model of floats", "model.safetensors", method("fp8", object{}), safetensors.BF16, true},
		{"a shard of norms of a variant, as older ones are named", "model-00002-of-00003.fp16.safetensors", method("fp8", object{}), safetensors.BF16, false},
		{"a shard of a variant", "model.fp16-00002-of-00010.safetensors", method("fp8", object{}), safetensors.BF16, false},
		{"one shard of one", "model-00001-of-00001.safetensors", method("fp8", object{}), safetensors.BF16, true},
		{"codes of another kernel", "model-00002-of-00003.safetensors", method("gptq", object{"bits": 4}), safetensors.I32, true},
		{"codes that are stored as floats", "model-00002-of-00003.safetensors", method("bitsandbytes", object{}), safetensors.BF16, true},
	} {
		folder := t.TempDir()
		m := checkpoint(zeroed("norm.B", c.dtype, 2))
		require.NoError(t, safetensors.WriteFile(filepath.Join(folder, c.file), m, nil))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(c.config), 0o666))
		f, err := quant.Open(filepath.Join(folder, c.file))
		if c.refused {
			require.ErrorContains(t, err, "but no tensor is quantised in one of its layouts", c.title)
			continue
		}
		require.NoError(t, err, c.title)
		require.Equal(t, 1, f.Len(), c.title)
		require.Equal(t, c.dtype, must(f.Tensor("norm.B")).DType(), c.title)
		require.NoError(t, f.Close(), c.title)
	}
}

// TestOpenErrors: a config that is not JSON, too long or not a regular file is refused.
func TestOpenErrors(t *testing.T) {
	folder := t.TempDir()
	require.ErrorIs(t, errorOf(quant.Open(folder)), fs.ErrNotExist)

	v := readVector(t, "testdata/gpt-oss.safetensors")
	require.NoError(t, safetensors.WriteFile(filepath.Join(folder, "model.safetensors"), v.tensors, nil))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte("{"), 0o666))
	config := filepath.Join(folder, "config.json")
	refused := func(path, want string) {
		t.Helper()
		require.EqualError(t, errorOf(quant.Open(folder)), "safetensors: open "+path+": "+want)
	}
	refused(folder, "the config: unexpected end of JSON input")
	require.NoError(t, os.Truncate(config, 4<<20+1))
	require.EqualError(t, errorOf(quant.Open(folder)), "safetensors: read "+config+": it has more than 4194304 bytes")
	require.NoError(t, os.Remove(config))
	require.NoError(t, os.Mkdir(config, 0o777))
	refused(config, "is a directory")
	if runtime.GOOS != "windows" && testplatform.HasSymlinks(t) {
		require.NoError(t, os.Remove(config))
		require.NoError(t, os.Symlink(os.DevNull, config))
		refused(config, "is a device")
	}
}

// TestPythonsNumbers: a config may have NaN and infinities in Python's spelling, which is not JSON.
func TestPythonsNumbers(t *testing.T) {
	v := readVector(t, "testdata/fp8-block-16.safetensors")
	config := append([]byte(`{"a":[0.0,Infinity],"b":{"\\\"c\\\\":-Infinity},"d":NaN,"NaN":"\\\",Infinity",`), v.config[1:]...)
	plain := dequantized(t, v.tensors, config)
	requireSame(t, v.want["a.weight"], elements[float32](t, plain["a.weight"]), "FP8")
	_, err := quant.Dequantize(v.tensors, append([]byte(`{"a":Inf,`), v.config[1:]...))
	require.ErrorContains(t, err, "invalid character 'I'")
}

// TestOrdinaryNames: a tensor with the name of a part is not a part if nothing else belongs to that
// layout.
func TestOrdinaryNames(t *testing.T) {
	for config, quantised := range map[string][]change{ // each checkpoint must have a quantised tensor, too
		"{}":                      nil,
		method("fp8", object{}):   {zeroed("q.weight", safetensors.F8_E4M3, 2, 2), zeroed("q.weight_scale_inv", safetensors.F32, 1, 1)},
		method("mxfp4", object{}): {zeroed("q_blocks", safetensors.U8, 2, 1, 16), zeroed("q_scales", safetensors.U8, 2, 1)},
	} {
		m := checkpoint(quantised...)
		names := []string{"a.num_blocks", "a.scale", "a.scales", "a.biases", "a.num_scales"}
		for _, name := range names {
			zeroed(name, safetensors.F32, 2)(m)
		}
		plain := dequantized(t, m, config)
		for _, name := range names {
			require.Equal(t, m[name], plain[name])
		}
	}
}

// TestLayouts: the names of parts and of results have a layout, and plain tensors have none. If
// nothing determines the number of bits, that is an error, as for Dequantize.
func TestLayouts(t *testing.T) {
	m := checkpoint(zeroed("norm.weight", safetensors.BF16, 2),
		zeroed("a.qweight", safetensors.I32, 4, 32), zeroed("a.qzeros", safetensors.I32, 1, 4), zeroed("a.scales", safetensors.F16, 1, 32), zeroed("a.g_idx", safetensors.I32, 32))
	layouts := must(quant.Layouts(m, []byte(method("gptq", object{"bits": 4, "group_size": 32}))))
	four := quant.Layout{Method: "gptq", Bits: 4}
	require.Equal(t, map[string]quant.Layout{"a.qweight": four, "a.qzeros": four, "a.scales": four, "a.g_idx": four, "a.weight": four}, layouts)
	require.Equal(t, "gptq, 4 bits", four.String())
	require.Equal(t, "fp8", quant.Layout{Method: "fp8"}.String())

	m = checkpoint(zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 4))
	_, err := quant.Layouts(m, nil)
	require.ErrorContains(t, err, "safetensors: tensor \"a.weight_packed\": packed integers: its values have 1 or 2 bits; no config.json specifies which")
	_, err = quant.Layouts(m, []byte("{"))
	require.EqualError(t, err, "safetensors: the config: unexpected end of JSON input")
	numbers("a.weight_shape", 2, 32)(m)
	layouts = must(quant.Layouts(m, nil))
	require.Equal(t, quant.Layout{Method: "compressed-tensors", Bits: 1}, layouts["a.weight"])
}
