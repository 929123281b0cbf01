// Package tensorname decides by the name of a tensor whether it is an embedding of tokens, an output head or a norm. The names
// are those of the models in transformers, and of the formats of Llama, Mistral and DeepSeek.
package tensorname

import (
	"slices"
	"strconv"
	"strings"
)

// embeddings are the names of modules that have a row for each token, and that a model reads at its start.
var embeddings = []string{
	"embed_tokens",         // Llama, and most others
	"word_embeddings",      // BERT, BLOOM
	"wte",                  // GPT-2
	"shared",               // T5, BART, for encoder and decoder
	"embed_in",             // GPT-NeoX
	"embeddings",           // Mamba, RWKV, XLM
	"tok_embeddings",       // ModernBERT, the formats of Llama and Mistral
	"token_embedding",      // CLIP
	"tokens_embed",         // GPT
	"embed",                // the format of DeepSeek
	"text_token_embedding", // CLVP
}

// heads are the names of modules that have a row for each token, and that turn the output of the last layer into logits.
var heads = []string{
	"lm_head",           // Llama, and most others
	"embed_out",         // GPT-NeoX
	"generator_lm_head", // ELECTRA
	"vocab_projector",   // DistilBERT
}

// otherHeads are names of modules that are output heads in some models, and other modules in others.
var otherHeads = []string{
	"proj_out",          // Whisper; diffusion models project to pixels
	"output",            // the formats of Llama and Mistral; attentions have an output
	"head",              // RWKV, the format of DeepSeek; image models have a head for classes
	"decoder",           // ModernBERT; autoencoders have a decoder
	"output_projection", // BioGPT, FSMT; attentions have one
	"cls",               // UltraBERT; detectors have one for classes
}

// IsEmbedding reports whether a tensor with this name is an embedding of tokens. It returns false for embeddings of positions,
// of types of tokens and of patches.
func IsEmbedding(name string) bool {
	_, last, is := split(name)
	return is && slices.Contains(embeddings, last)
}

// IsHead reports whether a tensor with this name is the weight of an output head, which has a row for each token. Models may
// tie it to the embedding. IsHead returns false for names that other tensors have, too: see IsHeadOf.
func IsHead(name string) bool {
	above, last, is := split(name)
	if _, err := strconv.Atoi(last); err == nil {
		return is && above == "lm_heads" // a list of heads, as in Musicgen
	}
	if last == "decoder" { // the head of a model for masked words, below a module that only such models have
		return is && (strings.HasSuffix("_"+above, "_predictions") || strings.HasSuffix("_"+above, "_head"))
	}
	return is && slices.Contains(heads, last)
}

// IsHeadOf reports whether a tensor with this name and shape is the weight of an output head of a model whose embedding of
// tokens has the shape of embedding. It knows more names than IsHead: these count only if the shapes are equal.
func IsHeadOf(name string, shape, embedding []int) bool {
	_, last, is := split(name)
	return IsHead(name) || is && slices.Contains(otherHeads, last) && slices.Equal(shape, embedding)
}

// split returns the last two parts of the name of the module that has a tensor as its weight: "mlp" and "fc1" for
// model.mlp.fc1.weight. above is "" for a module without a dot in its name. is reports whether the tensor is a weight.
func split(name string) (above, last string, is bool) {
	module, is := strings.CutSuffix(name, ".weight")
	rest, last, found := cutLast(module)
	if found {
		_, above, _ = cutLast(rest)
	}
	return above, last, is
}

// cutLast cuts a name at its last dot. If it has none, it returns the name as last.
func cutLast(name string) (before, last string, found bool) {
	dot := strings.LastIndexByte(name, '.')
	return name[:max(dot, 0)], name[dot+1:], dot >= 0
}

// IsNorm reports whether a part of a name is that of a norm: norm1, input_layernorm, LayerNorm, ln_f, ln1, attn_ln. A part
// stands between two dots.
func IsNorm(part string) bool {
	part = strings.ToLower(part)
	if strings.Contains(part, "norm") {
		return true
	}
	return slices.ContainsFunc(strings.Split(part, "_"), func(word string) bool { return strings.TrimRight(word, "0123456789") == "ln" })
}
