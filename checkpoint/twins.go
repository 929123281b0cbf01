package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

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
		if s.where[name] != "" && mayBeTied(name) && (config.Tie == nil || *config.Tie) {
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

// maxTied is the number of tensors whose data judgeTwins compares to find out which tensors are tied.
const maxTied = 100

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

// unusedBias matches the names of biases that a T5 does not use: those of the blocks after the first one, which share
// its bias, and those between decoder and encoder. Old versions of transformers stored them.
var unusedBias = lazyregexp.New(`(?:^|\.)(?:block\.[1-9]\d*\.layer\.0\.SelfAttention|EncDecAttention)\.relative_attention_bias\.weight$`)
