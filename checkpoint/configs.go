package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/torchtype"
)

// judgeConfig compares config.json with the tensors.
func (d *directory) judgeConfig(config *modelConfig) error {
	s := d.main()
	if s == nil || config.text == nil || d.incomplete() {
		return nil
	}
	texts := d.denseText(config, s)
	lacking := d.lacking(config, s)
	if isKnown(config.Type) { // in other architectures, these numbers may have other meanings
		texts = append(texts, d.sizeText(config, s)...)
		texts = append(texts, d.classText(config, s)...)
		if config.Quantization == nil && config.MLX == nil {
			texts = append(texts, d.labelText(config, s)...)
		}
	}
	if !lacking && !config.Remote {
		texts = append(texts, d.layerText(config, s)...)
	}
	texts = append(texts, expertText(config, s)...)
	if config.Quantization == nil && config.MLX == nil && !config.Remote {
		texts = append(texts, d.biasText(config, s)...)
	}
	if len(texts) == 0 {
		texts = append(texts, d.partText(config, s)...)
	}
	if !config.Remote {
		texts = append(texts, config.typeTexts()...)
	}
	for _, text := range texts {
		d.noteConfig(s, "", text)
	}
	if len(texts) == 0 {
		lacking = d.judgeWrapped(config, s) || lacking
	}
	if !lacking && !config.Remote && (config.Type != "" || config.Class != "") {
		d.judgeSiblings(config, s)
	}
	d.judgeComponentShapes(config, s)
	if err := d.judgeDType(config, s); err != nil {
		return err
	}
	if err := d.judgeTying(config, s); err != nil {
		return err
	}
	return d.judgeQuantization(config, s)
}

// sizeText returns the texts of findings if vocab_size or hidden_size contradicts the shape of the embedding, or of the
// head. It does not check the head of a draft model, which may be for fewer tokens.
func (d *directory) sizeText(config *modelConfig, s *set) (texts []string) {
	name, i, found := d.embeddingOf(s, slices.Concat(embeddings, otherEmbeddings))
	if !found {
		return nil
	}
	own := config.own()
	noted := slices.ContainsFunc(d.findings[d.first:], func(f Finding) bool { return f.Rule == Config && f.Tensor == name })
	key := modelconfig.Vocabulary
	if strings.Contains(name, "decoder.") && own["decoder_vocab_size"] != nil { // the decoder of Marian may have tokens of its own
		key = "decoder_vocab_size"
	}
	want, ok := number(own[key])
	if ok && want != i.shape[0] && !noted {
		texts = append(texts, fmt.Sprintf("%s %d, but %s has %s", config.keyText(key), want, quoted(name), shapetext.Of(i.shape)))
	}
	if head, found := d.info(s, "lm_head.weight"); ok && want == i.shape[0] && found && isFloat(head.dtype) && len(head.shape) == 2 && head.shape[0] != want && s.where["fc.weight"] == "" && own["draft_vocab_size"] == nil && key == modelconfig.Vocabulary {
		texts = append(texts, fmt.Sprintf("%s %d, but \"lm_head.weight\" has %s", config.keyText(key), want, shapetext.Of(head.shape)))
	}
	if want, ok := number(own["hidden_size"]); ok && want != i.shape[1] && name == embeddings[0] && !noted {
		texts = append(texts, fmt.Sprintf("%s %d, but %s has %s", config.keyText("hidden_size"), want, quoted(name), shapetext.Of(i.shape)))
	}
	return texts
}

// expertName matches the names of tensors of one expert, with its number.
var expertName = lazyregexp.New(`\.experts\.(\d{1,6})\.`)

// expertText compares the number of experts with the tensors, if each expert has tensors of its own.
func expertText(config *modelConfig, s *set) (texts []string) {
	stored := 0
	for name := range s.where {
		if match := expertName().FindStringSubmatch(name); match != nil {
			n, _ := strconv.Atoi(match[1])
			stored = max(stored, n+1)
		}
	}
	own := config.own()
	for _, key := range expertKeys {
		if want, ok := number(own[key]); ok && stored > 0 && stored < want {
			return []string{fmt.Sprintf("%s %d, but there are no tensors of expert %d", config.keyText(key), want, stored)}
		}
	}
	return nil
}

// keyText returns the text with which a message introduces the value of a key in the config itself. If the config lacks
// the key, the text says so, because the value is then a default.
func (m *modelConfig) keyText(key string) string {
	for _, p := range m.stored() {
		if _, found := p.fields[key]; !found && p.path == "" {
			return "nothing of " + key + ", which is then"
		}
	}
	return key
}

// typeTexts returns the texts of findings if a number that an architecture needs is not an integer in the config, or in a
// config within it, or if a dtype is not one of PyTorch.
func (m *modelConfig) typeTexts() (texts []string) {
	for _, p := range m.parts() {
		for _, key := range notIntegers(p.fields, isKnown(p.Type)) {
			texts = append(texts, fmt.Sprintf("%s%s %s, which is not an integer", cut(p.path), key, valueText(p.fields[key])))
		}
		layers, counted := number(p.fields["num_hidden_layers"])
		if types, ok := p.fields["layer_types"].([]any); ok && counted && len(types) != layers {
			texts = append(texts, fmt.Sprintf("%snum_hidden_layers %d, but %d layer_types", cut(p.path), layers, len(types)))
		}
		width, ok := key(sameKeys[0]...)(p.fields)
		divides := ok && len(m.Architectures) > 0 && isKnown(p.Type) && p.fields["head_dim"] == nil && p.fields["kv_lora_rank"] == nil && !sizesHeads(p.Type)
		for _, name := range []string{"num_attention_heads", "n_head", "n_heads", "encoder_attention_heads", "decoder_attention_heads"} {
			if heads, ok := number(p.fields[name]); divides && ok && heads > 0 && width%heads != 0 {
				texts = append(texts, fmt.Sprintf("%s%s %d, which does not divide the width %d of the model", cut(p.path), name, heads, width))
			}
		}
	}
	for _, value := range []any{m.DType, m.TorchDType} {
		name, is := value.(string)
		_, known := torchtype.Of(strings.TrimPrefix(name, "torch."))
		known = known || slices.Contains([]string{"float", "half", "double"}, name)
		if _, number := value.(float64); len(m.Architectures) > 0 && (number || is && !known) {
			texts = append(texts, fmt.Sprintf("dtype %s, which PyTorch does not have", valueText(value)))
		}
	}
	return texts
}

// A biasing describes a setting of the config that decides, in some architectures, whether some modules have a bias, or whether
// they exist at all.
type biasing struct {
	types    []string // values of model_type
	key      string   // name of the setting
	standard bool     // value of the setting if the config lacks it
	rests    []string // ends of the names of the tensors that exist if the setting is true, such as "mlp.up_proj.bias"
}

// biasings lists these settings. The table is built on first use.
var biasings = sync.OnceValue(func() []biasing {
	attn, mlp := biasesOf("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"), biasesOf("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
	projector := biasesOf("multi_modal_projector.linear_1", "multi_modal_projector.linear_2")
	return []biasing{
		{[]string{"llama", "granite", "gemma", "gemma2", "gemma3_text", "qwen3", "qwen3_moe", "smollm3", "cohere", "cohere2", "olmo", "olmo2", "olmo3"}, "attention_bias", false, attn},
		{[]string{"helium", "glm4_moe"}, "attention_bias", false, attn[:3]},
		{[]string{"seed_oss"}, "attention_bias", true, attn[:3]},
		{[]string{"qwen2_moe"}, "qkv_bias", true, attn[:3]},
		{[]string{"seed_oss"}, "attention_out_bias", false, attn[3:]},
		{[]string{"gpt_oss"}, "attention_bias", true, attn},
		{[]string{"stablelm"}, "use_qkv_bias", false, attn[:3]},
		{[]string{"llama", "granite", "smollm3", "helium", "seed_oss"}, "mlp_bias", false, mlp},
		{[]string{"starcoder2"}, "use_bias", true, append(biasesOf("mlp.c_fc", "mlp.c_proj"), attn...)},
		{[]string{"gpt_neox"}, "attention_bias", true, biasesOf("attention.query_key_value", "attention.dense")},
		{[]string{"opt"}, "enable_bias", true, biasesOf("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "fc1", "fc2")},
		{[]string{"cohere", "glm4_moe"}, "use_qk_norm", false, weightsOf("self_attn.q_norm", "self_attn.k_norm")},
		{[]string{"phi"}, "qk_layernorm", false, withBias("self_attn.q_layernorm", "self_attn.k_layernorm")},
		{[]string{"stablelm"}, "qk_layernorm", false, weightsOf("self_attn.q_layernorm.norms.0", "self_attn.k_layernorm.norms.0")},
		{[]string{"deberta-v2"}, "relative_attention", false, weightsOf("encoder.rel_embeddings")},
		{[]string{"mamba"}, "use_bias", false, biasesOf("mixer.in_proj", "mixer.out_proj")},
		{[]string{"mamba"}, "use_conv_bias", true, biasesOf("mixer.conv1d")},
		{[]string{"vit", "deit", "dinov2"}, "qkv_bias", true, biasesOf("attention.attention.query", "attention.attention.key", "attention.attention.value")},
		{[]string{"modernbert"}, "attention_bias", false, biasesOf("attn.Wqkv", "attn.Wo")},
		{[]string{"modernbert"}, "mlp_bias", false, biasesOf("mlp.Wi", "mlp.Wo")},
		{[]string{"llava", "llava_next", "llava_next_video", "llava_onevision"}, "multimodal_projector_bias", true, projector},
		{[]string{"mistral3"}, "multimodal_projector_bias", false, projector},
	}
})

// biasText returns the texts of findings if settings contradict the biases and the modules that are stored. If a setting is
// false, libraries leave them out; if it is true, they initialize missing ones at random.
func (d *directory) biasText(config *modelConfig, s *set) (texts []string) {
	own := config.own()
	names := sortedNames(s.where)
	for _, row := range biasings() {
		if len(config.Architectures) == 0 || !slices.Contains(row.types, config.Type) {
			continue
		}
		want, given := own[row.key].(bool)
		if _, found := own[row.key]; !found {
			want, given = row.standard, true
		}
		for _, rest := range row.rests {
			at := func(rest string) int {
				return slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix("."+name, "."+rest) })
			}
			i := at(rest)
			if weight, is := strings.CutSuffix(rest, "bias"); given && want && i < 0 && (!is || at(weight+"weight") >= 0) {
				texts = append(texts, fmt.Sprintf("%s true, but no %q is stored: libraries set it at random", config.keyText(row.key), rest))
				break
			}
			if given && !want && i >= 0 {
				texts = append(texts, fmt.Sprintf("%s false, but %s is stored: libraries leave it out", config.keyText(row.key), quoted(names[i])))
				break
			}
		}
	}
	return texts
}

// classHeads maps endings of class names to texts. The classes have a head of their own, and the names of its tensors
// contain one of the texts.
var classHeads = map[string][]string{
	"ForSequenceClassification": {"score", "classif", "logits_proj", "summary"},
	"ForTokenClassification":    {"score", "classif"},
	"ForImageClassification":    {"classif"},
	"ForQuestionAnswering":      {"qa_outputs", "classif", "logits"},
}

// labelText returns the text of a finding if the head of a classification model does not have one row for each label
// in the config. If the config lists no labels, there are 2.
func (d *directory) labelText(config *modelConfig, s *set) []string {
	class := config.class()
	if !strings.HasSuffix(class, "ForSequenceClassification") && !strings.HasSuffix(class, "ForTokenClassification") && !strings.HasSuffix(class, "ForImageClassification") {
		return nil
	}
	labels := 2
	own := config.own()
	if names, ok := own["id2label"].(map[string]any); ok {
		labels = len(names)
	} else if n, ok := number(own["num_labels"]); ok {
		labels = n
	}
	for _, name := range []string{"score.weight", "classifier.weight", "classifier.out_proj.weight"} {
		if i, found := d.info(s, name); found && len(i.shape) == 2 && i.shape[0] != labels {
			return []string{fmt.Sprintf("that there are %d labels, but %s has %s", labels, quoted(name), shapetext.Of(i.shape))}
		}
	}
	return nil
}

// A typeHead describes a module that classes of some architectures have besides the base model, or as a part of it that
// other classes leave out.
type typeHead struct {
	types, endings []string // values of model_type; endings of class names
	part           string   // text that the names of its tensors contain, at the start or after a dot
	or             string   // another such text, or ""
}

// typeHeads lists modules whose names depend on the architecture. The weight of a head that is tied to the embedding is
// not among them.
var typeHeads = []typeHead{
	{[]string{"bert"}, []string{"ForMaskedLM", "LMHeadModel", "ForPreTraining"}, "cls.predictions.", ""},
	{[]string{"deberta-v2"}, []string{"ForMaskedLM"}, "cls.predictions.", "lm_predictions."},
	{[]string{"bert"}, []string{"ForPreTraining", "ForNextSentencePrediction"}, "cls.seq_relationship.", ""},
	{[]string{"roberta", "xlm-roberta", "camembert", "mpnet"}, []string{"ForMaskedLM", "ForCausalLM"}, "lm_head.", ""},
	{[]string{"distilbert"}, []string{"ForMaskedLM"}, "vocab_transform.", ""},
	{[]string{"electra"}, []string{"ForMaskedLM", "ForCausalLM"}, "generator_predictions.", ""},
	{[]string{"electra"}, []string{"ForPreTraining"}, "discriminator_predictions.", ""},
	{[]string{"albert"}, []string{"ForMaskedLM", "ForPreTraining"}, "predictions.", ""},
	{[]string{"modernbert"}, []string{"ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice"}, "head.", ""},
	{[]string{"bert", "deberta-v2"}, []string{"ForSequenceClassification", "ForMultipleChoice", "ForNextSentencePrediction"}, "pooler.dense.", ""},
	{[]string{"albert"}, []string{"ForSequenceClassification", "ForMultipleChoice"}, "pooler.", ""},
	{[]string{"distilbert"}, []string{"ForSequenceClassification", "ForMultipleChoice"}, "pre_classifier.", ""},
	{[]string{"bert", "distilbert", "roberta", "xlm-roberta", "camembert", "mpnet", "electra", "albert", "deberta-v2"}, []string{"ForMultipleChoice"}, "classifier.", ""},
	{t5s, []string{"ForConditionalGeneration", "EncoderModel"}, "DenseReluDense.wi", ""},
	{t5s, []string{"ForConditionalGeneration", "EncoderModel"}, "shared.", "embed_tokens."},
	{[]string{"bart", "mbart", "pegasus", "m2m_100", "marian"}, []string{"ForConditionalGeneration", "MTModel"}, "shared.", "embed_tokens."},
	{[]string{"whisper"}, []string{"ForConditionalGeneration"}, "embed_tokens.", "proj_out."},
	{[]string{"llava", "llava_next", "vipllava"}, []string{"ForConditionalGeneration"}, "multi_modal_projector.", ""},
	{[]string{"llava", "llava_next", "vipllava"}, []string{"ForConditionalGeneration"}, "vision_tower.", "vision_model."},
}

// hasPart reports whether the name of a tensor contains one of these texts. A dot precedes the name.
func (s *set) hasPart(parts ...string) bool {
	for name := range s.where {
		if slices.ContainsFunc(parts, func(part string) bool { return strings.Contains("."+name, part) }) {
			return true
		}
	}
	return false
}

// classText returns the text of a finding if the class in the config has a head of its own, but the head is not stored:
// no tensor has one of the names that classHeads lists for the class.
func (d *directory) classText(config *modelConfig, s *set) []string {
	class := config.class()
	for ending, parts := range classHeads {
		if strings.HasSuffix(class, ending) && !s.hasPart(parts...) {
			return []string{fmt.Sprintf("the class %s, but no tensor is of its head: programs set it at random", quoted(class))}
		}
	}
	return nil
}

// partText returns the text of a finding if no tensor belongs to a part that typeHeads lists for the class in the config.
// It does not judge modules of sentence-transformers, which loads the base model only: some of them have the config of the
// model from which they were trained.
func (d *directory) partText(config *modelConfig, s *set) []string {
	class := config.class()
	if d.has(modulesFile) || d.has(moduleConfigFile) {
		return nil
	}
	for _, h := range typeHeads {
		if slices.Contains(h.types, config.Type) && slices.ContainsFunc(h.endings, func(ending string) bool { return strings.HasSuffix(class, ending) }) && !s.hasPart("."+h.part) && (h.or == "" || !s.hasPart("."+h.or)) {
			return []string{fmt.Sprintf("the class %s, but no tensor has a name with %q: programs set that part of the model at random", quoted(class), h.part)}
		}
	}
	return nil
}

// numbered matches the text before the first number in the name of a tensor, and the number.
var numbered = lazyregexp.New(`^((?:[^.]*[^.\d][^.]*\.)+)(\d{1,6})\.`)

// layerText returns the text of a finding if the only stack of a model has more layers than the config specifies, the last of
// which has the same tensors as the first. Layers that predict further tokens have other tensors.
func (d *directory) layerText(config *modelConfig, s *set) []string {
	names, stacks := sortedNames(s.where), make(map[string]int) // the last number in each stack
	for _, name := range names {
		if len(name) > maxName || len(stacks) > 1 { // the model is hostile, or has several stacks: not judged
			return nil
		}
		if m := numbered().FindStringSubmatch(name); m != nil {
			n, _ := strconv.Atoi(m[2])
			stacks[m[1]] = max(stacks[m[1]], n)
		}
	}
	own := config.own()
	want, _ := key("num_hidden_layers", "n_layer", "n_layers", "num_layers")(own)
	for stack, last := range stacks {
		first := restsBelow(names, stack+"0.")
		for name, value := range own { // another number, such as num_blocks of xLSTM, may be the one that counts
			if n, _ := number(value); n == last+1 && (strings.Contains(name, "block") || strings.Contains(name, "layer") || name == "depth") {
				want = n
			}
		}
		if len(stacks) == 1 && len(config.stored()) == 1 && want > 0 && last >= want && slices.Equal(first, restsBelow(names, fmt.Sprintf("%s%d.", stack, last))) {
			return []string{fmt.Sprintf("that there are %d layers, but there are tensors of layer %d", want, last)}
		}
	}
	return nil
}

// denseText returns the texts of findings if the config of a Dense module of sentence-transformers contradicts its
// tensors: the shape of its weight, and whether it has a bias.
func (d *directory) denseText(config *modelConfig, s *set) (texts []string) {
	in, ok := number(config.InFeatures)
	out, also := number(config.OutFeatures)
	if !ok || !also {
		return nil
	}
	i, found := d.info(s, "linear.weight")
	switch {
	case found && !slices.Equal(i.shape, []int{out, in}):
		texts = append(texts, fmt.Sprintf("in_features %d and out_features %d, but \"linear.weight\" has %s", in, out, shapetext.Of(i.shape)))
	case !found && config.isDense():
		texts = append(texts, fmt.Sprintf("in_features %d and out_features %d, but \"linear.weight\" is not stored", in, out))
	}
	if _, stored := d.info(s, "linear.bias"); config.isDense() && stored != *config.Bias {
		texts = append(texts, fmt.Sprintf("bias %v, which contradicts \"linear.bias\"", *config.Bias))
	}
	return texts
}
