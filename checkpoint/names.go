package checkpoint

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// knownStems are the stems in the names of the files that transformers, diffusers and peft open.
var knownStems = []string{"model", "pytorch_model", "diffusion_pytorch_model", "adapter_model"}

// nearStem matches the stems that file managers, browsers and people give to copies: "model (1)", "Model",
// "model_old".
var nearStem = lazyregexp.New(`(?i)^(` + strings.Join(knownStems, "|") + `)(?:[ ._-]*(?:\(\d+\)|copy.*|old|bak|backup|\d{1,3}))?$`)

// judgeNames judges the names of the files: whether libraries open the model under its name, and whether two
// names are the same on systems that ignore case.
func (d *directory) judgeNames(config *modelConfig) error {
	for i, s := range d.sets {
		at := slices.IndexFunc(d.sets[:i], func(other *set) bool {
			return s.torch == other.torch && s.stem != other.stem && strings.EqualFold(s.stem, other.stem) && strings.EqualFold(s.variant, other.variant)
		})
		if at < 0 {
			continue
		}
		if err := d.judgeFolded(d.sets[at], s); err != nil {
			return err
		}
	}
	ours := len(config.Architectures) > 0 && config.Type != "" || config.Class != "" || config.isDense() || d.has(adapterConfigFile)
	own := d.ownStems(config)
	stems := own
	if own == nil {
		stems = knownStems
	}
	opened := func(s *set) bool { // whether a library opens the set
		return slices.Contains(stems, s.stem) && openedAs(s) != "" && (own == nil || formatStem(s.stem, s.torch) == s.stem)
	}
	if !ours || config.Weights != "" || len(d.sets) == 0 || d.incomplete() || slices.ContainsFunc(d.sets, opened) {
		return nil
	}
	for _, s := range d.sets {
		m, name := nearStem().FindStringSubmatch(s.stem), cmp.Or(s.single, s.index)
		if m != nil && name != "" {
			d.noteMisnamed(wanted(stems, strings.ToLower(m[1]), strings.TrimPrefix(name, s.stem), s.torch), name)
			return nil
		}
	}
	for _, s := range d.sets {
		if file := s.onlyShard(); file != "" && slices.Contains(own, s.stem) {
			d.note(NoIndex, "", fmt.Sprintf("the shard %s has no index: some readers find no model", quoted(d.at(file))), d.at(file))
			return nil
		}
	}
	if s := d.sets[0]; len(d.sets) == 1 && len(own) > 0 && own[0] == "model" && d.isOtherName(s, config) {
		d.noteMisnamed("model.safetensors", s.single)
	}
	return nil
}

// noteMisnamed notes that the libraries open the file want, and that the weights are in a file with another name.
func (d *directory) noteMisnamed(want, name string) {
	d.note(Missing, "", fmt.Sprintf("%s is missing, which the libraries open; the directory has %s", quoted(d.at(want)), quoted(d.at(name))), d.at(want), d.at(name))
}

// isOtherName reports whether the only weights beside a config of transformers are a whole language model in a single
// safetensors file with a name that transformers does not open. It returns false if they may be for a program that opens
// such names: for mlx-lm, for the reader of another quantization or of consolidated.safetensors, for vLLM as the state of
// one rank, or if the directory also holds a model in another format.
func (d *directory) isOtherName(s *set, config *modelConfig) bool {
	switch {
	case s.torch, s.single == "", slices.Contains(knownStems, s.stem), s.stem == "consolidated", strings.Contains(s.stem, "-rank-"):
		return false
	case config.MLX != nil, config.Quantization != nil, d.has("quantize_config.json"), foreignError(d.listing) != nil:
		return false
	}
	for tensor := range s.where {
		if tensorname.IsEmbedding(tensor) {
			return true
		}
	}
	return false
}

// onlyShard returns the name of the shard of a set that consists of one shard, number 1 of 1, without an index. Otherwise it
// returns "".
func (s *set) onlyShard() string {
	if s.index != "" || s.single != "" || s.variant != "" || len(s.shards) != 1 {
		return ""
	}
	for shard, files := range s.shards {
		if len(files) == 1 && shard.IsOnly() {
			return files[0]
		}
	}
	return ""
}

// ownStems returns the stems in the names of the files that the library of a config opens. It returns nil if the library is not
// known, or if code in the repository may open others.
func (d *directory) ownStems(config *modelConfig) []string {
	if config.Remote || d.has(adapterConfigFile) || config.isDense() {
		return nil
	}
	own, _ := config.Stems()
	return own
}

// formatStem returns the stem that transformers uses for files of torch.save, or for safetensors files, if the stem is one of
// these two. It returns any other stem unchanged.
func formatStem(stem string, torch bool) string {
	switch {
	case torch && stem == "model":
		return "pytorch_model"
	case !torch && stem == "pytorch_model":
		return "model"
	}
	return stem
}

// wanted returns the name that a library opens, which gives these stems to its files, instead of a file or an index with
// this stem and this rest of the name.
func wanted(stems []string, stem, rest string, torch bool) string {
	if !slices.Contains(stems, stem) {
		stem = stems[0]
	}
	for _, ending := range torchEndings {
		if rest == ending {
			rest = ".bin"
		}
	}
	return formatStem(stem, torch) + rest
}

// judgeBelow notes a config of transformers or diffusers without weights beside it, if they are in a directory below
// that has no config: no library looks for them there.
func (d *directory) judgeBelow(config *modelConfig) error {
	if len(config.Architectures) == 0 && config.Class == "" || config.Remote || config.Weights != "" || d.holdsModel() || d.incomplete() {
		return nil
	}
	for _, name := range d.names {
		if !d.modes[name].IsDir() || strings.HasPrefix(name, ".") {
			continue
		}
		l, err := d.list(d.at(name))
		if err != nil {
			return err
		}
		if l.has(configFile) || l.has(adapterConfigFile) {
			continue
		}
		for _, file := range []string{"model.safetensors", "model.safetensors.index.json", "diffusion_pytorch_model.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json"} {
			if l.has(file) {
				below := path.Join(d.at(name), file)
				d.note(Missing, "", fmt.Sprintf("the weights are missing beside %s; %s is below, where no library looks", quoted(d.at(configFile)), quoted(below)), d.at(configFile), below)
				return nil
			}
		}
	}
	return nil
}

// judgeFolded compares two sets whose names differ only in capitals.
func (d *directory) judgeFolded(a, b *set) error {
	if slices.Contains(knownStems, b.stem) {
		a, b = b, a
	}
	if a.single == "" || b.single == "" {
		return nil
	}
	return d.judgeBeside(a.where, []string{b.single}, Ambiguous, "the same file where case does not count", a.single, true)
}

// judgeEmpty notes a model without tensors and an index without shards.
func (d *directory) judgeEmpty() {
	for _, s := range d.sets {
		if len(s.where) > 0 || !slices.Contains(knownStems, s.stem) || d.incomplete() {
			continue
		}
		switch {
		case s.index != "" && s.listed != nil:
			d.note(Missing, "", fmt.Sprintf("the index %s names no tensors", quoted(d.at(s.index))), d.at(s.index))
		case s.single != "" && d.heads[d.at(s.single)] != nil:
			d.note(Missing, "", fmt.Sprintf("%s has no tensors", quoted(d.at(s.single))), d.at(s.single))
		}
	}
}

// judgeComponent compares the model of transformers with the model of diffusers in the same directory. Each
// library opens its own. If a library finds its model in two formats, judgeComponent takes the format that the library
// prefers, since judgeTwins compares the two.
func (d *directory) judgeComponent() error {
	find := func(stem string, torch bool) *set {
		i := slices.IndexFunc(d.sets, func(s *set) bool {
			return s.stem == stem && s.variant == "" && s.torch == torch && len(s.where) > 0 && openedAs(s) != ""
		})
		if i < 0 {
			return nil
		}
		return d.sets[i]
	}
	a := cmp.Or(find("diffusion_pytorch_model", false), find("diffusion_pytorch_model", true))
	b := cmp.Or(find("model", false), find("pytorch_model", true))
	if a == nil || b == nil {
		return nil
	}
	files := []string{openedAs(b)}
	if b.index != "" {
		files = append(files, b.listed...)
	}
	return d.judgeBeside(a.where, files, Ambiguous, "read by other libraries", openedAs(a), true)
}

// openedAs returns the name under which libraries open a set: its index or its single file. It returns "" for shards without
// an index, and for a file of torch.save that no library opens because of its ending.
func openedAs(s *set) string {
	if s.torch && !strings.HasSuffix(s.single, ".bin") {
		return s.index
	}
	return cmp.Or(s.index, s.single)
}
