package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// judgeSiblings does not judge names beyond these limits, which no model exceeds. Without them, an untrusted name could
// have a million parts.
const (
	maxName  = 512     // largest number of bytes of a name
	maxParts = 32      // largest number of parts of a name, which dots separate
	maxPaths = 1 << 20 // largest number of paths with a number, in all names together
	maxKinds = 64      // largest number of kinds of layers in a stack, or of modules that differ in a number only
)

// judgeSiblings checks rules that hold for models of any architecture: each module has its weight, a bias fits its
// weight, and each of many modules that are alike has the tensors that the others have. It does not judge quantised
// models, since their modules have other parts, nor names beyond the limits.
func (d *directory) judgeSiblings(config *modelConfig, s *set) {
	names := sortedNames(s.where)
	if config.Quantization != nil || config.MLX != nil || !d.plain(s) || d.misfit(s, names) ||
		slices.ContainsFunc(names, func(name string) bool { return len(name) > maxName || strings.Count(name, ".") >= maxParts }) {
		return
	}
	in := instancesOf(names)
	if in == nil {
		return
	}
	lost, why := in.weightless(names, config.Class != ""), "its bias is there"
	if lost == "" && hasBiases(config.Class) {
		lost, why = biasless(names), "modules of its kind have one"
	}
	if lost == "" {
		lost, why = in.oddOne(names, config), "all other modules of this name have it"
	}
	if lost == "" {
		lost = in.lostModule(names, config)
	}
	if lost == "" {
		lost, why = in.lostPart(names, config), "most modules of its kind have it"
	}
	if lost == "" {
		lost, why = numberHole(names, config), "those before and after it are there"
	}
	if lost == "" && config.class() != "" {
		lost, why = halfNorm(names), "the norms of the layers have one"
	}
	if kind, below := lostOutside(names, config); lost == "" && kind != "" {
		d.noteOutside(s, kind, below)
	}
	if lost != "" {
		first := d.fileOf(s, "")
		d.note(Missing, lost, fmt.Sprintf("%s is not stored beside %s, but %s: programs set it at random", quoted(lost), quoted(first), why), first)
	}
}

// misfit notes the first bias whose length is neither the number of rows nor the number of columns of its weight. It
// reports whether there is one.
func (d *directory) misfit(s *set, names []string) bool {
	for _, name := range names {
		module, is := strings.CutSuffix(name, ".bias")
		weight, found := d.info(s, module+".weight")
		bias, _ := d.info(s, name)
		if is && found && len(bias.shape) == 1 && bias.shape[0] > 1 && len(weight.shape) <= 2 && !slices.Contains(weight.shape, bias.shape[0]) {
			d.note(Config, name, fmt.Sprintf("%s has the shape %s in %s, and %s has %s: no module has both", quoted(name), shapetext.Of(bias.shape), quoted(s.where[name]), quoted(module+".weight"), shapetext.Of(weight.shape)), s.where[name])
			return true
		}
	}
	return false
}

// An instances counts the tensors below each path that contains a number. Paths that differ only in numbers
// are instances of one template: layers.0.mlp. and layers.1.mlp. are instances of layers.*.mlp. An instances maps
// templates to their paths, and these to the counts.
type instances map[string]map[string]int

// instancesOf returns the instances in sorted names, or nil if they have more than maxPaths paths.
func instancesOf(names []string) instances {
	in := make(instances)
	paths := 0
	for _, name := range names {
		if isBuffer(name) {
			continue
		}
		template, numbered := "", false
		for rest, done := name, 0; ; {
			part, after, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			done += len(part) + 1
			if _, err := strconv.ParseUint(part, 10, 31); err == nil {
				part, numbered = "*", true
			}
			template += part + "."
			if rest = after; numbered {
				if in[template] == nil {
					in[template] = make(map[string]int)
				}
				count := in[template]
				if count[name[:done]]++; count[name[:done]] == 1 {
					paths++
				}
			}
		}
		if paths > maxPaths {
			return nil
		}
	}
	return in
}

// hasBiases reports whether a class of diffusers has a bias in each convolution, norm and time embedding, except in
// some shortcuts.
func hasBiases(class string) bool {
	return slices.Contains([]string{"UNet2DModel", "UNet2DConditionModel", "ControlNetModel", "VQModel", "AutoencoderKL"}, class)
}

// withBiases matches the names of the weights whose modules also have a bias, in every class for which hasBiases
// returns true.
var withBiases = lazyregexp.New(`(?:^|\.)(?:conv_(?:in|out|norm_out)|conv\d?|(?:post_)?quant_conv|norm\d?|group_norm|time_emb_proj|time_embedding\.linear_\d|proj_in|proj_out|to_out\.0|ff\.net\.0\.proj|ff\.net\.2)\.weight$`)

// biasless returns the bias that a module with a weight of withBiases lacks, or "".
func biasless(names []string) string {
	for _, name := range names {
		if bias := strings.TrimSuffix(name, "weight") + "bias"; withBiases().MatchString(name) && !has(names, bias) {
			return bias
		}
	}
	return ""
}

// templateOf returns the template of a path, which ends in a dot.
func templateOf(path string) string {
	parts := strings.Split(path, ".")
	for i, part := range parts {
		if _, err := strconv.ParseUint(part, 10, 31); err == nil {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}

// weightless returns the weight that a module with a bias lacks, or "" if there is none. It looks at modules
// whose template has an instance with a weight; if all is set, at all modules.
func (in instances) weightless(names []string, all bool) string {
	weighted := make(map[string]bool) // templates of which an instance has a weight
	for _, name := range names {
		if module, is := strings.CutSuffix(name, ".weight"); is {
			weighted[templateOf(module+".")] = true
		}
	}
	for _, name := range names {
		module, is := strings.CutSuffix(name, "bias")
		if !is || !strings.HasSuffix(module, ".") || isBuffer(name) || len(restsBelow(names, module)) > 1 {
			continue
		}
		if (all || weighted[templateOf(module)] || alwaysWeighted().MatchString(module)) && !has(names, module+"weight") {
			return module + "weight"
		}
	}
	return ""
}

// oddOne returns the first of the tensors that one of at least three instances of a template lacks, if all the other
// instances have the same tensors. It returns "" if there is none.
func (in instances) oddOne(names []string, config *modelConfig) string {
	for _, template := range slices.Sorted(maps.Keys(in)) {
		paths, counts := slices.Sorted(maps.Keys(in[template])), slices.Sorted(maps.Values(in[template]))
		if len(paths) < 3 || counts[0]+1 != counts[1] || counts[1] != counts[len(counts)-1] {
			continue
		}
		odd := paths[slices.IndexFunc(paths, func(path string) bool { return in[template][path] == counts[0] })]
		if lost := lostIn(names, paths, odd, config); lost != "" {
			return lost
		}
	}
	return ""
}

// lostIn returns the only tensor that the instance odd lacks and all others have. It returns "" if there is none, for
// values, which may be keys, and for a whole module in the first or the last layer, except for those of boundaryModules, but
// not for half of a module.
func lostIn(names, paths []string, odd string, config *modelConfig) string {
	have := restsBelow(names, odd)
	lost := ""
	for _, path := range paths {
		for _, rest := range restsBelow(names, path) {
			if path != odd && !has(have, rest) && rest != lost {
				if lost != "" {
					return ""
				}
				lost = rest
			}
		}
	}
	half := lost == "weight" || lost == "bias"
	inner := !isBoundary(paths, odd) || config != nil && inBlock(names, odd+lost)
	if strings.Contains(odd+lost, "v_proj") {
		inner = inBlock(names, odd+lost) && len(paths) > 3 && config != nil && !config.sharesKeys(firstNumber(odd))
	}
	if lost == "" || !half && !inner {
		return ""
	}
	return odd + lost
}

// These are names of modules that either all layers of a kind have or none, provided that the layers have the same other
// modules: blocks of a layer, the keys and values of an attention, and other projections. Modules that only some layers may
// have, such as shortcuts, are not listed.
const (
	layerBlocks   = "attention attn attn1 attn2 block_sparse_moe conv encoder_attn feed_forward feed_forward1 feed_forward2 ff ffn intermediate intermediate_query linear_attn mamba mixer mlp moe multi_head_attention output output_query self self_attention self_attn shared_mlp temporal_block"
	layerNorms    = "input_layernorm post_attention_layernorm pre_ff_layernorm norm1 norm2 layer_norm1 layer_norm2 ln_1 ln_2 self_attn_layer_norm final_layer_norm operator_norm ffn_norm layernorm_before layernorm_after"
	attentionKeys = "k k_proj k_norm key v v_proj value"
	projections   = "q_proj o_proj out_proj qkv_proj c_attn c_fc c_proj up_proj down_proj gate_proj gate_up_proj fc1 fc2 fc_in fc_out dense_h_to_4h dense_4h_to_h query dense"
	blockParts    = "gate router input_linear output_linear q wq wk wv wo w1 w2 w3 linear1 linear2 query_key_value qkv proj in_proj x_proj dt_proj conv1d A_log D dt_bias in_proj_qkvz in_proj_ba in_proj_qkv in_proj_z in_proj_a in_proj_b"
)

// contains reports whether a list of words contains a word.
func contains(list, word string) bool { return slices.Contains(strings.Fields(list), word) }

// inBlock reports whether a tensor is a norm of a layer with blocks, or a projection or another part of a block, that each
// layer with such a block has, even the first and the last one.
func inBlock(names []string, name string) bool {
	module := strings.TrimSuffix(strings.TrimSuffix(name, ".weight"), ".bias")
	parts := strings.Split(module, ".")
	last := parts[len(parts)-1]
	isPart := strings.Contains(last, "norm") || slices.ContainsFunc([]string{projections, attentionKeys, blockParts}, func(list string) bool { return contains(list, last) })
	return isLayerNorm(last) && hasBlock(names, outer(module)) || isPart && slices.ContainsFunc(parts[:len(parts)-1], func(part string) bool { return contains(layerBlocks, part) })
}

// hasBlock reports whether a layer has a block other than a conv, which convolutional networks also have. It returns false
// for a draft model, which has fc.weight and whose first layer may have no norm.
func hasBlock(names []string, layer string) bool {
	return !has(names, "fc.weight") && slices.ContainsFunc(restsBelow(names, layer), func(rest string) bool {
		child, _, _ := strings.Cut(rest, ".")
		return contains(layerBlocks, child) && child != "conv"
	})
}

// isLayerNorm reports whether a module is a norm that each layer has, even the first and the last one. The first layer of
// ModernBERT, for one, has no attn_norm.
func isLayerNorm(child string) bool {
	return contains(layerNorms, child) || strings.HasPrefix(child, "post_") && strings.Contains(child, "norm")
}

// lostModule returns the first tensor of a block, a norm, a projection or an expert that one of at least three layers lacks,
// or of the keys or values that the attention of one of at least four layers lacks and is not known to share with another.
// Apart from that, the layers must have the same modules: those of hybrid models do not. It returns "" if there is none.
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
			case last == "*" && (strings.Contains(child, "norm") || strings.HasPrefix(child, "ln_")), last == "experts":
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

// lastPart returns the last part of a path, which ends in a dot.
func lastPart(path string) string {
	path = strings.TrimSuffix(path, ".")
	return path[strings.LastIndexByte(path, '.')+1:]
}

// childrenOf returns the children of paths: the parts of names after a path, up to the next dot. It maps them to the first
// tensor, relative to the path, in each path that has the child.
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

// lostPart returns a tensor of a part that a module lacks, if most modules of its kind have that part, wherever they are, and
// all other parts of this module. It returns "" if there is none. It judges experts, and modules of classes for which
// hasBiases returns true.
func (in instances) lostPart(names []string, config *modelConfig) string {
	kinds, judged := make(map[string][]string), "experts.*" // the paths of the modules of each kind
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

// lostChild returns the first tensor of the first child that a path lacks, if no other path has the same children, and at
// least two have the same tensors and those of the children that it lacks: such paths are of one kind. It returns "" unless
// is returns true for each child that the path lacks, numbered from 1. If the path may be of several kinds, it returns the
// children that these have, in braces. If only one layer is of some kind, lostChild finds a norm that all others have.
func lostChild(names, paths []string, is func(child, odd string, n int) bool) string {
	with := childrenOf(names, paths)
	kinds := make(map[string][]string) // the paths with the same children
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
		odd, many := kinds[key][0], false // many is whether a kind has several children more
		if len(kinds[key]) > 1 {
			continue
		}
		var found []string // a lost child by each kind
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

// sameWithout returns the paths that have the same tensors as odd, apart from those of the lost children.
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

// firstOf returns the value of the first key.
func firstOf(m map[string]string) string { return m[slices.Min(slices.Collect(maps.Keys(m)))] }

// isBoundary reports whether an instance is in the first or the last layer, which has at most two of the
// instances.
func isBoundary(paths []string, odd string) bool {
	layer := firstNumber(odd)
	least, most, same := layer, layer, 0
	for _, path := range paths {
		n := firstNumber(path)
		least, most = min(least, n), max(most, n)
		if n == layer {
			same++
		}
	}
	return (layer == least || layer == most) && same < 3
}

// firstNumber returns the first number in a path, or -1.
func firstNumber(path string) int {
	for part := range strings.SplitSeq(path, ".") {
		if n, err := strconv.Atoi(part); err == nil {
			return n
		}
	}
	return -1
}

// restsBelow returns the sorted names of the tensors below a path, relative to it and without buffers. names must
// be sorted.
func restsBelow(names []string, path string) (rests []string) {
	at, _ := slices.BinarySearch(names, path)
	for _, name := range names[at:] {
		rest, is := strings.CutPrefix(name, path)
		if !is {
			break
		}
		if !isBuffer(name) {
			rests = append(rests, rest)
		}
	}
	return rests
}

// has reports whether sorted names contain name.
func has(names []string, name string) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

// numberHole returns the path of the only expert that is missing between other experts, or of the only layer that is
// missing in a stack, if the number of its last layer agrees with a number of layers in the config. It returns "" if
// there is none.
func numberHole(names []string, config *modelConfig) string {
	stacks := make(map[string]map[int]bool)
	for _, name := range names {
		for at := 0; ; {
			part, rest, more := strings.Cut(name[at:], ".")
			if !more {
				break
			}
			if n, err := strconv.Atoi(part); err == nil && n >= 0 && strings.Contains(rest, ".") {
				if stacks[name[:at]] == nil {
					stacks[name[:at]] = make(map[int]bool)
				}
				stacks[name[:at]][n] = true
			}
			at += len(part) + 1
		}
	}
	counts := make(map[int]bool)
	for _, n := range config.counts() {
		counts[n] = true
	}
	for _, path := range slices.Sorted(maps.Keys(stacks)) {
		have := stacks[path]
		last := slices.Max(slices.Collect(maps.Keys(have)))
		if !strings.HasSuffix(path, ".experts.") && !counts[last+1] || len(have) < 3 || last != len(have) {
			continue
		}
		for n := range last {
			if !have[n] {
				return fmt.Sprintf("%s%d", path, n)
			}
		}
	}
	return ""
}
