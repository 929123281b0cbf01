package checkpoint_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// TestSavedModels: Check is silent on what the Python libraries save, for many architectures, options and adapters.
func TestSavedModels(t *testing.T) {
	dir := unpack(t, "saved", "saved.tar.bz2")
	models, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Greater(t, len(models), 100)
	for _, m := range models {
		require.Empty(t, check(t, os.DirFS(filepath.Join(dir, m.Name()))), m.Name())
	}
}

// TestLostTensors: of a model that lacks one tensor, there is a finding if transformers reports it as missing, and none if it
// loads the whole model without, such as a tied head. losses.json lists the latter, and those that only the code of
// the model tells, of which Check knows nothing.
func TestLostTensors(t *testing.T) {
	var losses map[string]struct{ Needless, Unnoticed []string }
	text, err := os.ReadFile(filepath.Join("testdata", "saved", "losses.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &losses))
	dir := unpack(t, "saved", "saved.tar.bz2")
	lost := 0
	for _, name := range slices.Sorted(maps.Keys(losses)) {
		config, err := os.ReadFile(filepath.Join(dir, name, "config.json"))
		require.NoError(t, err)
		f, err := safetensors.Load(filepath.Join(dir, name, "model.safetensors"))
		require.NoError(t, err)
		for tensor := range f.Tensors() {
			rest := maps.Collect(f.Tensors())
			delete(rest, tensor)
			found := check(t, files(map[string]string{"config.json": string(config), "model.safetensors": written(t, rest)}))
			if silent := slices.Concat(losses[name].Needless, losses[name].Unnoticed); slices.Contains(silent, tensor) {
				require.Empty(t, found, "%s without %s", name, tensor)
				continue
			}
			lost++
			require.NotEmpty(t, found, "%s without %s", name, tensor)
		}
		require.NoError(t, f.Close())
	}
	require.Greater(t, lost, 1000)
}

// TestLayersAlike: a tensor of another shape than in the other layers is a finding, because no program loads it.
func TestLayersAlike(t *testing.T) {
	dir := unpack(t, "saved", "saved.tar.bz2")
	config, err := os.ReadFile(filepath.Join(dir, "llama-causal", "config.json"))
	require.NoError(t, err)
	f, err := safetensors.Load(filepath.Join(dir, "llama-causal", "model.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	tensors := maps.Collect(f.Tensors())
	const name = "model.layers.1.mlp.up_proj.weight"
	tensors[name], err = tensors[name].Slice(safetensors.Span(0, 3))
	require.NoError(t, err)
	found := check(t, files(map[string]string{"config.json": string(config), "model.safetensors": written(t, tensors)}))
	require.Len(t, found, 1)
	require.Contains(t, found[0], name)
}

// TestVariantsAlike: a variant named after a dtype has the tensors of the plain files. Others may have others, and so may
// one that names its tensors otherwise.
func TestVariantsAlike(t *testing.T) {
	plain := weights(t, map[string]float32{"a": 1, "b": 2})
	for name, c := range map[string]struct {
		file   string
		values map[string]float32
		found  int
	}{
		"the same":     {"model.fp16.safetensors", map[string]float32{"a": 1, "b": 2}, 0},
		"rounded":      {"model.fp16.safetensors", map[string]float32{"a": 1.1, "b": 2}, 0},
		"one less":     {"model.fp16.safetensors", map[string]float32{"a": 1}, 1},
		"one more":     {"model.bf16.safetensors", map[string]float32{"a": 1, "b": 2, "c": 3}, 1},
		"other names":  {"model.fp16.safetensors", map[string]float32{"a": 1, "to_b": 2}, 0},
		"other model":  {"model.ema.safetensors", map[string]float32{"a": 1}, 0},
		"head is tied": {"model.fp16.safetensors", map[string]float32{"a": 1, "b": 2, "lm_head.weight": 1}, 0},
	} {
		require.Len(t, check(t, files(map[string]string{"model.safetensors": plain, c.file: weights(t, c.values)})), c.found, name)
	}
}

// TestVariantsOfTorch: a variant by torch.save has the tensors of the plain files of safetensors, and maybe tied ones.
func TestVariantsOfTorch(t *testing.T) {
	plain := weights(t, map[string]float32{"a": 1, "b": 2})
	for name, c := range map[string]struct {
		values map[string]float32
		found  int
	}{
		"the same": {map[string]float32{"a": 1, "b": 2}, 0},
		"one less": {map[string]float32{"a": 1}, 1},
		"tied":     {map[string]float32{"a": 1, "b": 2, "c": 2}, 0},
	} {
		require.Len(t, check(t, files(map[string]string{"model.safetensors": plain, "pytorch_model.fp16.bin": torchFile(t, c.values)})), c.found, name)
		require.Len(t, check(t, files(map[string]string{"pytorch_model.bin": torchFile(t, c.values), "model.fp16.safetensors": plain})), c.found, name)
	}
}

// TestLoRAPairs: one matrix of a pair without the other is a finding.
func TestLoRAPairs(t *testing.T) {
	config := `{"peft_type":"LORA"}`
	a, b := "base_model.model.q.lora_A.weight", "base_model.model.q.lora_B.weight"
	require.Empty(t, check(t, files(map[string]string{"adapter_config.json": config, "adapter_model.safetensors": weights(t, map[string]float32{a: 1, b: 2})})))
	for have, lacks := range map[string]string{a: b, b: a} {
		found := check(t, files(map[string]string{"adapter_config.json": config, "adapter_model.safetensors": weights(t, map[string]float32{have: 1})}))
		require.Len(t, found, 1)
		require.Contains(t, found[0], `missing: the tensor "`+lacks)
	}
}

// TestCacheRefs: a ref of the hub's cache that names a snapshot which is not there is a finding.
func TestCacheRefs(t *testing.T) {
	cache := map[string]string{"refs/main": "aa\n", "refs/refs/pr/1": "bb", "blobs/x": "", "snapshots/aa/model.safetensors": weights(t, map[string]float32{"a": 1}), "snapshots/bb/config.json": "{}"}
	require.Empty(t, check(t, files(cache)))
	requireFaults(t, files(cache))
	cache["refs/refs/pr/1"] = "cc"
	found := check(t, files(cache))
	require.Equal(t, []string{`missing: the snapshot "cc" is missing, which "refs/refs/pr/1" names: without a network the revision is not found`}, found)
	cache["refs/main"] = ""
	require.Len(t, check(t, files(cache)), 2)
	delete(cache, "blobs/x")
	require.Empty(t, check(t, files(cache)), "refs of another program")
}

// TestQuantizationMethods: a method that package quant does not know is not judged; the lack of a key that a known one
// needs is.
func TestQuantizationMethods(t *testing.T) {
	packed := unpackedFile(t, "119-gptq", "model.safetensors")
	for method, found := range map[string]int{`{"quant_method":"torchao"}`: 0, `{"quant_method":"gptq"}`: 1, `{"bits":4}`: 1} {
		got := check(t, files(map[string]string{"config.json": `{"model_type":"llama","quantization_config":` + method + `}`, "model.safetensors": packed}))
		require.Len(t, got, found, method)
	}
	for name, found := range map[string]int{"README.md": 1, "quantize_config.json": 0} { // without a quantization_config
		settings := `{"bits":4,"group_size":32,"desc_act":false}`
		require.Len(t, check(t, files(map[string]string{"config.json": `{"model_type":"llama"}`, name: settings, "model.safetensors": packed})), found, name)
	}
}

// TestQuantizedTensor: a finding about a quantised tensor names it, and its file. Without a quantization_config that is
// the part that is no weight; with one it is the tensor that does not fit.
func TestQuantizedTensor(t *testing.T) {
	codes, err := safetensors.NewTensor(safetensors.F8_E4M3, []int{2, 2}, make([]uint8, 4))
	require.NoError(t, err)
	model := map[string]string{
		"a.safetensors": weights(t, map[string]float32{"a.weight": 1}),
		"b.safetensors": written(t, map[string]safetensors.Tensor{"b.weight": codes, "b.scale_weight": zeros(t, 1)}),
		"model.safetensors.index.json": index(t, map[string]string{
			"a.weight": "a.safetensors", "b.weight": "b.safetensors", "b.scale_weight": "b.safetensors"}),
	}
	for settings, want := range map[string][2]string{
		"": {"b.scale_weight", "belongs to a quantised one"},
		`,"quantization_config":{"quant_method":"fp8"}`: {"b.weight", "contradicts the tensors: tensor"},
	} {
		model["config.json"] = `{"model_type":"new"` + settings + "}"
		found, err := checkpoint.Check(files(model), ".")
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, checkpoint.Config, found[0].Rule)
		require.Equal(t, want[0], found[0].Tensor)
		require.Equal(t, []string{"b.safetensors", "config.json"}, found[0].Files)
		require.Contains(t, found[0].Text, want[1])
	}
}

// TestNoMethod: transformers does not open a model whose quantization_config is empty.
func TestNoMethod(t *testing.T) {
	for section, found := range map[string]int{"": 0, `,"quantization_config":null`: 0, `,"quantization_config":{}`: 1, `,"quantization_config":{},"quantization":{}`: 0} {
		config := `{"model_type":"new","architectures":["New"]` + section + `}`
		require.Len(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": weights(t, map[string]float32{"x": 1})})), found, section)
	}
}

// unpackedFile returns a file of a case of the corpus.
func unpackedFile(t *testing.T, name, base string) string {
	t.Helper()
	dir := unpack(t, "folders", "cases.tar.bz2")
	var content string
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, name), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == base {
			var text []byte
			text, err = os.ReadFile(path)
			content = string(text)
		}
		return err
	}))
	require.NotEmpty(t, content)
	return content
}
