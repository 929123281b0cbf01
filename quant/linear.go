package quant

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// A linear recognises weights of a checkpoint whose modules are not of class Linear of PyTorch, as far as other tensors show
// that. Loaders of compressed-tensors quantise no other class.
type linear struct {
	tensors  map[string]safetensors.Tensor
	byColumn map[string]bool // last parts of the names of modules whose weights are stored transposed
}

// newLinear returns the linear of a checkpoint. Modules whose weights are stored transposed, as GPT-2 stores them (class Conv1D
// of transformers), have biases with an element for each column, and not for each row. Other modules with the same last part of
// their names count as such modules, too, even if their weights are square or they have no bias.
func newLinear(tensors map[string]safetensors.Tensor) linear {
	byColumn := make(map[string]bool)
	for name, t := range tensors {
		module, isWeight := strings.CutSuffix(name, ".weight")
		bias, shape := tensors[module+".bias"].Shape(), t.Shape()
		if isWeight && len(shape) == 2 && len(bias) == 1 && bias[0] == shape[1] && bias[0] != shape[0] {
			byColumn[lastPart(module)] = true
		}
	}
	return linear{tensors, byColumn}
}

// refuses returns the reason why a weight is not one of class Linear, or nil if there is none.
func (l linear) refuses(name string) error {
	if l.byColumn[lastPart(strings.TrimSuffix(name, ".weight"))] {
		return errors.New("it is stored transposed, like those of class Conv1D in transformers, which is not quantised: its bias has an element for each column")
	}
	if _, ok := l.tensors[name+"_integer"]; ok {
		return fmt.Errorf("it belongs to a class of I-BERT, which is not quantised: there is a tensor %s", quote(name+"_integer"))
	}
	return nil
}

// lastPart returns the last part of a name whose parts are separated by dots.
func lastPart(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// vocabularyOf returns a func that reports whether a tensor of a checkpoint is an embedding of tokens or an output head, by its
// name. If modules other than heads also have such a name, the tensor must have the shape of an embedding of the checkpoint.
func vocabularyOf(tensors map[string]safetensors.Tensor) func(name string, t safetensors.Tensor) bool {
	embeddings := make(map[[2]int]bool) // shapes of the embeddings
	for name, t := range tensors {
		if shape := t.Shape(); len(shape) == 2 && tensorname.IsEmbedding(name) {
			embeddings[[2]int(shape)] = true
		}
	}
	return func(name string, t safetensors.Tensor) bool {
		shape := t.Shape()
		return tensorname.IsEmbedding(name) || tensorname.IsHead(name) || len(shape) == 2 && embeddings[[2]int(shape)] && tensorname.IsHeadOf(name, shape, shape)
	}
}

// usual reports whether a weight that vocabularyOf does not know is quantised if Targets is nil, as far as its name tells.
func usual(name string) bool {
	name = strings.TrimPrefix(name, "roberta_prelayernorm.") // the name of a model, not of a norm
	return !unusual().MatchString(name) || adaptive().MatchString(name)
}

// adaptive matches the names of linear layers that compute the scales of a norm, in Voxtral Realtime.
var adaptive = lazyregexp.New(`\.ada_rms_norm\.linear[12]\.weight$`)

// unusual matches the names of further weights that are not quantised: all modules within embeddings, norms and heads, also
// embeddings of positions and patches, and routers and classifiers. w is the embedding of CTRL, a name too short for package
// tensorname.
var unusual = lazyregexp.New(`(?i)embed|norm|relative_attention_bias|^query\.weight$|(^|\.)w\.weight$|(^|[._])(?:tokens?|emb)\.weight$|(^|\.)(reference_points|gate|shared_expert_gate|router|wpe|lm_head|score|classifier)(\.|$)`)

// isFused reports whether a tensor holds several weights, such as the weights of all experts of a
// layer. Convolutions also have three dimensions, but are not fused.
func isFused(name string, t safetensors.Tensor) bool {
	shape := t.Shape()
	return slices.Contains(isFloat, t.DType()) && len(shape) == 3 && min(shape[1], shape[2]) > 1 && !strings.Contains(strings.ToLower(name), "conv") && !unusual().MatchString(name)
}

// ignoredWith returns the modules that the config lists as ignored if a tensor stays unquantised.
func ignoredWith(name string, t safetensors.Tensor) []string {
	module, isWeight := strings.CutSuffix(name, ".weight")
	switch {
	case isFused(name, t): // a loader looks in ignore for the name of the module, or for that of the parameter
		if dot := strings.LastIndexByte(name, '.'); dot > 0 && !isWeight {
			return []string{module, name[:dot]}
		}
		return []string{module}
	case isWeight && len(t.Shape()) == 2:
		return []string{module}
	}
	return nil
}

// loadersOnly lists modules that loaders have and that a checkpoint does not store under that name, each with the names of
// tensors that models with this module store. A model within another one has a prefix before all these names. Most modules
// are heads, whose weights are those of the embeddings. transformers renames the others when it loads a model.
var loadersOnly = []struct {
	module string
	beside []string
}{
	{"cls.predictions.decoder", []string{"cls.predictions.transform.dense.weight"}},           // BERT
	{"predictions.decoder", []string{"predictions.dense.weight"}},                             // ALBERT
	{"lm_head.decoder", []string{"lm_head.dense.weight"}},                                     // RoBERTa, Longformer, MPNet
	{"lm_head.decoder", []string{"lm_head.bias", "bert.embeddings.word_embeddings.weight"}},   // BertGeneration
	{"generator_lm_head", []string{"generator_predictions.dense.weight"}},                     // ELECTRA, ConvBERT
	{"vocab_projector", []string{"vocab_transform.weight"}},                                   // DistilBERT
	{"decoder", []string{"head.dense.weight"}},                                                // ModernBERT
	{"decoder", []string{"decoder.bias"}},                                                     // ModernBERT as a decoder
	{"entity_predictions.decoder", []string{"entity_predictions.transform.dense.weight"}},     // LUKE
	{"head.decoder", []string{"head.linear1.weight", "ultrabert.embed_tokens.weight"}},        // UltraBERT
	{"proj_out", []string{"model.decoder.embed_tokens.weight"}},                               // Whisper
	{"output_projection", []string{"biogpt.embed_tokens.weight"}},                             // BioGPT
	{"output_projection", []string{"model.decoder.layernorm_embedding.weight"}},               // TrOCR
	{"embed_out", []string{"gpt_neox_japanese.embed_in.weight"}},                              // GPT-NeoX Japanese
	{"lm_head.out_proj", []string{"model.decoder.layers.0.pre_self_attn_layernorm.weight"}},   // T5Gemma
	{"text_model.lm_head", []string{"text_model.model.segment_emb.weight"}},                   // KOSMOS-2.5
	{"model.lm_head", []string{"model.model.language_model.model.embed_tokens.weight"}},       // ShieldGemma 2
	{"model.vision_embed_tokens", []string{"vision_embed_tokens.weight"}},                     // Fuyu
	{"mlp.router", []string{"block_sparse_moe.gate.weight", "post_attention_layernorm.bias"}}, // Phi-3.5-MoE
}

// notStored returns the modules of loadersOnly, and those of tipsLayer, that a model has. They are in no order, and may be
// listed twice. A loader would look for scales of such a module if the config did not list it as ignored.
func notStored(tensors map[string]safetensors.Tensor) (modules []string) {
	for name := range tensors {
		for _, l := range loadersOnly {
			prefix, has := strings.CutSuffix(name, l.beside[0])
			missing := func(suffix string) bool {
				_, stored := tensors[prefix+suffix]
				return !stored
			}
			if has && (prefix == "" || strings.HasSuffix(prefix, ".")) && !slices.ContainsFunc(l.beside, missing) && missing(l.module+".weight") {
				modules = append(modules, prefix+l.module)
			}
		}
		if layer := tipsLayer().FindStringSubmatch(name); layer != nil {
			for _, projection := range []string{"q_proj", "k_proj", "v_proj"} {
				modules = append(modules, "encoder.layers."+layer[1]+".self_attn."+projection)
			}
		}
	}
	return modules
}

// tipsLayer matches the joined projections of a text model of TIPSv2, which transformers separates when it loads the model.
var tipsLayer = lazyregexp.New(`^transformer\.resblocks\.([0-9]+)\.attn\.in_proj_weight$`)
