package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// judgeSiblings checks rules that hold for models of any architecture: each module has its weight, a bias fits its weight,
// each of many modules that are alike has the tensors that the others have, and a language model has an embedding and a norm
// outside of its layers. It does not judge quantised models, since their modules have other parts, nor names beyond the
// limits maxName, maxParts and maxPaths. The rules below are about modules whose paths differ only in numbers; the other
// rules are in biases.go, layer_kinds.go and outside.go.
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
	lost, why := weightless(names, config.Class != ""), "its bias is there"
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

// lostIn returns the tensor that odd, one of the paths, lacks and the others have. It returns "" if there is none, or if there
// are several. It also returns "" for a tensor that a layer may lack: one outside of the blocks, in the first or the last
// layer, unless its name after the path is just "weight" or "bias"; and v_proj, which layers may share with others or replace
// by their keys.
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
