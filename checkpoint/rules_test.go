package checkpoint_test

import (
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// A laterFS lists an empty directory once, and its files from then on.
type laterFS struct {
	fstest.MapFS
	listed *atomic.Int32
}

func (l laterFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if l.listed.Add(1) == 1 {
		return nil, nil
	}
	return l.MapFS.ReadDir(name)
}

// TestSavedWhileOpened: a model that is saved after the directory was listed is opened. Without an error
// there is always a File.
func TestSavedWhileOpened(t *testing.T) {
	fsys := laterFS{files(map[string]string{"model.safetensors": weights(t, map[string]float32{"x": 1})}), new(atomic.Int32)}
	f, err := checkpoint.OpenFS(fsys, ".")
	require.NoError(t, err)
	require.NotNil(t, f)
	require.Equal(t, 1, f.Len())
	require.NoError(t, f.Close())

	f, err = checkpoint.OpenFS(files(map[string]string{"README.md": ""}), ".")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Nil(t, f)
}

// TestConfigRules: each rule about configs has a finding where the config contradicts the tensors, and
// none where it does not.
func TestConfigRules(t *testing.T) {
	const embedding, head = "model.embed_tokens.weight", "lm_head.weight"
	matrix := func(values ...float32) safetensors.Tensor {
		x, err := safetensors.NewTensor(safetensors.F32, []int{2, 1}, values)
		require.NoError(t, err)
		return x
	}
	with := func(names ...string) map[string]safetensors.Tensor {
		tensors := make(map[string]safetensors.Tensor)
		for i, name := range names {
			tensors[name] = matrix(float32(i), 1)
		}
		return tensors
	}
	wide, err := safetensors.NewTensor(safetensors.F32, []int{1, 2}, []float32{1, 2})
	require.NoError(t, err)
	adapter := map[string]safetensors.Tensor{"base_model.model.q.lora_A.weight": matrix(1, 2), "base_model.model.q.lora_B.weight": wide}
	tenth := map[string]safetensors.Tensor{"x": matrix(0.1, 1)}
	narrow, err := matrix(1, 2).Convert(safetensors.BF16)
	require.NoError(t, err)
	mixed := map[string]safetensors.Tensor{"x": matrix(0.1, 1), "y": narrow}
	router := map[string]safetensors.Tensor{"mlp.gate.weight": matrix(0.1, 1), "rotary_emb.inv_freq": matrix(0.1, 1), "x": matrix(1, 2), "y": narrow}
	equal := map[string]safetensors.Tensor{embedding: matrix(1, 2), head: matrix(1, 2)}
	for name, c := range map[string]struct {
		tensors    map[string]safetensors.Tensor
		good, bad  string // the config
		file, text string // the name of the config, and a part of the finding
		weights    string
	}{
		"dtype":         {tenth, `{"dtype":"float32"}`, `{"dtype":"bfloat16"}`, "config.json", "dtype bfloat16", ""},
		"a null":        {tenth, `{"dtype":"float32","quantization_config":null}`, `{"dtype":"bfloat16","quantization_config":null,"quantization":null}`, "config.json", "dtype bfloat16", ""},
		"mixed dtypes":  {mixed, `{"dtype":"float32"}`, `{"dtype":"bfloat16"}`, "config.json", `dtype bfloat16, which rounds numbers of some tensors: "x" is F32`, ""},
		"torch_dtype":   {tenth, `{"torch_dtype":"float64"}`, `{"torch_dtype":"torch.float16"}`, "config.json", "dtype torch.float16", ""},
		"vocabulary":    {with(embedding), `{"model_type":"llama","vocab_size":2}`, `{"model_type":"llama","vocab_size":3}`, "config.json", "vocab_size 3", ""},
		"hidden size":   {with(embedding), `{"model_type":"llama","hidden_size":1}`, `{"model_type":"llama","hidden_size":2}`, "config.json", "hidden_size 2", ""},
		"dense":         {with("linear.weight"), `{"in_features":1,"out_features":2}`, `{"in_features":2,"out_features":1}`, "config.json", "in_features 2", ""},
		"tied head":     {with(embedding, head), `{"tie_word_embeddings":false}`, `{"tie_word_embeddings":true}`, "config.json", "not alike", ""},
		"experts":       {with("model.layers.0.mlp.experts.0.up.weight", "model.layers.0.mlp.experts.1.up.weight"), `{"model_type":"mixtral","num_local_experts":2}`, `{"model_type":"mixtral","num_local_experts":3}`, "config.json", "num_local_experts 3, but there are no tensors of expert 2", ""},
		"rank":          {adapter, `{"peft_type":"LORA","r":2,"target_modules":["q"]}`, `{"peft_type":"LORA","r":4,"target_modules":["q"]}`, "adapter_config.json", "r = 4", "adapter_model.safetensors"},
		"target module": {adapter, `{"peft_type":"LORA","r":2,"target_modules":["q","v"]}`, `{"peft_type":"LORA","r":2,"target_modules":["v"]}`, "adapter_config.json", "target_modules", "adapter_model.safetensors"},
	} {
		t.Run(name, func(t *testing.T) {
			file := c.weights
			if file == "" {
				file = "model.safetensors"
			}
			packed := written(t, c.tensors)
			require.Empty(t, check(t, files(map[string]string{file: packed, c.file: c.good})))
			found := check(t, files(map[string]string{file: packed, c.file: c.bad}))
			require.Len(t, found, 1)
			require.Contains(t, found[0], "config: ")
			require.Contains(t, found[0], c.text)
		})
	}
	require.Empty(t, check(t, files(map[string]string{"model.safetensors": written(t, equal), "config.json": `{"tie_word_embeddings":true}`})))
	require.Empty(t, check(t, files(map[string]string{"model.safetensors": written(t, with("x")), "config.json": `{"dtype":"bfloat16"}`})), "BF16 has the numbers")
	require.Empty(t, check(t, files(map[string]string{"model.safetensors": written(t, router), "config.json": `{"dtype":"bfloat16"}`})), "routers stay F32")
	require.Empty(t, check(t, files(map[string]string{"model.safetensors": written(t, mixed), "config.json": `{"dtype":"bfloat16","model_type":"new"}`})), "an unknown architecture")
	require.Empty(t, check(t, files(map[string]string{"model.safetensors": written(t, tenth), "model.bf16.safetensors": written(t, map[string]safetensors.Tensor{"x": narrow}), "config.json": `{"dtype":"bfloat16"}`})), "the config of a variant")
	require.Empty(t, check(t, files(map[string]string{"model.safetensors": written(t, with(embedding)), "config.json": `{"vocab_size":7}`})), "a config of another library")
}

// TestStrays: a file that mlx-lm reads besides, as one of model*.safetensors, is a second checkpoint if
// its numbers are others.
func TestStrays(t *testing.T) {
	for value, want := range map[float32]int{1: 0, 2: 1} {
		require.Len(t, check(t, files(map[string]string{
			"config.json": "{}", "model.safetensors": weights(t, map[string]float32{"x": 1}), "model-old.safetensors": weights(t, map[string]float32{"x": value}),
		})), want)
	}
}

// TestLeftBinShards: some of the shards of torch.save, without an index, are a finding, but not beside safetensors: no
// library opens them there.
func TestLeftBinShards(t *testing.T) {
	shard := map[string]string{"pytorch_model-00002-of-00002.bin": unpackedFile(t, "114-bin-shards", "pytorch_model-00002-of-00002.bin")}
	require.Len(t, check(t, files(shard)), 1)
	shard["model.safetensors"] = weights(t, map[string]float32{"x": 1})
	require.Empty(t, check(t, files(shard)))
}

// TestLeftBinIndex: an index whose shards of torch.save were not downloaded is no finding beside safetensors.
func TestLeftBinIndex(t *testing.T) {
	left := map[string]string{"pytorch_model.bin.index.json": `{"metadata":{},"weight_map":{"x":"pytorch_model-00001-of-00001.bin"}}`}
	require.Len(t, check(t, files(left)), 1)
	left["model.safetensors"] = weights(t, map[string]float32{"x": 1})
	require.Empty(t, check(t, files(left)))
	delete(left, "model.safetensors")
	left["model-00001-of-00001.safetensors"] = weights(t, map[string]float32{"x": 1})
	left["model.safetensors.index.json"] = index(t, map[string]string{"x": "model-00001-of-00001.safetensors"})
	require.Empty(t, check(t, files(left)))
}

// TestIndexOfBin: an index of safetensors that names files of torch.save is a finding.
func TestIndexOfBin(t *testing.T) {
	const shard = "pytorch_model-00002-of-00002.bin"
	found := check(t, files(map[string]string{
		shard: unpackedFile(t, "114-bin-shards", shard), "model.safetensors.index.json": index(t, map[string]string{"x": shard}),
	}))
	require.NotEmpty(t, found)
	require.Contains(t, strings.Join(found, ""), "a file of torch.save by its name")
}

// TestFilesOfMacOS: the files in which macOS keeps attributes of others are no weights.
func TestFilesOfMacOS(t *testing.T) {
	model := map[string]string{"model-00001-of-00001.safetensors": weights(t, map[string]float32{"x": 1})}
	model["model.safetensors.index.json"] = index(t, map[string]string{"x": "model-00001-of-00001.safetensors"})
	for _, name := range []string{"._model-00001-of-00001.safetensors", "._model.safetensors.index.json", "__MACOSX/._model.safetensors", "__MACOSX/m/._config.json"} {
		model[name] = "\x00\x05\x16\x07attributes"
	}
	require.Empty(t, check(t, files(model)))
}

// TestOtherAdapters: an adapter of mlx-lm has a config of its own form, and peft finds no tensor whose name does not
// begin as it has named them.
func TestOtherAdapters(t *testing.T) {
	of := func(prefix string) string {
		return weightsOf(t, prefix+"q.lora_A.weight", prefix+"q.lora_B.weight")
	}
	require.Empty(t, check(t, files(map[string]string{"adapters.safetensors": of(""), "0000100_adapters.safetensors": of(""), "adapter_config.json": `{"fine_tune_type":"lora"}`})))
	require.Empty(t, check(t, files(map[string]string{"adapter_model.safetensors": of("base_model.model."), "adapter_config.json": `{"peft_type":"LORA","r":1}`})))
	found := check(t, files(map[string]string{"adapter_model.safetensors": of("model."), "adapter_config.json": `{"peft_type":"LORA","r":1}`}))
	require.Len(t, found, 1)
	require.Contains(t, found[0], "peft finds none of them")
}

// weightsOf returns a file with tensors of these names, each of shape [1, 1].
func weightsOf(t *testing.T, names ...string) string {
	tensors := make(map[string]safetensors.Tensor)
	for _, name := range names {
		x, err := safetensors.NewTensor(safetensors.F32, []int{1, 1}, []float32{1})
		require.NoError(t, err)
		tensors[name] = x
	}
	return written(t, tensors)
}

// TestNoDType: without a dtype in the config, transformers converts a model to the dtype of the first tensor in the first
// file.
func TestNoDType(t *testing.T) {
	wide, err := safetensors.NewTensor(safetensors.F32, []int{1}, []float32{0.1})
	require.NoError(t, err)
	narrow, err := wide.Convert(safetensors.BF16)
	require.NoError(t, err)
	const config = `{"model_type":"new","architectures":["New"]`
	for _, c := range []struct {
		config string
		a, b   safetensors.Tensor
		want   string
	}{
		{config + "}", narrow, wide, `nothing of dtype, which is then BF16 as in "a", which rounds numbers of some tensors: "b" is F32`},
		{config + "}", wide, narrow, ""},
		{config + "}", wide, wide, ""},
		{config + `,"dtype":"float32"}`, narrow, wide, ""},
		{config + `,"torch_dtype":"float32"}`, narrow, wide, ""},
		{`{"model_type":"new"}`, narrow, wide, ""},
		{`{"architectures":["New"]}`, narrow, wide, ""},
	} {
		one := map[string]string{"config.json": c.config, "model.safetensors": written(t, map[string]safetensors.Tensor{"a": c.a, "b": c.b})}
		two := map[string]string{
			"config.json": c.config, "1.safetensors": written(t, map[string]safetensors.Tensor{"a": c.a}), "2.safetensors": written(t, map[string]safetensors.Tensor{"b": c.b}),
			"model.safetensors.index.json": index(t, map[string]string{"a": "1.safetensors", "b": "2.safetensors"}),
		}
		for _, model := range []map[string]string{one, two} {
			found := strings.Join(check(t, files(model)), "; ")
			require.Equal(t, c.want == "", found == "", found)
			require.Contains(t, found, c.want)
		}
	}
}

// TestClassHeads: the class in the config has a head, and some classes have parts of the base model that others leave out.
func TestClassHeads(t *testing.T) {
	for _, c := range []struct{ config, rest, part string }{
		{`"model_type":"bert","architectures":["BertForMaskedLM"]`, "cls.x", "cls.predictions.bias"},
		{`"model_type":"bert","architectures":["BertForPreTraining"]`, "cls.predictions.bias", "cls.seq_relationship.weight"},
		{`"model_type":"deberta-v2","architectures":["DebertaV2ForMaskedLM"]`, "x", "cls.predictions.bias"},
		{`"model_type":"deberta-v2","architectures":["DebertaV2ForMaskedLM"]`, "x", "lm_predictions.lm_head.bias"},
		{`"model_type":"xlm-roberta","architectures":["XLMRobertaForMaskedLM"]`, "x", "lm_head.dense.weight"},
		{`"model_type":"electra","architectures":["ElectraForPreTraining"]`, "generator_predictions.dense.weight", "discriminator_predictions.dense.weight"},
		{`"model_type":"bert","architectures":["BertForSequenceClassification"]`, "classifier.weight", "bert.pooler.dense.weight"},
		{`"model_type":"distilbert","architectures":["DistilBertForMultipleChoice"]`, "pre_classifier.weight", "classifier.weight"},
		{`"model_type":"distilbert","architectures":["DistilBertForSequenceClassification"]`, "classifier.weight", "pre_classifier.weight"},
	} {
		for more, want := range map[string]bool{c.part: false, "other": true} {
			found := strings.Join(check(t, files(map[string]string{"config.json": "{" + c.config + "}", "model.safetensors": weights(t, map[string]float32{c.rest: 1, more: 2})})), "; ")
			require.Equal(t, want, strings.Contains(found, "says the class"), "%s with %s: %s", c.config, more, found)
		}
	}
	for _, name := range []string{"modules.json", "sentence_bert_config.json"} {
		model := map[string]string{"config.json": `{"model_type":"mpnet","architectures":["MPNetForMaskedLM"]}`, "model.safetensors": weights(t, map[string]float32{"x": 1})}
		require.Contains(t, strings.Join(check(t, files(model)), "; "), "says the class")
		model[name] = map[string]string{"modules.json": `[{"path":"","type":"sentence_transformers.models.Transformer"}]`, "sentence_bert_config.json": "{}"}[name]
		require.NotContains(t, strings.Join(check(t, files(model)), "; "), "says the class", name)
	}
}

// TestRefusedTensor: a shard whose complex128 tensor safetensors cannot hold does not lack that tensor.
func TestRefusedTensor(t *testing.T) {
	found, err := checkpoint.Check(os.DirFS("../torch/testdata/folders"), "shards")
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, checkpoint.Unlisted, found[0].Rule)
	require.Equal(t, "unlisted", found[0].Tensor)
}
