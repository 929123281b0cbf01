package dest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// Split assigns tensors to shards of at most maxBytes, or to one shard if maxBytes is 0. It names
// the shards and their index as Numbered does.
func Split(tensors map[string]safetensors.Tensor, maxBytes int64, stem string) (shards map[string]Shard, index string) {
	shards = make(map[string]Shard)
	for name, some := range safetensors.Split(tensors, maxBytes) {
		shards[name] = Shard{Tensors: some}
	}
	return Numbered(shards, stem)
}

// Numbered renames shards, in the order of their names, to the names of the shards of a model with
// this stem. It also returns the name of their index, or "" if there is only one shard.
func Numbered[T any](shards map[string]T, stem string) (named map[string]T, index string) {
	named = make(map[string]T, len(shards))
	for i, name := range slices.Sorted(maps.Keys(shards)) {
		if len(shards) == 1 {
			return map[string]T{stem + ".safetensors": shards[name]}, ""
		}
		named[fmt.Sprintf("%s-%05d-of-%05d.safetensors", stem, i+1, len(shards))] = shards[name]
	}
	return named, stem + ".safetensors.index.json"
}

// totalParameters matches the entry total_parameters in the metadata of an index that NewIndex
// makes.
var totalParameters = lazyregexp.New(`(?m)^( *"total_parameters": )\d+,?\n`)

// IndexOf returns the text of the index of shards. If parameters is positive, it replaces
// total_parameters; if it is negative, the index has no total_parameters.
func IndexOf(headers map[string]*safetensors.Header, parameters int64) ([]byte, error) {
	index, err := safetensors.NewIndex(maps.All(headers))
	if err != nil {
		return nil, err
	}
	switch {
	case parameters > 0:
		index.Metadata = totalParameters().ReplaceAll(index.Metadata, fmt.Appendf(nil, "${1}%d,\n", parameters))
	case parameters < 0:
		index.Metadata = totalParameters().ReplaceAll(index.Metadata, nil)
	}
	return index.AppendBinary(nil)
}
