package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
)

// judgeTying compares tie_word_embeddings with the stored heads: a head that is not tied must be stored, and a tied
// tensor that is stored must equal its source, which libraries use instead of it. It may be rounded to another dtype.
func (d *directory) judgeTying(config *modelConfig, s *set) error {
	d.judgeUntied(config, s)
	for _, pair := range d.tiedPairs(config, s) {
		head, embedding := pair.name, pair.source
		if s.where[head] == "" || s.where[embedding] == "" {
			continue
		}
		if alike, err := d.alike(s, embedding, head); err != nil {
			return err
		} else if alike {
			continue
		}
		d.noteConfig(s, head, fmt.Sprintf("%s, but %s and %s are not alike", pair.why, quoted(head), quoted(embedding)))
		return nil
	}
	return nil
}

// A tying names a tensor that programs replace by another one, the source, if the config ties them.
type tying struct {
	types        []string // values of model_type; nil for every config that ties the head of a language model within it
	name, source string
	always       bool   // whether some versions of transformers tie the two even if the config specifies the opposite
	why          string // the reason why the two are tied, for a finding
}

// tyings lists the tensors that transformers ties, besides lm_head.weight and the embeddings. The table is built on first
// use.
var tyings = sync.OnceValue(func() (rows []tying) {
	add := func(name, source string, types ...string) {
		rows = append(rows, tying{types: types, name: name, source: source})
	}
	add("lm_head.weight", "model.language_model.embed_tokens.weight")
	add("language_model.lm_head.weight", "language_model.model.embed_tokens.weight")
	add("lm_head.weight", "shared.weight", t5s...)
	bart := []string{"bart", "mbart", "pegasus", "m2m_100"}
	for _, of := range []string{"encoder", "decoder"} {
		add("model."+of+".embed_tokens.weight", "model.shared.weight", bart...)
		add(of+".embed_tokens.weight", "shared.weight", bart...)
		add(of+".embed_tokens.weight", "shared.weight", t5s...)
		rows[len(rows)-1].always = true
	}
	add("lm_head.weight", "model.shared.weight", bart...)
	add("lm_head.weight", "model.shared.weight", "marian")
	add("lm_head.weight", "model.decoder.embed_tokens.weight", "marian")
	add("proj_out.weight", "model.decoder.embed_tokens.weight", "whisper")
	add("lm_head.weight", "model.decoder.embed_tokens.weight", "opt")
	add("lm_head.weight", "transformer.word_embeddings.weight", "bloom")
	add("lm_head.weight", "backbone.embeddings.weight", "mamba")
	add("embed_out.weight", "gpt_neox.embed_in.weight", "gpt_neox")
	add("decoder.weight", "model.embeddings.tok_embeddings.weight", "modernbert")
	add("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight", "electra")
	add("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight", "distilbert")
	for _, row := range [][]string{
		{"cls.predictions.", "bert", "bert"}, {"cls.predictions.", "deberta", "deberta-v2"}, {"predictions.", "albert", "albert"},
		{"lm_head.", "roberta", "roberta", "xlm-roberta", "camembert"}, {"lm_head.", "mpnet", "mpnet"},
	} {
		add(row[0]+"decoder.weight", row[1]+".embeddings.word_embeddings.weight", row[2:]...)
		add(row[0]+"decoder.bias", row[0]+"bias", row[2:]...)
	}
	return rows
})

// t5s are the architectures whose embeddings some versions of transformers tie, whatever the config specifies.
var t5s = []string{"t5", "mt5", "umt5"}

// tiedPairs returns the tensors that programs tie, according to the config, with the reasons.
func (d *directory) tiedPairs(config *modelConfig, s *set) (pairs []tying) {
	why, tied := "that the head is tied", config.ties()
	if config.Tie == nil {
		why = "nothing of tie_word_embeddings, which is then true"
	}
	if embedding, _, found := d.embeddingOf(s, embeddings); found && tied {
		pairs = append(pairs, tying{name: "lm_head.weight", source: embedding, why: why})
	}
	within := config.tiesWithin()
	for _, row := range tyings() {
		ours := slices.Contains(row.types, config.Type)
		switch {
		case ours && row.always:
			row.why = "model_type " + config.Type + ", which ties its embeddings"
		case ours && tied:
			row.why = why
		case row.types == nil && within:
			row.why = "that the head of the language model is tied"
		default:
			continue
		}
		pairs = append(pairs, row)
	}
	return pairs
}

// forwarded are the model types that tie the head if the config of their language model has tie_word_embeddings as true, even
// if the config itself has it as false. For the other types, the config itself decides if it has that field.
var forwarded = []string{
	"fast_vlm", "glm4v", "glm4v_moe", "glm_ocr", "hunyuan_vl", "llava", "llava_next_video", "llava_onevision", "minimax_m3_vl",
	"paddleocr_vl", "qwen2_5_vl", "qwen2_vl", "shieldgemma2", "vibevoice", "video_llama_3",
}

// tiesWithin reports whether transformers ties the head of a language model that is a part of the model. The config
// specifies that, or the config of the language model within it.
func (m *modelConfig) tiesWithin() bool {
	if m.Tie != nil && !*m.Tie && !slices.Contains(forwarded, m.Type) {
		return false
	}
	return slices.ContainsFunc(m.stored(), func(p configPart) bool {
		tied, given := p.fields["tie_word_embeddings"].(bool)
		if m.Tie == nil && !given && m.class() != "" && p.path != "" {
			tied = tiesByDefault(p.Type)
		}
		return tied && (p.path == "" || modelconfig.OfLanguage(strings.Split(strings.TrimSuffix(p.path, "."), ".")))
	})
}

// ties reports whether the head of a model is tied to its embedding, by the config or by the default of its type.
func (m *modelConfig) ties() bool {
	if m.Tie != nil {
		return *m.Tie
	}
	_, given := m.own()["tie_word_embeddings"] // as null, or as the default false
	return isKnown(m.Type) && classDefaults[m.Type] != "" && len(m.Architectures) > 0 && !m.Remote && !given
}

// tiesByDefault reports whether the head of an architecture is known to be tied to the embedding if the config lacks
// tie_word_embeddings.
func tiesByDefault(modelType string) bool {
	_, given := defaultsOf(modelType)["tie_word_embeddings"] // as false
	return isKnown(modelType) && classDefaults[modelType] != "" && !given
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
	other := isKnown(config.Type) && !slices.Contains(t5s, config.Type) && len(config.stored()) == 1 && slices.ContainsFunc([]string{"ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining", "ForConditionalGeneration"}, func(e string) bool {
		return strings.HasSuffix(config.Architectures[0], e)
	})
	const head = "lm_head.weight"
	if !known || tied || !causal && !other || config.Tie == nil && (config.Quantization != nil || config.MLX != nil) ||
		s.where[head] != "" || d.aliases(s)[head] != "" || d.otherHead(s, embedding, causal, isKnown(config.Type)) {
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
// is true, a tensor whose name resembles that of a head may also be the head. If known is true, the head of the model is
// known to have lm_head or proj_out in its name.
func (d *directory) otherHead(s *set, embedding string, anyName, known bool) bool {
	embedded, _ := d.info(s, embedding)
	resembles := func(name string) bool {
		// The architecture is unknown: the name of its head may contain one of these in any place.
		return slices.ContainsFunc([]string{"lm_head", "output", "embed_out", "proj_out"}, func(part string) bool { return strings.Contains(name, part) })
	}
	for name := range s.where {
		i, _ := d.info(s, name)
		if anyName && known {
			if strings.Contains(name, "lm_head") || strings.HasPrefix(name, "proj_out.") {
				return true
			}
			continue
		}
		if anyName && resembles(name) || isOutput(name) || name != embedding && slices.Equal(i.shape, embedded.shape) && !layerName().MatchString(name) {
			return true
		}
	}
	return false
}

// layerName matches the names of tensors in layers.
var layerName = lazyregexp.New(`^(?:model\.layers|bert\.encoder\.layer|encoder\.layer|transformer\.h|h|gpt_neox\.layers)\.(\d{1,6})\.`)

// embeddings are names of the embedding in decoders and encoders of text. They are whole names, because embeddings of other
// parts of a model, such as those of an encoder of images, end in the same way.
var embeddings = []string{"model.embed_tokens.weight", "transformer.wte.weight", "wte.weight", "bert.embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight", "gpt_neox.embed_in.weight"}

// otherEmbeddings are names of the embedding in further architectures.
var otherEmbeddings = []string{
	"model.language_model.embed_tokens.weight", "model.shared.weight", "shared.weight", "model.decoder.embed_tokens.weight", "transformer.word_embeddings.weight", "word_embeddings.weight",
	"roberta.embeddings.word_embeddings.weight", "distilbert.embeddings.word_embeddings.weight", "albert.embeddings.word_embeddings.weight", "deberta.embeddings.word_embeddings.weight",
	"electra.embeddings.word_embeddings.weight", "mpnet.embeddings.word_embeddings.weight", "model.embeddings.tok_embeddings.weight", "backbone.embeddings.weight",
}

// embeddingOf returns the first of these names that is the name of a matrix of floats in a set, with its dtype and shape.
func (d *directory) embeddingOf(s *set, names []string) (name string, i info, found bool) {
	for _, name := range names {
		if i, found := d.info(s, name); found && len(i.shape) == 2 && isFloat(i.dtype) {
			return name, i, true
		}
	}
	return "", info{}, false
}
