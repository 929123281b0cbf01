package checkpoint_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestNeedsOfMembers: what a component of a pipeline or a module of sentence-transformers needs follows from its
// class: weights, a config, both or neither. A directory that needs neither may be missing.
func TestNeedsOfMembers(t *testing.T) {
	const weightless = `missing: the directory "part" of the "%s" has no weights`
	const gone = `missing: the directory "part" is missing, which holds the "%s"`
	lacks := func(config string) string {
		return `missing: "part/` + config + `" is missing, which describes the "%s"`
	}
	both := []string{weightless, lacks("config.json")}
	for class, want := range map[[2]string][]string{
		{"diffusers", "UNet2DConditionModel"}:        both,
		{"transformers", "CLIPTextModel"}:            both,
		{"diffusers", "DDIMScheduler"}:               {lacks("scheduler_config.json")},
		{"other", "SchedulerOfOthers"}:               nil,
		{"transformers", "CLIPTokenizer"}:            nil,
		{"transformers", "CLIPTokenizerFast"}:        nil,
		{"transformers", "SiglipProcessor"}:          nil,
		{"transformers", "CLIPImageProcessorFast"}:   nil,
		{"transformers", "CLIPFeatureExtractor"}:     nil,
		{"diffusers", "StableUnCLIPImageNormalizer"}: nil,
		{"diffusers", "ClassifierFreeGuider"}:        nil,
		{"diffusers", "OnnxRuntimeModel"}:            nil,
		{"transformers", "FlaxCLIPTextModel"}:        nil,
		{"diffusers", "OVModel"}:                     nil,
		{"own", "MyModel"}:                           {weightless},
		{"stable_diffusion", "SafetyChecker"}:        {weightless},
		{"stable_diffusion", "Watermarker"}:          {weightless},
		{"own", "Other"}:                             nil,
		{"", "sentence_transformers.models.Dense"}:   both,
		{"", "sentence_transformers.models.LSTM"}:    {weightless, lacks("lstm_config.json")},
		{"", "sentence_transformers.models.CNN"}:     {weightless, lacks("cnn_config.json")},
		{"", "models.WordEmbeddings"}:                {weightless, lacks("wordembedding_config.json")},
		{"", "models.Router"}:                        {lacks("router_config.json")},
		{"", "models.LayerNorm"}:                     both,
		{"", "models.WeightedLayerPooling"}:          both,
		{"", "sentence_transformers.models.Pooling"}: {lacks("config.json")},
		{"", "models.Transformer"}:                   both,
		{"", "models.CLIPModel"}:                     both,
		{"", "models.StaticEmbedding"}:               {weightless},
		{"", "models.Normalize"}:                     nil,
		{"", "models.Other"}:                         nil,
		{"", "Dense"}:                                both,
	} {
		list, text := "model_index.json", fmt.Sprintf(`{"_class_name":"P","whole":["diffusers","WholeScheduler"],"part":[%q,%q]}`, class[0], class[1])
		if class[0] == "" {
			list, text = "modules.json", fmt.Sprintf(`[{"path":"whole","type":"a.Pooling"},{"path":"part","type":%q}]`, class[1])
		}
		for there, want := range map[bool][]string{true: want, false: slices.Repeat([]string{gone}, min(len(want), 1))} {
			model := map[string]string{list: text, "whole/config.json": "{}", "whole/scheduler_config.json": "{}", "whole/model.safetensors": weights(t, map[string]float32{"a": 1})}
			if there {
				model["part/README.md"] = ""
			}
			var texts []string
			for _, w := range want {
				texts = append(texts, fmt.Sprintf(w, class[1]))
			}
			require.ElementsMatch(t, texts, check(t, files(model)), "%v, its directory is there: %t", class, there)
		}
	}
}

// TestWholeBesideShards: beside the shards of an index, a whole model of other numbers is ambiguous, and one of the
// same numbers is none. Any other file is of another save.
func TestWholeBesideShards(t *testing.T) {
	shards := map[string]string{"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
	for name, c := range map[string]struct {
		file, content string
		want          string
	}{
		"the same":      {"model.safetensors", weights(t, map[string]float32{"a": 1, "b": 2}), ""},
		"other numbers": {"model.safetensors", weights(t, map[string]float32{"a": 1, "b": 3}), `ambiguous: beside `},
		"another shard": {"model-00003-of-00003.safetensors", weights(t, map[string]float32{"c": 3}), `unlisted: `},
	} {
		found := check(t, files(map[string]string{
			"model.safetensors.index.json": index(t, shards), c.file: c.content, "config.json": "{}",
			shards["a"]: weights(t, map[string]float32{"a": 1}), shards["b"]: weights(t, map[string]float32{"b": 2}),
		}))
		if c.want == "" {
			require.Empty(t, found, name)
			continue
		}
		require.Len(t, found, 1, name)
		require.Contains(t, found[0], c.want, name)
	}
}

// TestRenamedShard: a shard that is not in the index under its name, but holds tensors of a shard that the index names
// and that is not there, is no shard of another save. A shard without such a tensor is one.
func TestRenamedShard(t *testing.T) {
	const other = "model-00003-of-00003.safetensors"
	shards := map[string]string{"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}
	const missing = `missing: the index "model.safetensors.index.json" names "model-00002-of-00002.safetensors", which is not there`
	for _, c := range []struct {
		values map[string]float32
		want   string
	}{
		{map[string]float32{"b": 2, "c": 3}, `unlisted: "` + other + `" is not in the index "model.safetensors.index.json"; it holds "b", which the index places in "model-00002-of-00002.safetensors", a file that is not there`},
		{map[string]float32{"d": 2}, `the tensor "d" differs (only one of them has it)`},
		{map[string]float32{"a": 2}, `the tensor "a" differs`},
	} {
		found := check(t, files(map[string]string{
			"model.safetensors.index.json": index(t, shards), other: weights(t, c.values), "config.json": "{}",
			shards["a"]: weights(t, map[string]float32{"a": 1}),
		}))
		require.Len(t, found, 2)
		require.Contains(t, found[0], missing)
		require.Contains(t, found[1], c.want)
	}
}

// TestOldNames: the norms of a layer may have the names gamma and beta, which converted models of TensorFlow have,
// whatever they are in other layers.
func TestOldNames(t *testing.T) {
	modules := strings.Fields("attention.self.query attention.self.key attention.self.value attention.output.dense attention.output.LayerNorm intermediate.dense output.dense output.LayerNorm")
	for old := range 4 { // the first layers
		for _, lost := range []string{"", "encoder.layer.0.output.LayerNorm.", "encoder.layer.2.output.LayerNorm."} {
			values := map[string]float32{"embeddings.word_embeddings.weight": 1, "embeddings.position_embeddings.weight": 2, "embeddings.token_type_embeddings.weight": 3,
				"embeddings.LayerNorm.weight": 4, "embeddings.LayerNorm.bias": 5}
			for layer := range 3 {
				for _, module := range modules {
					for _, name := range []string{"weight", "bias"} {
						if strings.HasSuffix(module, "LayerNorm") && layer < old {
							name = map[string]string{"weight": "gamma", "bias": "beta"}[name]
						}
						values[fmt.Sprintf("encoder.layer.%d.%s.%s", layer, module, name)] = float32(len(values))
					}
				}
			}
			found := func(lost ...string) []string {
				for _, name := range lost {
					delete(values, name)
				}
				return check(t, files(map[string]string{
					"config.json": `{"model_type":"bert","num_hidden_layers":3}`, "model.safetensors": weights(t, values)}))
			}
			if lost == "" {
				require.Empty(t, found(), "%d layers", old)
				continue
			}
			one := found(lost+"weight", lost+"gamma")
			require.Len(t, one, 1)
			require.Contains(t, one[0], `missing: the tensor "`+lost+`weight" is not stored, but a model of the type "bert" in "config.json" has it: programs set it at random`)
			two := found(lost+"bias", lost+"beta")
			require.Len(t, two, 1)
			require.Contains(t, two[0], `missing: the tensor "`+lost+`bias" and one more are not stored, but a model of the type "bert" in "config.json" has them: programs set them at random`)
		}
	}
}

// TestManyShardsMissing: the count in the name of a shard is believed up to the number of files that Check reads.
func TestManyShardsMissing(t *testing.T) {
	for name, want := range map[string]string{
		"model-00001-of-00003.safetensors": `2 of 3 shards are missing: "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"`,
		"model-00002-of-00002.safetensors": `1 of 2 shards is missing: "model-00001-of-00002.safetensors"`,
		"model-00001-of-10001.safetensors": "10000 of 10001 shards are missing: ",
		"model-00001-of-99999.safetensors": "99998 of 99999 shards are missing: ",
	} {
		found := check(t, files(map[string]string{name: weights(t, map[string]float32{"a": 1}), "config.json": "{}"}))
		require.Len(t, found, 1, name)
		require.Contains(t, found[0], "missing: "+want)
	}
}

// TestTiedHeads: files of torch.save may store the head, which safetensors leaves out if the model ties it to the
// embedding. It is tied by default, and not if the numbers or the config say otherwise.
func TestTiedHeads(t *testing.T) {
	const embedding, head = "model.embed_tokens.weight", "lm_head.weight"
	for name, c := range map[string]struct {
		config string
		head   float32
		want   int
	}{
		"tied by default":   {"{}", 1, 0},
		"tied":              {`{"tie_word_embeddings":true}`, 1, 0},
		"untied":            {`{"tie_word_embeddings":false}`, 1, 1},
		"untied and others": {`{"tie_word_embeddings":false}`, 2, 1},
		"other numbers":     {"{}", 2, 1},
	} {
		found := check(t, files(map[string]string{
			"config.json": c.config, "model.safetensors": weights(t, map[string]float32{embedding: 1, "b": 3}),
			"pytorch_model.bin": torchFile(t, map[string]float32{embedding: 1, "b": 3, head: c.head}),
		}))
		require.Len(t, found, c.want, name)
		if c.want > 0 {
			require.Contains(t, found[0], `the tensor "lm_head.weight" differs (only one of them has it)`)
		}
	}
	requireFaults(t, files(map[string]string{
		"config.json": `{"tie_word_embeddings":true}`, "model.safetensors": weightsOf(t, embedding, head),
	}))
	for name, want := range map[string]int{ // of tensors that only safetensors have
		head: 0, "embed_out.weight": 0, "generator_lm_head.weight": 0, "vocab_projector.weight": 0, "cls.predictions.decoder.weight": 0, "cls.predictions.decoder.bias": 0, "decoder.weight": 0,
		"model.decoder.embed_tokens.weight": 0, "other.weight": 1, "transformer.wte.weight": 1,
	} {
		found := check(t, files(map[string]string{
			"config.json": "{}", "model.safetensors": weights(t, map[string]float32{embedding: 1, name: 1}), "pytorch_model.bin": torchFile(t, map[string]float32{embedding: 1}),
		}))
		require.Len(t, found, want, name)
	}
}

// TestTiedTensors: a tensor that only files of torch.save have is compared with the tensors of its shape in both
// formats, until the data of 100 have been compared. A read that fails is an error and not a finding.
func TestTiedTensors(t *testing.T) {
	for name, c := range map[string]struct {
		tensors int
		tied    map[string]float32
		want    int
	}{
		"the last of 100":     {100, map[string]float32{"x": 99}, 0},
		"the last of 101":     {101, map[string]float32{"x": 100}, 1},
		"two in 100 readings": {99, map[string]float32{"x": 98, "y": 0}, 0},
		"two in 101 readings": {100, map[string]float32{"x": 99, "y": 0}, 1},
	} {
		values := make(map[string]float32)
		for i := range c.tensors {
			values[fmt.Sprintf("t%03d", i)] = float32(i)
		}
		both := maps.Clone(values)
		maps.Copy(both, c.tied)
		fsys := files(map[string]string{"config.json": "{}", "model.safetensors": weights(t, values), "pytorch_model.bin": torchFile(t, both)})
		require.Len(t, check(t, fsys), c.want, name)
	}
	values := map[string]float32{"a": 1}
	requireFaults(t, files(map[string]string{"config.json": "{}", "model.safetensors": weights(t, values),
		"pytorch_model.bin": torchFile(t, map[string]float32{"a": 1, "b": 1})}))
}

// torchFile returns a file of torch.save with tensors like those of weights.
func torchFile(t *testing.T, values map[string]float32) string { return torchFileIn(t, "", values) }

// torchFileIn is like torchFile, but the tensors are in a dict within the dict, which has this key, unless it is "".
func torchFileIn(t *testing.T, key string, values map[string]float32) string {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	add := func(name string, data []byte) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		require.NoError(t, err)
		_, err = f.Write(data)
		require.NoError(t, err)
	}
	text := func(s string) string { return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s }
	pickle, end := "\x80\x02}(", "u."
	if key != "" {
		pickle, end = pickle+text(key)+"}(", "u"+end
	}
	for i, name := range slices.Sorted(maps.Keys(values)) {
		key := fmt.Sprint(i)
		pickle += text(name) + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" + text(key) + text("cpu") + "K\x02tQK\x00K\x02\x85K\x01\x85\x89}tR"
		data, err := binary.Append(nil, binary.LittleEndian, []float32{values[name], values[name]})
		require.NoError(t, err)
		add("a/data/"+key, data)
	}
	add("a/data.pkl", []byte(pickle+end))
	require.NoError(t, w.Close())
	return b.String()
}

// TestManyAliases: names that the metadata lists as other names of tensors need no comparison with the files of
// torch.save, so that their number has no limit.
func TestManyAliases(t *testing.T) {
	values, metadata := map[string]float32{"x": 1}, make(map[string]string)
	for i := range 101 {
		values[fmt.Sprint("y", i)] = 1
		metadata[fmt.Sprint("y", i)] = "x"
	}
	x, err := safetensors.NewTensor(safetensors.F32, []int{2}, []float32{1, 1})
	require.NoError(t, err)
	for _, metadata := range []map[string]string{metadata, nil} {
		var b bytes.Buffer
		require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{"x": x}, metadata))
		found := check(t, files(map[string]string{"config.json": "{}", "model.safetensors": b.String(), "pytorch_model.bin": torchFile(t, values)}))
		require.Equal(t, metadata == nil, len(found) > 0, "%v", found)
	}
}
