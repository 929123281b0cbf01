package checkpoint

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/torch"
)

// judgeWrapped notes a tensor whose name has a part that no library expects there, such as the name of a wrapper of
// PyTorch, so that libraries do not find it. It reports whether it noted a finding.
func (d *directory) judgeWrapped(config *modelConfig, s *set) bool {
	if config.Remote || (config.Type == "" || len(config.Architectures) == 0) && config.Class == "" {
		return false
	}
	name, text := wrapped(s), ", and all others, has a name that a wrapper gives it: libraries find none of the model"
	if name == "" {
		name, text = wrappedModule(s), " has the name that a wrapper gives it: libraries do not find it"
	}
	if name == "" {
		name, text = misplaced(config, s), fmt.Sprintf(", and all others in layers, has a prefix that a model of the type %s does not have: libraries find none of them", quoted(config.Type))
	}
	if name == "" {
		return false
	}
	d.note(Config, name, fmt.Sprintf("the tensor %s of %s%s", quoted(name), quoted(s.where[name]), text), s.where[name])
	return true
}

// wrapped returns the first tensor of a set if the names of all tensors begin with the prefix of the same wrapper:
// torch.compile, a parallel model, trl or peft. Otherwise it returns "". It ignores the head v_head of a value model, which
// trl saves beside the wrapped model.
func wrapped(s *set) string {
	names := slices.DeleteFunc(sortedNames(s.where), func(name string) bool { return strings.HasPrefix(name, "v_head.") })
	for _, prefix := range []string{"_orig_mod.", "module.", "pretrained_model.", "base_model.model."} {
		if len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }) {
			return names[0]
		}
	}
	return ""
}

// wrappedModule returns the first tensor of a module that PyTorch has wrapped for torch.compile, for parallel training or
// for recomputing, or "".
func wrappedModule(s *set) string {
	for _, name := range sortedNames(s.where) {
		for _, part := range []string{"._orig_mod.", "._fsdp_wrapped_module.", "._checkpoint_wrapped_module."} {
			if strings.Contains("."+name, part) {
				return name
			}
		}
	}
	return ""
}

// basePrefixes maps values of model_type to the text before the layers in classes with a head. It is "model." for the
// other types.
var basePrefixes = map[string]string{
	"gpt2": "transformer.", "gptj": "transformer.", "bloom": "transformer.", "t5": "transformer.", "mt5": "transformer.", "umt5": "transformer.", "gpt_neox": "gpt_neox.", "mamba": "backbone.",
	"bert": "bert.", "roberta": "roberta.", "xlm-roberta": "roberta.", "camembert": "roberta.", "electra": "electra.", "distilbert": "distilbert.", "mpnet": "mpnet.",
	"deberta-v2": "deberta.", "albert": "albert.", "vit": "vit.", "deit": "deit.", "dinov2": "dinov2.",
}

// misplaced returns a tensor in a layer if transformers finds no layer of the model, because the text before the layers is
// neither empty nor the one that the architecture has. Otherwise it returns "". It does not judge architectures with
// several parts.
func misplaced(config *modelConfig, s *set) (name string) {
	if !isKnown(config.Type) || len(config.stored()) != 1 || s.where["fc.weight"] != "" ||
		slices.ContainsFunc([]string{"clip", "siglip", "_vl", "llama4"}, func(part string) bool { return strings.Contains(config.Type, part) }) {
		return ""
	}
	base, found := basePrefixes[config.Type]
	if !found {
		base = "model."
	}
	for _, l := range layouts() {
		if !slices.Contains(l.types, config.Type) {
			continue
		}
		stacks := l.stacks(s.where, false)
		if len(stacks) > maxStacks {
			return ""
		}
		for prefix := range stacks {
			rest := strings.TrimPrefix(strings.TrimPrefix(prefix, base), base) // transformers removes a second one
			if !found {
				rest = strings.TrimPrefix(rest, "transformer.") // classes for answers have this one
			}
			if rest == "" || rest == "encoder." || rest == "decoder." {
				return ""
			}
			for tensor := range s.where {
				if at, _, _, ok := l.cutLayer(tensor); ok && at == prefix && (name == "" || tensor < name) {
					name = tensor
				}
			}
		}
	}
	return name
}

// judgeNested notes a file of torch.save whose tensors are all in a dict within its dict, such as "state_dict". Open finds
// them there, and the libraries that open a model under this name do not. The code of a repository may look anywhere.
func (d *directory) judgeNested(config *modelConfig) error {
	if config.Remote || (config.Type == "" || len(config.Architectures) == 0) && config.Class == "" && !d.has(adapterConfigFile) {
		return nil
	}
	for _, s := range d.sets {
		if !s.torch || len(s.where) == 0 || !slices.Contains(modelStems, s.stem) || d.twin(s) != nil {
			continue
		}
		file := d.fileOf(s, "")
		key, err := d.nestedKey(file)
		if err != nil {
			return err
		}
		if key != "" {
			d.note(Config, "", fmt.Sprintf("%s has its tensors in the dict %s: libraries look for them beside it, and find none of the model", quoted(file), quoted(key)), file)
		}
	}
	return nil
}

// nestedKey returns the key of the dict that contains all tensors of a file of torch.save, or "" if they are at the top
// level.
func (d *directory) nestedKey(name string) (string, error) {
	file, size, err := osfile.OpenFS(d.in.FS, d.path(name))
	if err != nil {
		return "", err
	}
	defer file.Close()
	r, ok := file.(io.ReaderAt)
	if !ok {
		return "", nil
	}
	keys, err := torch.Keys(r, size)
	if err != nil || len(keys) == 0 {
		return "", prefix.Strip(err)
	}
	f, err := torch.Opener{Key: keys[0], Skip: func(string, error) {}}.NewFile(r, size)
	if err != nil {
		return "", prefix.Strip(err)
	}
	defer f.Close()
	all := d.heads[name].tensors
	if f.Len() != len(all) {
		return "", nil
	}
	for tensor := range f.Tensors() {
		if _, found := all[tensor]; !found {
			return "", nil
		}
	}
	return keys[0], nil
}
