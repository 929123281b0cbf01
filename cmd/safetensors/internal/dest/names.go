package dest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// Split assigns tensors to shards of at most maxBytes, or to one shard if maxBytes is 0. It names
// the shards and their index as Numbered does.
func Split(tensors map[string]safetensors.Tensor, maxBytes int64, stem, ofVariant string) (shards map[string]Shard, index string) {
	shards = make(map[string]Shard)
	for name, some := range safetensors.Split(tensors, maxBytes) {
		shards[name] = Shard{Tensors: some}
	}
	return Numbered(shards, stem, ofVariant)
}

// Numbered renames shards, in the order of their names, to the names of the shards of a model with
// this stem, or of this variant of the model if ofVariant is not "". It also returns the name of their index, or
// "" if there is only one shard.
func Numbered[T any](shards map[string]T, stem, ofVariant string) (named map[string]T, index string) {
	named = make(map[string]T, len(shards))
	shard := variant.Shard{Stem: stem, Variant: ofVariant, Count: fmt.Sprintf("%05d", len(shards)), Ending: shardEnding}
	for i, name := range slices.Sorted(maps.Keys(shards)) {
		if len(shards) == 1 {
			return map[string]T{variant.FileName(stem, ofVariant, shardEnding): shards[name]}, ""
		}
		shard.Number = fmt.Sprintf("%05d", i+1)
		named[shard.String()] = shards[name]
	}
	return named, variant.IndexName(stem, ofVariant, shardEnding)
}

// shardEnding is the ending of the names of shards.
const shardEnding = ".safetensors"

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
