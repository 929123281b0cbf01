package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
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
			texts = append(texts, d.biasText(config, s)...)
		}
		if !lacking {
			texts = append(texts, d.layerText(config, s)...)
		}
	}
	if !config.Remote {
		texts = append(texts, config.typeTexts()...)
	}
	for _, text := range texts {
		d.noteConfig(s, "", text)
	}
	if name := wrapped(s); name != "" && len(texts) == 0 && !config.Remote && (config.Type != "" && len(config.Architectures) > 0 || config.Class != "") {
		d.note(Config, name, fmt.Sprintf("the tensor %s of %s, and all others, have the name that a wrapper of PyTorch gives them: libraries find none of the model", quoted(name), quoted(s.where[name])), s.where[name])
	}
	if !lacking && !config.Remote && (config.Type != "" || config.Class != "") {
		d.judgeSiblings(config, s)
	}
	if err := d.judgeDType(config, s); err != nil {
		return err
	}
	if err := d.judgeTying(config, s); err != nil {
		return err
	}
	return d.judgeQuantization(config, s)
}

// loadedDType returns the dtype to which a config refers by this name. ok is false if programs do not load models in
// this dtype.
func loadedDType(name string) (d safetensors.DType, ok bool) {
	named, _ := torchtype.Of(strings.TrimPrefix(name, "torch."))
	loaded, ok := torchtype.OfLoaded(named.Safetensors)
	return d, ok && d.UnmarshalText([]byte(loaded.Safetensors)) == nil
}

// judgeDType notes the dtype in the config if no tensor has it and converting a tensor to it would round an element.
// Then programs that convert to this dtype get different numbers from programs that do not. judgeDType converts only
// tensors of at most 1 MiB, up to 16 MiB in all.
func (d *directory) judgeDType(config *modelConfig, s *set) error {
	named, _ := config.DType.(string)
	if named == "" {
		named, _ = config.TorchDType.(string)
	}
	want, known := loadedDType(named)
	if !known || config.Quantization != nil || config.MLX != nil || d.hasDType(want) {
		return nil
	}
	files := make(map[string][]string)
	left := 16 << 20
	for _, name := range sortedNames(s.where) {
		i, _ := d.info(s, name)
		size := i.dtype.Bits() / 8
		for _, n := range i.shape {
			size *= n
		}
		if !isFloat(i.dtype) || holds(want, i.dtype) || size > min(left, 1<<20) {
			continue
		}
		left -= size
		files[s.where[name]] = append(files[s.where[name]], name)
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		name, err := d.rounded(file, files[file], want)
		if err != nil {
			return err
		}
		if name != "" {
			i, _ := d.info(s, name)
			d.noteConfig(s, name, fmt.Sprintf("dtype %s, but no tensor has it, and it rounds numbers: %s is %v", named, quoted(name), i.dtype))
			return nil
		}
	}
	return nil
}

// hasDType reports whether any tensor in the directory has this dtype. Tensors of variants count, because the config
// may belong to a variant.
func (d *directory) hasDType(want safetensors.DType) bool {
	for _, s := range d.sets {
		for name := range s.where {
			if i, _ := d.info(s, name); i.dtype == want {
				return true
			}
		}
	}
	return false
}

// rounded returns the first of these tensors of a file that has a number which the given dtype cannot represent, or ""
// if there is none.
func (d *directory) rounded(file string, names []string, to safetensors.DType) (string, error) {
	f, done, err := d.open(file)
	if err != nil {
		return "", err
	}
	defer done()
	for _, name := range names {
		t, err := f.Tensor(name)
		if err != nil {
			return "", changed(file, err)
		}
		narrow, err := t.Convert(to)
		if err != nil {
			return "", err
		}
		if equal, err := equalNumbers(t, narrow); err != nil || !equal {
			return name, err
		}
	}
	return "", nil
}

// holds reports whether the float dtype wide represents all numbers of the float dtype narrow.
func holds(wide, narrow safetensors.DType) bool {
	return wide == narrow || wide == safetensors.F64 || wide == safetensors.F32 && narrow != safetensors.F64
}

// embeddings are names of the embedding in decoders and encoders of text.
var embeddings = []string{"model.embed_tokens.weight", "transformer.wte.weight", "wte.weight", "bert.embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight", "gpt_neox.embed_in.weight"}

// otherEmbeddings are names of the embedding in further architectures.
var otherEmbeddings = []string{
	"model.language_model.embed_tokens.weight", "model.shared.weight", "shared.weight", "model.decoder.embed_tokens.weight", "transformer.word_embeddings.weight", "word_embeddings.weight",
	"roberta.embeddings.word_embeddings.weight", "distilbert.embeddings.word_embeddings.weight", "albert.embeddings.word_embeddings.weight", "deberta.embeddings.word_embeddings.weight",
	"electra.embeddings.word_embeddings.weight", "mpnet.embeddings.word_embeddings.weight", "model.embeddings.tok_embeddings.weight", "backbone.embeddings.weight",
}

func (d *directory) embedding(s *set) (name string, i info, found bool) {
	return d.embeddingOf(s, embeddings)
}

func (d *directory) embeddingOf(s *set, names []string) (name string, i info, found bool) {
	for _, name := range names {
		if i, found := d.info(s, name); found && len(i.shape) == 2 && isFloat(i.dtype) {
			return name, i, true
		}
	}
	return "", info{}, false
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
	want, ok := number(own[modelconfig.Vocabulary])
	if ok && want != i.shape[0] && !noted {
		texts = append(texts, fmt.Sprintf("%s %d, but %s has %v", config.keyText(modelconfig.Vocabulary), want, quoted(name), i.shape))
	}
	if head, found := d.info(s, "lm_head.weight"); ok && want == i.shape[0] && found && isFloat(head.dtype) && len(head.shape) == 2 && head.shape[0] != want && s.where["fc.weight"] == "" && own["draft_vocab_size"] == nil {
		texts = append(texts, fmt.Sprintf("%s %d, but \"lm_head.weight\" has %v", config.keyText(modelconfig.Vocabulary), want, head.shape))
	}
	if want, ok := number(own["hidden_size"]); ok && want != i.shape[1] && name == embeddings[0] && !noted {
		texts = append(texts, fmt.Sprintf("%s %d, but %s has %v", config.keyText("hidden_size"), want, quoted(name), i.shape))
	}
	return texts
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

// wrapped returns the first tensor of a set if all have the prefix of torch.compile or of a parallel model, or "".
func wrapped(s *set) string {
	names := sortedNames(s.where)
	for _, prefix := range []string{"_orig_mod.", "module."} {
		if !slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }) {
			return names[0]
		}
	}
	return ""
}

// typeTexts returns the texts of findings if a number that an architecture needs is not a number in the config, or in a
// config within it, or if a dtype is not one of PyTorch.
func (m *modelConfig) typeTexts() (texts []string) {
	for _, p := range m.stored() {
		keys := notNumbers(p.fields)
		if len(defaultsOf(p.Type)) == 0 && isKnown(p.Type) {
			keys = slices.DeleteFunc([]string{modelconfig.Vocabulary, "hidden_size", "num_hidden_layers"}, func(key string) bool {
				_, text := p.fields[key].(string)
				return !text
			})
		}
		for _, key := range keys {
			texts = append(texts, fmt.Sprintf("%s%s %s, which is not a number", cut(p.path), key, valueText(p.fields[key])))
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

// biased lists the settings that decide whether some modules of some architectures have a bias. They are false by
// default.
var biased = []struct {
	types     []string
	key, rest string // the setting, and the text with which the name of such a bias ends
}{
	{[]string{"llama", "granite", "gemma", "gemma2", "gemma3_text", "qwen3", "qwen3_moe", "smollm3", "cohere", "olmo"}, "attention_bias", ".self_attn.q_proj.bias"},
	{[]string{"llama", "granite", "smollm3"}, "mlp_bias", ".mlp.gate_proj.bias"},
}

// biasText returns the text of a finding if a setting contradicts the biases that are stored. If the setting is
// false, libraries leave stored biases out; if it is true, they initialize the missing ones at random.
func (d *directory) biasText(config *modelConfig, s *set) (texts []string) {
	own := config.own()
	for _, row := range biased {
		if len(config.Architectures) == 0 || !slices.Contains(row.types, config.Type) {
			continue
		}
		want, _ := own[row.key].(bool)
		names := sortedNames(s.where)
		i := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, row.rest) })
		if want && i < 0 {
			texts = append(texts, row.key+" true, but no such bias is stored")
		}
		if !want && i >= 0 {
			texts = append(texts, fmt.Sprintf("%s false, but %s is stored: libraries leave it out", config.keyText(row.key), quoted(names[i])))
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
	if len(config.Architectures) == 0 || config.Remote {
		return nil
	}
	class := config.Architectures[0]
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
			return []string{fmt.Sprintf("that there are %d labels, but %s has %v", labels, quoted(name), i.shape)}
		}
	}
	return nil
}

// classText returns the text of a finding if the class in the config has a head of its own, but no tensor has a name of
// that head.
func (d *directory) classText(config *modelConfig, s *set) []string {
	if len(config.Architectures) == 0 || config.Remote {
		return nil
	}
	for ending, parts := range classHeads {
		if strings.HasSuffix(config.Architectures[0], ending) && !slices.ContainsFunc(sortedNames(s.where), func(name string) bool {
			return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
		}) {
			return []string{fmt.Sprintf("the class %s, but no tensor is of its head: programs set it at random", quoted(config.Architectures[0]))}
		}
	}
	return nil
}

var layerName = lazyregexp.New(`^(?:model\.layers|bert\.encoder\.layer|encoder\.layer|transformer\.h|h|gpt_neox\.layers)\.(\d{1,6})\.`)

// layerText returns the text of a finding if the number of layers contradicts the layers of the tensors.
func (d *directory) layerText(config *modelConfig, s *set) []string {
	want, ok := number(config.own()["num_hidden_layers"])
	if !ok {
		return nil
	}
	have := make(map[int]bool)
	for name := range s.where {
		if m := layerName().FindStringSubmatch(name); m != nil {
			n, _ := strconv.Atoi(m[1])
			have[n] = true
		}
	}
	if len(have) == 0 {
		return nil
	}
	next, _ := number(config.Next)
	for n := range min(want, 100_000) {
		if !have[n] {
			return []string{fmt.Sprintf("num_hidden_layers %d, but there are no tensors of layer %d", want, n)}
		}
	}
	if config.Next == nil || next == 0 {
		for n := range have {
			if n >= want {
				return []string{fmt.Sprintf("num_hidden_layers %d, but there are tensors of layer %d", want, n)}
			}
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
		texts = append(texts, fmt.Sprintf("in_features %d and out_features %d, but \"linear.weight\" has %v", in, out, i.shape))
	case !found && config.isDense():
		texts = append(texts, fmt.Sprintf("in_features %d and out_features %d, but \"linear.weight\" is not stored", in, out))
	}
	if _, stored := d.info(s, "linear.bias"); config.isDense() && stored != *config.Bias {
		texts = append(texts, fmt.Sprintf("bias %v, which contradicts \"linear.bias\"", *config.Bias))
	}
	return texts
}

// judgeTying compares tie_word_embeddings with the stored head: a head that is not tied must be stored, and a
// tied one that is stored must equal the embedding.
func (d *directory) judgeTying(config *modelConfig, s *set) error {
	d.judgeUntied(config, s)
	embedding, embedded, found := d.embedding(s)
	const head = "lm_head.weight"
	stored, isStored := d.info(s, head)
	if !found || config.Tie == nil || !*config.Tie || !isStored {
		return nil
	}
	if stored.dtype == embedded.dtype && slices.Equal(stored.shape, embedded.shape) {
		differing, err := d.compareFiles(s.where[head], s.where[embedding], []string{head}, []string{embedding}, 1)
		if err != nil || len(differing) == 0 {
			return err
		}
	}
	d.noteConfig(s, head, fmt.Sprintf("that the head is tied, but %s and %s are not alike", quoted(head), quoted(embedding)))
	return nil
}

// judgeUntied notes a language model whose head is neither stored nor tied to the embedding.
func (d *directory) judgeUntied(config *modelConfig, s *set) {
	embedding, _, found := d.embeddingOf(s, slices.Concat(embeddings, otherEmbeddings))
	if !found || len(config.Architectures) == 0 || config.Remote {
		return
	}
	tied, known := config.own()["tie_word_embeddings"].(bool)
	if config.Tie != nil {
		tied, known = *config.Tie, true
	}
	causal := strings.HasSuffix(config.Architectures[0], "ForCausalLM") && strings.HasPrefix(embedding, "model.")
	ties := slices.Contains([]string{"t5", "mt5", "umt5"}, config.Type) // some versions of transformers tie the embeddings of these models, whatever the config specifies
	other := isKnown(config.Type) && !ties && len(config.stored()) == 1 && slices.ContainsFunc([]string{"ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining", "ForConditionalGeneration"}, func(e string) bool {
		return strings.HasSuffix(config.Architectures[0], e)
	})
	const head = "lm_head.weight"
	if !known || tied || !causal && !other || config.Tie == nil && (config.Quantization != nil || config.MLX != nil) ||
		s.where[head] != "" || d.aliases(s)[head] || d.otherHead(s, embedding, causal) {
		return
	}
	text := "that the head is not tied"
	if config.Tie == nil {
		text = "nothing of tie_word_embeddings, which is then false"
	}
	d.noteConfig(s, "", text+", but "+quoted(head)+" is not stored")
}

// otherHead reports whether the head may be stored under another name, or quantised. Any tensor outside the layers that
// has the shape of the embedding may be the head: transformers saves the head of DeepSeek-V4 as head.weight. If anyName
// is true, a tensor whose name resembles that of a head may also be the head.
func (d *directory) otherHead(s *set, embedding string, anyName bool) bool {
	embedded, _ := d.info(s, embedding)
	resembles := func(name string) bool {
		return slices.ContainsFunc([]string{"lm_head", "output", "embed_out", "proj_out"}, func(part string) bool { return strings.Contains(name, part) })
	}
	for name := range s.where {
		i, _ := d.info(s, name)
		if anyName && resembles(name) || isOutput(name) || name != embedding && slices.Equal(i.shape, embedded.shape) && !layerName().MatchString(name) {
			return true
		}
	}
	return false
}
