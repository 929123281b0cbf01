package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// decoderNorm matches the norms in the layers of decoders, which have another norm after the last layer. The first group is
// the text before the stack. In other stacks, such as those of BERT, norms have other names.
var decoderNorm = lazyregexp.New(`^((?:[^.]+\.)*?)(?:layers|h|blocks)\.\d+\.(?:input_layernorm|operator_norm|post_attention_layernorm|post_self_attn_layernorm)\.weight$`)

// lostOutside returns the kind of tensor that a language model lacks next to its layers, "embedding" or "norm", and the text
// before its name. It returns "" for both if nothing is missing, and for draft models, which may use the embedding of another
// model.
func lostOutside(names []string, config *modelConfig) (kind, prefix string) {
	class := config.class()
	if class == "" || strings.Contains(class, "Draft") || strings.Contains(class, "Eagle") || has(names, "fc.weight") {
		return "", ""
	}
	_, isText := number(config.own()["vocab_size"])
	judged := make(map[string]bool)
	for _, name := range names {
		match := decoderNorm().FindStringSubmatch(name)
		if match == nil || judged[match[1]] {
			continue
		}
		prefix := match[1]
		judged[prefix] = true
		if !strings.HasSuffix(strings.TrimSuffix(prefix, "model."), "language_model.") && !(isText && slices.Contains([]string{"", "model.", "transformer.", "backbone."}, prefix)) {
			continue
		}
		for _, kind := range []string{"norm", "embedding"} {
			if outsideOf(names, prefix, kind) == "" {
				return kind, prefix
			}
		}
	}
	return "", ""
}

// outsideOf returns the first of sorted names that is that of a tensor of a kind, "embedding" or "norm", below a prefix, but
// not in a layer. It returns "" if there is none. The architecture may be unknown, so that any tensor with emb in its name
// counts as an embedding.
func outsideOf(names []string, prefix, kind string) string {
	for _, rest := range restsBelow(names, prefix) {
		is := slices.ContainsFunc(strings.Split(rest, "."), tensorname.IsNorm)
		if kind == "embedding" {
			is = tensorname.IsEmbedding(rest) || strings.Contains(rest, "emb")
		}
		if is && firstNumber(rest) < 0 {
			return prefix + rest
		}
	}
	return ""
}

// noteOutside notes that a set lacks a tensor of a kind that lostOutside has returned. If the metadata of a file lists such
// a tensor as another name of a stored one, as save_model of Python does for tied tensors, the finding names both.
func (d *directory) noteOutside(s *set, kind, prefix string) {
	tensor, file, why := "", d.fileOf(s, ""), "a language model has one: programs set it at random"
	aliases := d.aliases(s)
	if alias := outsideOf(slices.Sorted(maps.Keys(aliases)), prefix, kind); alias != "" {
		tensor, file = alias, d.fileOf(s, aliases[alias])
		why = fmt.Sprintf("the metadata has %s as another name of %s: programs that do not read this set it at random", quoted(alias), quoted(aliases[alias]))
	}
	d.note(Missing, tensor, fmt.Sprintf("no %s is stored beside the layers %sin %s, but %s", kind, belowText(prefix), quoted(file), why), file)
}

// belowText returns a part of a sentence that names the prefix of a stack, or "" for an empty prefix.
func belowText(prefix string) string {
	if prefix == "" {
		return ""
	}
	return "below " + quoted(prefix) + " "
}
