package checkpoint

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
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
	stems := d.stems(config)
	opened := func(s *set) bool { // whether a library opens the set
		return slices.Contains(stems, s.stem) && !s.isMisnamed() && openedAs(s) != ""
	}
	if !ours || len(d.sets) == 0 || d.incomplete() || slices.ContainsFunc(d.sets, opened) {
		return nil
	}
	for _, s := range d.sets {
		m, name := nearStem().FindStringSubmatch(s.stem), cmp.Or(s.single, s.index)
		if m != nil && name != "" {
			d.noteMisnamed(wanted(stems, strings.ToLower(m[1]), strings.TrimPrefix(name, s.stem), s.torch), name)
			return nil
		}
	}
	if own, _ := config.Stems(); own != nil && len(d.sets) == 1 && !config.Remote && !d.has(adapterConfigFile) && !config.isDense() {
		if s := d.sets[0]; !slices.Contains(knownStems, s.stem) && !s.torch && s.single != "" {
			d.noteMisnamed(own[0]+strings.TrimPrefix(s.single, s.stem), s.single)
		}
	}
	return nil
}

// noteMisnamed notes that the libraries open the file want, and that the weights are in a file with another name.
func (d *directory) noteMisnamed(want, name string) {
	d.note(Missing, "", fmt.Sprintf("%s is missing, which the libraries open; the directory has %s", quoted(d.at(want)), quoted(d.at(name))), d.at(want), d.at(name))
}

// isMisnamed reports whether the files have the format of one of the names model.safetensors and pytorch_model.bin and
// the stem of the other: no library opens such files.
func (s *set) isMisnamed() bool {
	return s.torch && s.stem == "model" || !s.torch && s.stem == "pytorch_model"
}

// stems returns the stems in the names of the files that the library of a config opens.
func (d *directory) stems(config *modelConfig) []string {
	if stems, _ := config.Stems(); stems != nil && !config.Remote && !d.has(adapterConfigFile) && !config.isDense() {
		return stems
	}
	return knownStems
}

// wanted returns the name that a library opens, which gives these stems to its files, instead of a file or an index with
// this stem and this rest of the name.
func wanted(stems []string, stem, rest string, torch bool) string {
	if !slices.Contains(stems, stem) || torch && stem == "model" || !torch && stem == "pytorch_model" {
		stem = stems[0]
		if torch {
			stem = stems[len(stems)-1]
		}
	}
	for _, ending := range torchEndings {
		if rest == ending {
			rest = ".bin"
		}
	}
	return stem + rest
}

// judgeBelow notes a config of transformers or diffusers without weights beside it, if they are in a directory below
// that has no config: no library looks for them there.
func (d *directory) judgeBelow(config *modelConfig) error {
	if len(config.Architectures) == 0 && config.Class == "" || config.Remote || d.holdsModel() || d.incomplete() {
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
