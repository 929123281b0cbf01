package checkpoint

import (
	"strings"

	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// The funcs in this file find a tensor under its other names, and decide by its name whether a file may lack it.

// isBuffer reports whether the name is that of a buffer that models compute, so that a file may lack it.
func isBuffer(name string) bool {
	for _, ending := range []string{"position_ids", ".attn.bias", ".attn.masked_bias", "attention.bias", "attention.masked_bias", "inv_freq", "original_inv_freq", "num_batches_tracked", "relative_position_index", "embed_positions.weights", "cos_cached", "sin_cached", "embeddings.token_type_ids"} {
		if name == ending || strings.HasSuffix(name, "."+strings.TrimPrefix(ending, ".")) {
			return true
		}
	}
	return false
}

// spellings are pairs of texts in which names of the same tensor may end: transformers accepts both. PyTorch and
// TensorFlow, and versions of PyTorch, use different ones.
var spellings = [][2]string{
	{".parametrizations.weight.original0", ".weight_g"}, {".parametrizations.weight.original1", ".weight_v"},
	{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"},
}

// find returns the name under which a checkpoint has a tensor: name itself, or its other spelling. It returns "" if the
// checkpoint lacks the tensor.
func (p place) find(name string) string {
	if p[name] != "" {
		return name
	}
	for _, pair := range spellings {
		for i, ending := range pair {
			if stem, is := strings.CutSuffix(name, ending); is && p[stem+pair[1-i]] != "" {
				return stem + pair[1-i]
			}
		}
	}
	return ""
}

// oldNames replaces the names that PyTorch uses for the norms of BERT by those that TensorFlow uses.
var oldNames = strings.NewReplacer("LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta")

// aliases maps the names that the metadata of a set lists as other names of its tensors to the names of these tensors.
func (d *directory) aliases(s *set) map[string]string {
	aliases, read := make(map[string]string), make(map[string]bool)
	for _, file := range s.where {
		if read[file] {
			continue
		}
		read[file] = true
		for alias, tensor := range d.heads[file].metadata {
			other, found := aliases[alias]
			if s.where[tensor] != "" && (!found || tensor < other) { // files may disagree
				aliases[alias] = tensor
			}
		}
	}
	return aliases
}

// isOutput reports whether a tensor with this name is the weight of an output head, which models may tie to the embedding. It
// takes decoder.weight for a head, as in ModernBERT, although an unknown architecture may have another module of that name.
func isOutput(name string) bool { return tensorname.IsHead(name) || name == "decoder.weight" }

// mayBeTied reports whether a tensor with this name may equal another one, so that a file may lack it: a head, an embedding of
// an encoder or a decoder, which equals shared, or the bias of the head of BERT. Embeddings with other names do not count,
// because a file without them does not have the whole model.
func mayBeTied(name string) bool {
	return isOutput(name) || strings.HasSuffix(name, "embed_tokens.weight") || strings.HasSuffix(name, "decoder.bias")
}
