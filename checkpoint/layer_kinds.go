package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// The rules in this file compare modules that differ from each other on purpose, such as the layers of hybrid models. Modules
// with the same children are of one kind. A child of a module is the next part of a name after the path of the module: self_attn
// is a child of a layer, and q_proj one of self_attn.

// maxKinds is the largest number of kinds that modules whose paths differ only in numbers may have. lostChild does not judge
// modules of more kinds.
const maxKinds = 64

// lostModule returns the first tensor of a module that one of at least three layers lacks: of a block, a norm, a projection or
// an expert. Keys and values count only if there are at least four layers, and if the config does not let layers share them.
// Apart from that module, the layer must be of the same kind as others. lostModule returns "" if there is none.
func (in instances) lostModule(names []string, config *modelConfig) (lost string) {
	for _, template := range slices.Sorted(maps.Keys(in)) {
		paths := slices.Sorted(maps.Keys(in[template]))
		counts := slices.Sorted(maps.Values(in[template]))
		if lost != "" || len(paths) < 3 || counts[0] == counts[len(counts)-1] {
			continue
		}
		last := lastPart(template)
		lost = lostChild(names, paths, func(child, odd string, n int) bool {
			switch inner := !isBoundary(paths, odd); {
			case last == "*" && child == "conv": // the block of LFM2; in convolutional networks, layers may lack one
				return n == 1 && has(names, odd+"operator_norm.weight")
			case last == "*" && (contains(layerBlocks, child) || isLayerNorm(child) && hasBlock(names, odd)):
				return n == 1
			case last == "*" && tensorname.IsNorm(child), last == "experts":
				return n == 1 && inner
			case contains(layerBlocks, last) && !contains(attentionKeys, child) && inBlock(names, last+"."+child), contains(projections, child) && inner:
				return n == 1
			default:
				return contains(layerBlocks, last) && len(paths) > 3 && contains(attentionKeys, child) && (inner || n == 1) && !config.sharesKeys(firstNumber(odd))
			}
		})
	}
	return lost
}

// lostChild returns the first tensor of the first child that a module lacks. The module must be the only one of its kind, and
// at least two others must have the same tensors and those of further children. If the further children depend on the kind of
// the others, lostChild returns the path of the module and the first child of each kind, in braces. If no kind fits, it looks
// for a norm that only this module lacks. is decides whether the module odd cannot do without its nth lost child, counted from
// 1; lostChild ignores the module unless is returns true for each of them. It returns "" if there is none.
func lostChild(names, paths []string, is func(child, odd string, n int) bool) string {
	with := childrenOf(names, paths)
	kinds := make(map[string][]string) // the paths of the modules of each kind, by the names of their children
	for _, path := range paths {
		var children []string
		for _, rest := range restsBelow(names, path) {
			child, _, _ := strings.Cut(rest, ".")
			children = append(children, child)
		}
		key := strings.Join(slices.Compact(slices.Sorted(slices.Values(children))), " ")
		kinds[key] = append(kinds[key], path)
	}
	if len(kinds) > maxKinds {
		return ""
	}
	keys := slices.Sorted(maps.Keys(kinds))
	for _, key := range keys {
		odd, many := kinds[key][0], false // many reports whether another kind has several children more
		if len(kinds[key]) > 1 {
			continue
		}
		var found []string // the first lost child, by each kind that fits
		for _, other := range keys {
			lost, n := lacks(key, other), 0
			many = many || len(lost) > 1
			if len(lost) > 0 && len(sameWithout(names, odd, kinds[other], lost)) > 1 && !slices.ContainsFunc(lost, func(child string) bool { n++; return !is(child, odd, n) }) {
				found = append(found, lost[0])
			}
		}
		switch found = slices.Compact(found); len(found) {
		case 0:
		case 1:
			return odd + firstOf(with[found[0]])
		default:
			return fmt.Sprintf("%s{%s}", odd, strings.Join(found, ","))
		}
		for child := range strings.FieldsSeq(layerNorms + " norm") {
			if !many && with[child][odd] == "" && len(with[child]) == len(paths)-1 && hasBlock(names, odd) && is(child, odd, 1) {
				return odd + firstOf(with[child])
			}
		}
	}
	return ""
}

// lacks returns the words of all that words lacks, or nil if it has a word that all does not have.
func lacks(words, all string) (lost []string) {
	have := strings.Fields(words)
	for _, word := range strings.Fields(all) {
		if !slices.Contains(have, word) {
			lost = append(lost, word)
		}
	}
	if len(have)+len(lost) != len(strings.Fields(all)) {
		return nil
	}
	return lost
}

// sameWithout returns those of the paths below which there are the same tensors as below odd, if the tensors of the lost
// children are left out.
func sameWithout(names []string, odd string, paths, lost []string) (same []string) {
	have := restsBelow(names, odd)
	for _, path := range paths {
		rests := slices.DeleteFunc(restsBelow(names, path), func(rest string) bool {
			child, _, _ := strings.Cut(rest, ".")
			return slices.Contains(lost, child)
		})
		if slices.Equal(have, rests) {
			same = append(same, path)
		}
	}
	return same
}

// childrenOf maps each child of the modules at these paths to the paths of the modules that have it, and these to the first
// tensor of the child, relative to the path.
func childrenOf(names, paths []string) map[string]map[string]string {
	with := make(map[string]map[string]string)
	for _, path := range paths {
		for _, rest := range restsBelow(names, path) {
			child, _, _ := strings.Cut(rest, ".")
			if with[child] == nil {
				with[child] = make(map[string]string)
			}
			if with[child][path] == "" {
				with[child][path] = rest
			}
		}
	}
	return with
}

// firstOf returns the value of the first key in alphabetical order. m must not be empty.
func firstOf(m map[string]string) string { return m[slices.Min(slices.Collect(maps.Keys(m)))] }

// lostPart compares modules with the same last part of their path, wherever they are in the model: all experts, and in the
// classes for which hasBiases returns true also all attentions, and so on. It returns the first tensor of a child that one of
// them lacks and most of them have, or "" if there is none. It does not judge a module with a child that most of them lack.
func (in instances) lostPart(names []string, config *modelConfig) string {
	kinds, judged := make(map[string][]string), "experts.*" // the paths of the modules, by the last part, with the one before a number
	if hasBiases(config.Class) {
		judged = "attentions.* attn1 attn2 ff resnets.* transformer_blocks.*"
	}
	for template, paths := range in {
		kind := lastPart(template)
		if kind == "*" {
			kind = lastPart(strings.TrimSuffix(template, "*.")) + ".*"
		}
		kinds[kind] = slices.AppendSeq(kinds[kind], maps.Keys(paths))
	}
	for _, kind := range strings.Fields(judged) {
		paths := slices.Sorted(slices.Values(kinds[kind]))
		with := childrenOf(names, paths)
		common := func(child string) bool { return 2*len(with[child]) > len(paths) || child == "conv_shortcut" }
		for _, child := range slices.Sorted(maps.Keys(with)) {
			for _, path := range paths {
				other := func(child string) bool { return with[child][path] != "" && !common(child) }
				if common(child) && child != "conv_shortcut" && with[child][path] == "" && !slices.ContainsFunc(slices.Collect(maps.Keys(with)), other) {
					return path + firstOf(with[child])
				}
			}
		}
	}
	return ""
}

// These lists have the names of modules that either all or none of several layers have, provided that the layers have the same
// other modules: blocks and norms of a layer, and parts of a block. Modules that only some layers may have, such as shortcuts,
// are not listed.
const (
	layerBlocks   = "attention attn attn1 attn2 block_sparse_moe conv encoder_attn feed_forward feed_forward1 feed_forward2 ff ffn intermediate intermediate_query linear_attn mamba mixer mlp moe multi_head_attention output output_query self self_attention self_attn shared_mlp temporal_block"
	layerNorms    = "input_layernorm post_attention_layernorm pre_ff_layernorm norm1 norm2 layer_norm1 layer_norm2 ln_1 ln_2 self_attn_layer_norm final_layer_norm operator_norm ffn_norm layernorm_before layernorm_after"
	attentionKeys = "k k_proj k_norm key v v_proj value"
	projections   = "q_proj o_proj out_proj qkv_proj c_attn c_fc c_proj up_proj down_proj gate_proj gate_up_proj fc1 fc2 fc_in fc_out dense_h_to_4h dense_4h_to_h query dense"
	blockParts    = "gate router input_linear output_linear q wq wk wv wo w1 w2 w3 linear1 linear2 query_key_value qkv proj in_proj x_proj dt_proj conv1d A_log D dt_bias in_proj_qkvz in_proj_ba in_proj_qkv in_proj_z in_proj_a in_proj_b"
)

// contains reports whether a list of words contains a word.
func contains(list, word string) bool { return slices.Contains(strings.Fields(list), word) }

// inBlock reports whether a tensor is a norm of a layer with blocks, or a part of a block, such as a projection. Each layer with
// such a block has the tensor, even the first and the last layer.
func inBlock(names []string, name string) bool {
	module := strings.TrimSuffix(strings.TrimSuffix(name, ".weight"), ".bias")
	parts := strings.Split(module, ".")
	last := parts[len(parts)-1]
	isPart := tensorname.IsNorm(last) || slices.ContainsFunc([]string{projections, attentionKeys, blockParts}, func(list string) bool { return contains(list, last) })
	return isLayerNorm(last) && hasBlock(names, outer(module)) || isPart && slices.ContainsFunc(parts[:len(parts)-1], func(part string) bool { return contains(layerBlocks, part) })
}

// hasBlock reports whether a layer, given by its path, has a block other than conv, which convolutional networks also have. It
// returns false for a draft model, which has fc.weight, because the first layer of such a model may have no norm.
func hasBlock(names []string, layer string) bool {
	return !has(names, "fc.weight") && slices.ContainsFunc(restsBelow(names, layer), func(rest string) bool {
		child, _, _ := strings.Cut(rest, ".")
		return contains(layerBlocks, child) && child != "conv"
	})
}

// isLayerNorm reports whether a child of a layer is a norm that each layer has, even the first and the last one. Other norms,
// such as the attn_norm of ModernBERT, may be missing in the first layer.
func isLayerNorm(child string) bool {
	return contains(layerNorms, child) || strings.HasPrefix(child, "post_") && strings.Contains(child, "norm")
}
