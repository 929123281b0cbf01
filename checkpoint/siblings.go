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
		lost, why = in.oddOne(names), "all other modules of this name have it"
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
		if (all || weighted[templateOf(module)]) && !has(names, module+"weight") {
			return module + "weight"
		}
	}
	return ""
}

// oddOne returns the first of the tensors that one of at least three instances of a template lacks, if all the other
// instances have the same tensors. It returns "" if there is none.
func (in instances) oddOne(names []string) string {
	for _, template := range slices.Sorted(maps.Keys(in)) {
		paths, counts := slices.Sorted(maps.Keys(in[template])), slices.Sorted(maps.Values(in[template]))
		if len(paths) < 3 || counts[0]+1 != counts[1] || counts[1] != counts[len(counts)-1] {
			continue
		}
		odd := paths[slices.IndexFunc(paths, func(path string) bool { return in[template][path] == counts[0] })]
		if lost := lostIn(names, paths, odd); lost != "" {
			return lost
		}
	}
	return ""
}

// lostIn returns the only tensor that the instance odd lacks and all others have. It returns "" if there is none, for
// values, which may be keys, and for a whole module in the first or the last layer, but not for half of a module.
func lostIn(names, paths []string, odd string) string {
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
	if lost == "" || strings.Contains(odd+lost, "v_proj") || !half && isBoundary(paths, odd) {
		return ""
	}
	return odd + lost
}

// These are names of modules that either all layers of a stack have or none, provided that the layers have the same other
// modules: blocks of a layer, the keys and values of an attention, and other projections. Modules that only some layers may
// have, such as shortcuts, are not listed.
const (
	layerBlocks   = "attention attn attn1 attn2 block_sparse_moe encoder_attn feed_forward feed_forward1 feed_forward2 ff ffn intermediate intermediate_query mixer mlp moe multi_head_attention output output_query self self_attention self_attn"
	attentionKeys = "k k_proj k_norm key v v_proj value"
	projections   = "q_proj o_proj out_proj qkv_proj c_attn c_fc c_proj up_proj down_proj gate_proj gate_up_proj fc1 fc2 fc_in fc_out dense_h_to_4h dense_4h_to_h query dense"
)

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
		last, within := lastPart(template), func(list, name string) bool { return slices.Contains(strings.Fields(list), name) }
		lost = lostChild(names, paths, func(child, odd string, n int) bool {
			switch inner := !isBoundary(paths, odd); {
			case last == "*" && within(layerBlocks, child):
				return n == 1
			case last == "*" && (strings.Contains(child, "norm") || strings.HasPrefix(child, "ln_")), last == "experts", within(projections, child):
				return n == 1 && inner
			default:
				return within(layerBlocks, last) && len(paths) > 3 && within(attentionKeys, child) && inner && !config.sharesKeys(firstNumber(odd))
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

// lostChild returns the first tensor of the first child that a path lacks. It returns "" unless all paths but one have the
// same children, and is returns true for each child that this one lacks, numbered from 1.
func lostChild(names, paths []string, is func(child, odd string, n int) bool) string {
	with := childrenOf(names, paths)
	lost, odd, n := "", "", 0
	for _, child := range slices.Sorted(maps.Keys(with)) {
		if len(with[child]) == len(paths) {
			continue
		}
		at := slices.IndexFunc(paths, func(path string) bool { return with[child][path] == "" })
		if n++; len(with[child]) < len(paths)-1 || n > 1 && odd != paths[at] || !is(child, paths[at], n) {
			return ""
		}
		if n == 1 {
			lost, odd = firstOf(with[child]), paths[at]
		}
	}
	return odd + lost
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
