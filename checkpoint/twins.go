package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// twin returns the set of the other format, safetensors or torch.save, that stores the same checkpoint
// according to its name, or nil if there is none.
func (d *directory) twin(s *set) *set {
	stem := strings.TrimPrefix(s.stem, "pytorch_")
	for _, other := range d.sets {
		if other.torch != s.torch && other.variant == s.variant && strings.TrimPrefix(other.stem, "pytorch_") == stem {
			return other
		}
	}
	return nil
}

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

// unusedBias matches the names of biases that a T5 does not use: those of the blocks after the first one, which share
// its bias, and those between decoder and encoder. Old versions of transformers stored them.
var unusedBias = lazyregexp.New(`(?:^|\.)(?:block\.[1-9]\d*\.layer\.0\.SelfAttention|EncDecAttention)\.relative_attention_bias\.weight$`)

// isUnused reports whether models of a type compute a tensor with this name, or do not use it, so that a file may lack it.
func isUnused(name, modelType string) bool {
	switch modelType {
	case "t5", "mt5", "switch_transformers":
		return isBuffer(name) || unusedBias().MatchString(name)
	case "marian": // computes its positions, which models of other types learn
		return isBuffer(name) || strings.HasSuffix(name, ".embed_positions.weight")
	}
	return isBuffer(name)
}

// maxTied is the number of tensors whose data judgeTwins compares to find out which tensors are tied.
const maxTied = 100

// judgeTwins compares a set of safetensors files, which most readers prefer, with the files of torch.save
// next to it, which the others read.
func (d *directory) judgeTwins(s, other *set, config *modelConfig) error {
	if s.torch || len(s.where) == 0 || len(other.where) == 0 {
		return nil
	}
	var both, only []string
	aliases, left := d.aliases(s), maxTied
	for tensor := range s.where {
		if other.where.find(tensor) != "" {
			both = append(both, tensor)
		} else if !isUnused(tensor, config.Type) {
			only = append(only, tensor)
		}
	}
	for _, tensor := range sortedNames(other.where) {
		if s.where.find(tensor) != "" || isUnused(tensor, config.Type) || aliases[tensor] != "" {
			continue
		}
		tied, err := d.tied(s, other, tensor, config, &left)
		if err != nil {
			return err
		}
		if !tied {
			only = append(only, tensor) // the first one is enough for the finding
			break
		}
	}
	slices.Sort(only)
	tensor, why := "", "only one of them has it"
	for _, name := range only {
		if s.where[name] != "" && isHead(name) && (config.Tie == nil || *config.Tie) {
			continue
		}
		tensor = name
		break
	}
	if tensor == "" {
		var err error
		if tensor, why, err = d.difference(s.where, other.where, both); err != nil || tensor == "" {
			return err
		}
	}
	first, second := d.fileOf(s, tensor), d.fileOf(other, tensor)
	d.note(Ambiguous, tensor, fmt.Sprintf("%s and %s are two checkpoints: the tensor %s differs (%s)", quoted(first), quoted(second), quoted(tensor), why), first, second)
	return nil
}

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

func isHead(name string) bool {
	return name == "lm_head.weight" || strings.HasSuffix(name, ".lm_head.weight") || strings.HasSuffix(name, "decoder.weight") || strings.HasSuffix(name, "embed_tokens.weight") || strings.HasSuffix(name, "decoder.bias")
}

// tied reports whether a tensor that only the files of torch.save have equals a tensor that both sets have, and
// the model may tie the two. Each comparison of data decrements *left. When *left is 0, tied returns false.
func (d *directory) tied(s, other *set, tensor string, config *modelConfig, left *int) (bool, error) {
	if config.Tie != nil && !*config.Tie {
		return false, nil
	}
	file := other.where[tensor]
	want := d.heads[file].tensors[tensor]
	for _, name := range sortedNames(other.where) {
		have := d.heads[other.where[name]].tensors[name]
		if s.where[name] == "" || have.dtype != want.dtype && !(isFloat(have.dtype) && isFloat(want.dtype)) || !slices.Equal(have.shape, want.shape) {
			continue
		}
		if *left == 0 {
			return false, nil
		}
		*left--
		differing, err := d.compareFiles(file, other.where[name], []string{tensor}, []string{name}, 1)
		if err != nil || len(differing) == 0 {
			return err == nil, err
		}
	}
	return false, nil
}
