package checkpoint_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// TestStatesOfJobs: the state of a training job is not a model. Beside a model, whatever it contains, it is no finding,
// and alone it is an error that says so.
func TestStatesOfJobs(t *testing.T) {
	model := weights(t, map[string]float32{"x": 1})
	states := map[string]string{"optimizer.pt": "", "scheduler.pt": "x", "rng_state.pth": "", "rng_state_1.pth": "", "training_args.bin": "\x80\x02}."}
	for _, name := range []string{"model.safetensors", "pytorch_model.bin"} {
		whole := maps.Clone(states)
		whole[name] = map[string]string{"model.safetensors": model, "pytorch_model.bin": torchFile(t, map[string]float32{"x": 1})}[name]
		require.Empty(t, check(t, files(whole)), name)
		_, err := checkpoint.OpenFS(files(whole), ".")
		require.NoError(t, err)
	}
	_, err := checkpoint.OpenFS(files(states), ".")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, `only the state of a training job is in it, such as "optimizer.pt", no model`)
	require.Equal(t, []string{`missing: the directory has no weights: only the state of a training job is in it, such as "optimizer.pt", no model`}, check(t, files(states)))
	_, err = checkpoint.Models(files(states), ".")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestLinksOfStates: links to nothing and out of the directory are no findings if they have the names of states of a
// training job.
func TestLinksOfStates(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it needs links")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte(weights(t, map[string]float32{"x": 1})), 0o666))
	for name, target := range map[string]string{"optimizer.pt": "gone", "training_args.bin": filepath.Join(t.TempDir(), "gone"), "rng_state.pth": "../../x"} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	require.Empty(t, check(t, os.DirFS(dir)))
}

// TestCTranslate2: the model of CTranslate2 is not a file of torch.save, although its name has that ending. Beside
// another model it is no finding.
func TestCTranslate2(t *testing.T) {
	const content = "\x06\x00\x00\x00\x10\x00TransformerSpec\x00"
	for _, vocabulary := range []string{"vocabulary.json", "vocabulary.txt", "shared_vocabulary.json", "source_vocabulary.txt"} {
		model := map[string]string{"config.json": "{}", "model.bin": content, vocabulary: ""}
		_, err := checkpoint.OpenFS(files(model), ".")
		require.ErrorContains(t, err, `"model.bin" is of CTranslate2: ctranslate2 reads it`)
		found := check(t, files(model))
		require.Len(t, found, 1)
		require.Contains(t, found[0], `missing: the directory has no weights: no .safetensors file in it, and "model.bin" is of CTranslate2`)
		model["model.safetensors"] = weights(t, map[string]float32{"x": 1})
		require.Empty(t, check(t, files(model)))
	}
	require.Len(t, check(t, files(map[string]string{"model.bin": content, "model.safetensors": weights(t, map[string]float32{"x": 1}), "vocab.json": ""})), 1)
}

// TestBesideOtherFormats: files of Keras, Flax and others beside a model by torch.save do not keep it from being opened.
func TestBesideOtherFormats(t *testing.T) {
	for _, name := range []string{"pytorch_model.bin", "adapter_model.bin", "diffusion_pytorch_model.bin"} {
		model := map[string]string{name: torchFile(t, map[string]float32{"x": 1}), "tf_model.h5": "", "flax_model.msgpack": "", "model.onnx": ""}
		require.Empty(t, check(t, files(model)), name)
		f, err := checkpoint.OpenFS(files(model), ".")
		require.NoError(t, err)
		require.Equal(t, 1, f.Len())
	}
}

// TestSpellings: two files of a model may spell the name of a tensor in two ways, both of which transformers accepts. If the
// numbers differ, they are two models.
func TestSpellings(t *testing.T) {
	const conv = "encoder.pos_conv_embed.conv."
	one := map[string]float32{conv + "parametrizations.weight.original0": 1, conv + "parametrizations.weight.original1": 2, "LayerNorm.weight": 3, "a.LayerNorm.bias": 4}
	two := map[string]float32{conv + "weight_g": 1, conv + "weight_v": 2, "LayerNorm.gamma": 3, "a.LayerNorm.beta": 4}
	for first, second := range map[*map[string]float32]map[string]float32{&one: two, &two: one} {
		for name := range second {
			for _, change := range []float32{0, 1} {
				other := maps.Clone(second)
				other[name] += change
				for _, model := range []map[string]string{
					{"model.safetensors": weights(t, *first), "pytorch_model.bin": torchFile(t, other)},
					{"model.safetensors": weights(t, *first), "Model.safetensors": weights(t, other)},
				} {
					require.Len(t, check(t, files(model)), int(change), name)
				}
				delete(other, name)
				require.Len(t, check(t, files(map[string]string{"model.safetensors": weights(t, *first), "model.fp16.safetensors": weights(t, second)})), 0)
				require.Len(t, check(t, files(map[string]string{"model.safetensors": weights(t, *first), "model.fp16.safetensors": weights(t, other)})), 1)
			}
		}
	}
}

// TestUnusedTensors: the blocks of a T5 after the first one have no bias of their own. Those of UMT5 have. Marian computes
// its positions, BART learns them.
func TestUnusedTensors(t *testing.T) {
	const first, second = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "decoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"
	const between, positions = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", "model.encoder.embed_positions.weight"
	for _, c := range []struct {
		name, modelType string
		want            int
	}{{first, "t5", 1}, {second, "t5", 0}, {second, "mt5", 0}, {second, "switch_transformers", 0}, {second, "umt5", 1}, {between, "t5", 0}, {between, "new", 1}, {positions, "marian", 0}, {positions, "bart", 1}} {
		for i := range 2 {
			of := []map[string]float32{{"x": 1, c.name: 2}, {"x": 1}}
			require.Len(t, check(t, files(map[string]string{
				"config.json": `{"model_type":"` + c.modelType + `"}`, "model.safetensors": weights(t, of[i]), "pytorch_model.bin": torchFile(t, of[1-i]),
			})), c.want, c)
		}
	}
}

// TestBuffers: models compute their buffers, whatever is stored. A tensor of another name is not a buffer.
func TestBuffers(t *testing.T) {
	first, second := map[string]string{"a": "model-00001-of-00002.safetensors"}, "model-00002-of-00002.safetensors"
	for name, want := range map[string]int{"model.rotary_emb.inv_freq": 0, "rotary.inv_freq": 0, "l.0.rotary_emb.cos_cached": 0, "embeddings.token_type_ids": 0, "embeddings.position_ids": 0, "l.0.relative_position_index": 0, "model.encoder.embed_positions.weights": 0, "model.encoder.embed_positions.weight": 1, "inv_freqs": 1, "l.0.weight": 1} {
		one, two := map[string]float32{"a": 1, name: 2}, map[string]float32{"b": 1, name: 3}
		shards := maps.Clone(first)
		shards["b"] = second
		model := map[string]string{"model.safetensors.index.json": index(t, shards), first["a"]: weights(t, one), second: weights(t, map[string]float32{"b": 1})}
		require.Len(t, check(t, files(model)), want, "%s is not in the index", name)
		shards[name] = first["a"]
		model["model.safetensors.index.json"], model[second] = index(t, shards), weights(t, two)
		require.Len(t, check(t, files(model)), want, "%s is stored twice", name)
		for _, other := range []map[string]float32{{"a": 1}, {"a": 1, name: 3}} {
			require.Len(t, check(t, files(map[string]string{"model.safetensors": weights(t, one), "pytorch_model.bin": torchFile(t, other)})), want, "two formats")
			require.Len(t, check(t, files(map[string]string{"model.safetensors": weights(t, other), "Model.safetensors": weights(t, one)})), want, "two files")
		}
	}
}

// TestTiedCopies: a tied head may be stored, in whatever dtype, as long as its numbers are those of the embedding, rounded to
// that dtype.
func TestTiedCopies(t *testing.T) {
	const embedding, head = "model.embed_tokens.weight", "lm_head.weight"
	tensor := func(dtype safetensors.DType, first float32) safetensors.Tensor {
		x, err := safetensors.NewTensor(safetensors.F32, []int{2, 2}, []float32{first, 1, 2, 3})
		require.NoError(t, err)
		x, err = x.Convert(dtype)
		require.NoError(t, err)
		return x
	}
	const third = float32(1) / 3
	for _, c := range []struct {
		of     [2]safetensors.DType // of the embedding and the head
		values [2]float32
		want   int
	}{
		{[2]safetensors.DType{safetensors.F32, safetensors.F16}, [2]float32{third, third}, 0},
		{[2]safetensors.DType{safetensors.BF16, safetensors.F32}, [2]float32{third, third}, 0},
		{[2]safetensors.DType{safetensors.F64, safetensors.F32}, [2]float32{third, third}, 0},
		{[2]safetensors.DType{safetensors.F16, safetensors.BF16}, [2]float32{1, 1}, 0},
		{[2]safetensors.DType{safetensors.F16, safetensors.BF16}, [2]float32{third, third}, 1},
		{[2]safetensors.DType{safetensors.F32, safetensors.F16}, [2]float32{1, 2}, 1},
		{[2]safetensors.DType{safetensors.F32, safetensors.I32}, [2]float32{1, 1}, 1},
	} {
		var stored safetensors.Tensor
		if c.of[1] == safetensors.I32 {
			var err error
			stored, err = safetensors.NewTensor(safetensors.I32, []int{2, 2}, []int32{1, 1, 2, 3})
			require.NoError(t, err)
		} else {
			stored = tensor(c.of[1], c.values[1])
		}
		model := map[string]safetensors.Tensor{embedding: tensor(c.of[0], c.values[0]), head: stored}
		found := check(t, files(map[string]string{"config.json": `{"tie_word_embeddings":true}`, "model.safetensors": written(t, model)}))
		require.Len(t, found, c.want, "%v: %q", c, found)
	}
}

// TestRepeatedKeys: of a key that a config has twice, Python takes the last value. Other values before it are a
// finding, which names the key and the file.
func TestRepeatedKeys(t *testing.T) {
	model := map[string]safetensors.Tensor{}
	x, err := safetensors.NewTensor(safetensors.F32, []int{2, 1}, []float32{1, 2})
	require.NoError(t, err)
	model["model.embed_tokens.weight"] = x
	for config, want := range map[string]string{
		`{"model_type":"llama","vocab_size":2,"vocab_size":2}`:                                       "",
		`{"model_type":"llama","a":[1,{"b":NaN,"c":{}}],"a":[1,{"b":NaN,"c":{}}]}`:                   "",
		`{"model_type":"llama","vocab_size":3,"vocab_size":2}`:                                       "vocab_size",
		`{"model_type":"llama","rope_scaling":{"type":"x","type":"y"}}`:                              "type",
		`{"model_type":"llama","a":[{"b":1}],"a":[{"b":2}],"vocab_size":2}`:                          "a",
		`{"model_type":"llama","quantization_config":{"quant_method":"fp8","quant_method":"other"}}`: "quant_method",
	} {
		found := check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)}))
		if want == "" {
			require.Empty(t, found, config)
			continue
		}
		require.Equal(t, []string{`config: "config.json" has the key "` + want + `" twice with different values: Python takes the last one, and other programs refuse the file`}, found, config)
	}
	adapter := map[string]string{"adapter_model.safetensors": weightsOf(t, "base_model.model.q.lora_A.weight", "base_model.model.q.lora_B.weight"), "adapter_config.json": `{"peft_type":"LORA","r":2,"r":1}`}
	found := check(t, files(adapter))
	require.Len(t, found, 1)
	require.Contains(t, found[0], `"adapter_config.json" has the key "r" twice`)
}

// TestCaseOfKeys: a key in other letters than those that a library reads is another key.
func TestCaseOfKeys(t *testing.T) {
	for _, config := range []string{
		`{"model_type":"llama","vocab_size":2,"VOCAB_SIZE":9,"Model_Type":"bert","ARCHITECTURES":["BertModel"],"Architectures":["BertModel"],"hidden_size":1,"Hidden_Size":7}`,
		`{"TIE_WORD_EMBEDDINGS":true,"Dtype":"float16","model_type":"new","MODEL_TYPE":3,"Quantization_Config":{}}`,
	} {
		model := map[string]safetensors.Tensor{}
		for name, value := range map[string]float32{"model.embed_tokens.weight": 1.0 / 3, "lm_head.weight": 2} {
			x, err := safetensors.NewTensor(safetensors.F32, []int{2, 1}, []float32{value, value})
			require.NoError(t, err)
			model[name] = x
		}
		require.Empty(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)})), config)
	}
	adapter := map[string]string{
		"adapter_model.safetensors": weightsOf(t, "base_model.model.q.lora_A.weight", "base_model.model.q.lora_B.weight"),
		"adapter_config.json":       `{"peft_type":"LORA","Peft_Type":"LOHA","r":1,"R":9,"USE_DORA":true}`,
	}
	require.Empty(t, check(t, files(adapter)))
	require.Empty(t, check(t, files(map[string]string{"modules.json": `[{"path":"","PATH":"gone","type":"a.Transformer"}]`, "config.json": "{}", "model.safetensors": weights(t, map[string]float32{"x": 1})})))
}

// TestOtherEndings: of the files of torch.save, libraries open those that end in .bin.
func TestOtherEndings(t *testing.T) {
	const config = `{"model_type":"new","architectures":["New"]}`
	of := func(value float32) string { return torchFile(t, map[string]float32{"x": value}) }
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"beside safetensors": {map[string]string{"pytorch_model.pt": of(2), "model.safetensors": weights(t, map[string]float32{"x": 1})}, ""},
		"no model":           {map[string]string{"pytorch_model.ckpt": "x", "model.safetensors": weights(t, map[string]float32{"x": 1})}, ""},
		"beside .bin":        {map[string]string{"pytorch_model.pt": of(2), "pytorch_model.bin": of(1)}, ""},
		"alone":              {map[string]string{"pytorch_model.pt": of(1)}, `missing: "pytorch_model.bin" is missing, which the libraries open; the directory has "pytorch_model.pt"`},
	} {
		c.files["config.json"] = config
		found := check(t, files(c.files))
		if c.want == "" {
			require.Empty(t, found, name)
			continue
		}
		require.Equal(t, []string{c.want}, found, name)
	}
	require.Empty(t, check(t, files(map[string]string{"pytorch_model.pt": of(1)})), "it is for no library")
}

// TestNamesOfLibraries: each library opens files with names of its own.
func TestNamesOfLibraries(t *testing.T) {
	const diffusers, transformers = `{"_class_name":"New2DModel","_diffusers_version":"0.30.0"}`, `{"model_type":"new","architectures":["New"]}`
	for _, c := range []struct{ config, name, want string }{
		{diffusers, "diffusion_pytorch_model.safetensors", ""},
		{diffusers, "diffusion_pytorch_model.fp16.safetensors", ""},
		{diffusers, "diffusion_pytorch_model.bin", ""},
		{diffusers, "model.safetensors", "diffusion_pytorch_model.safetensors"},
		{diffusers, "pytorch_model.bin", "diffusion_pytorch_model.bin"},
		{diffusers, "model.fp16.safetensors", "diffusion_pytorch_model.fp16.safetensors"},
		{transformers, "model.safetensors", ""},
		{transformers, "pytorch_model.bin", ""},
		{transformers, "diffusion_pytorch_model.safetensors", "model.safetensors"},
		{transformers, "diffusion_pytorch_model.bin", "pytorch_model.bin"},
		{transformers, "pytorch_model.safetensors", "model.safetensors"},
		{transformers, "model.bin", "pytorch_model.bin"},
		{transformers, "flux1-dev.safetensors", ""}, // no embedding
		{diffusers, "flux1-dev.safetensors", ""},
		{`{"_class_name":"Own"}`, "pytorch_model.safetensors", ""},
		{`{"_class_name":"Own"}`, "model.bin", ""},
		{`{"model_type":"new","architectures":["New"],"auto_map":{}}`, "model.bin", ""},
		{`{"model_type":"new","architectures":["New"],"transformers_weights":"pytorch_model.safetensors"}`, "pytorch_model.safetensors", ""},
		{"{}", "weights.safetensors", ""},
		{`{"model_type":"whisper","n_mels":80}`, "weights.safetensors", ""}, // of mlx-examples
		{`{"model_type":"new","architectures":["New"],"auto_map":{}}`, "weights.safetensors", ""},
		{`{"_class_name":"Own"}`, "model.safetensors", ""}, // another library has written this config
		{`{"model_type":"new","architectures":["New"],"auto_map":{}}`, "diffusion_pytorch_model.safetensors", ""},
	} {
		content := weights(t, map[string]float32{"x": 1})
		if strings.HasSuffix(c.name, ".bin") {
			content = torchFile(t, map[string]float32{"x": 1})
		}
		found := check(t, files(map[string]string{"config.json": c.config, c.name: content}))
		if c.want == "" {
			require.Empty(t, found, c)
			continue
		}
		require.Len(t, found, 1, c)
		require.Contains(t, found[0], `missing: "`+c.want+`" is missing, which the libraries open; the directory has "`+c.name+`"`)
	}
}

// TestWeightsOfAnyName: a language model beside a config of transformers has a name that transformers opens, unless its name, its
// config or the files beside it are those of another program.
func TestWeightsOfAnyName(t *testing.T) {
	const transformers = `{"model_type":"new","architectures":["New"]}`
	with := func(field string) string { return strings.TrimSuffix(transformers, "}") + "," + field + "}" }
	for _, c := range []struct {
		config, name, beside string
		finds                bool
	}{
		{transformers, "weights.safetensors", "", true},
		{transformers, "llama.fp16.safetensors", "", true},
		{transformers, "weights.safetensors", "README.md", true},
		{transformers, "consolidated.safetensors", "", false},
		{transformers, "model-rank-0-part-0.safetensors", "", false},
		{transformers, "weights.safetensors", "other.safetensors", false},
		{transformers, "weights.safetensors", "model.gguf", false},
		{transformers, "gptq_model-4bit-128g.safetensors", "quantize_config.json", false},
		{with(`"transformers_weights":"weights.safetensors"`), "weights.safetensors", "", false},
		{with(`"quantization":{"bits":4}`), "model-4bit.safetensors", "", false},
		{with(`"quantization_config":{"quant_method":"exl2"}`), "output.safetensors", "", false},
		{with(`"auto_map":{}`), "weights.safetensors", "", false},
		{`{"model_type":"whisper","n_mels":80}`, "weights.safetensors", "", false}, // of mlx-examples
		{"{}", "weights.safetensors", "", false},
	} {
		model := map[string]string{"config.json": c.config, c.name: weightsOf(t, "model.embed_tokens.weight")}
		switch {
		case strings.HasSuffix(c.beside, ".safetensors"):
			model[c.beside] = weightsOf(t, "x")
		case c.beside != "":
			model[c.beside] = "{}"
		}
		want := `missing: "model.safetensors" is missing, which the libraries open; the directory has "` + c.name + `"`
		require.Equal(t, c.finds, slices.Contains(check(t, files(model)), want), "%+v: %v", c, check(t, files(model)))
	}
}

// TestDotInIndex: Open and Check refuse the name of a shard that is not in its shortest form, although some libraries
// would find the file: the names in an index are local and slash-separated.
func TestDotInIndex(t *testing.T) {
	model := files(map[string]string{"x.safetensors": weights(t, map[string]float32{"x": 1}), "model.safetensors.index.json": `{"metadata":{},"weight_map":{"x":"./x.safetensors"}}`})
	_, err := checkpoint.OpenFS(model, ".")
	require.ErrorContains(t, err, `shard "./x.safetensors" is not a local, slash-separated file name`)
	found := check(t, model)
	require.Len(t, found, 1)
	require.Contains(t, found[0], `unreadable: "model.safetensors.index.json" cannot be read: `)
}

// TestOpenVINO: the weights of OpenVINO are not a file of torch.save, although their name has that ending.
func TestOpenVINO(t *testing.T) {
	model := map[string]string{"config.json": "{}", "openvino_model.bin": "weights", "openvino_model.xml": "<net/>"}
	_, err := checkpoint.OpenFS(files(model), ".")
	require.ErrorContains(t, err, `"openvino_model.bin" is of OpenVINO: optimum-intel reads it`)
	require.Len(t, check(t, files(model)), 1)
	model["model.safetensors"] = weights(t, map[string]float32{"x": 1})
	require.Empty(t, check(t, files(model)))
	delete(model, "model.safetensors")
	delete(model, "openvino_model.xml")
	_, err = checkpoint.OpenFS(files(model), ".")
	require.ErrorContains(t, err, "not made by torch.save")
}

// TestFilesBelow: a file in a folder below a model, which no library opens, may be of another program, or of DeepSpeed
// without tensors. A file with the name of a model is a finding.
func TestFilesBelow(t *testing.T) {
	const empty = "\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s."
	for name, want := range map[string]int{
		"global_step5/mp_rank_00_model_states.pt": 0, "eval/results.pt": 0, "a/weights.bin": 0, "a/pytorch_model.pt": 0, "a/pytorch_model.bin": 1, "x.bin": 0, "pytorch_model.bin": 1,
	} {
		content := "a text"
		if strings.HasPrefix(name, "global") {
			content = empty
		}
		require.Len(t, check(t, files(map[string]string{"model.safetensors": weights(t, map[string]float32{"x": 1}), name: content})), want, name)
	}
	require.Len(t, check(t, files(map[string]string{"a/other.pt": empty})), 1)
}

// TestVocabularyOfDecoder: the decoder of Marian may have another vocabulary than the encoder.
func TestVocabularyOfDecoder(t *testing.T) {
	x, err := safetensors.NewTensor(safetensors.F32, []int{3, 1}, []float32{1, 2, 3})
	require.NoError(t, err)
	model := written(t, map[string]safetensors.Tensor{"model.decoder.embed_tokens.weight": x})
	for config, want := range map[string]int{
		`{"model_type":"marian","vocab_size":2,"decoder_vocab_size":3}`: 0,
		`{"model_type":"marian","vocab_size":3,"decoder_vocab_size":2}`: 1,
		`{"model_type":"marian","vocab_size":2}`:                        1,
	} {
		require.Len(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": model})), want, config)
	}
}

// TestQuantizedCache: a config may specify how programs quantise the cache of keys and values, and quantise no tensor.
func TestQuantizedCache(t *testing.T) {
	model := weights(t, map[string]float32{"model.layers.0.self_attn.k_scale": 1, "x": 2})
	for settings, want := range map[string]int{
		`{"quant_method":"compressed-tensors","kv_cache_scheme":{"num_bits":8},"config_groups":{}}`:                                                                         0,
		`{"quant_method":"compressed-tensors","config_groups":{}}`:                                                                                                          1,
		`{"quant_method":"compressed-tensors","kv_cache_scheme":{"num_bits":8},"config_groups":{"group_0":{"weights":{"num_bits":8,"type":"float"},"targets":["Linear"]}}}`: 1,
	} {
		require.Len(t, check(t, files(map[string]string{"config.json": `{"model_type":"new","quantization_config":` + settings + `}`, "model.safetensors": model})), want, settings)
	}
}
