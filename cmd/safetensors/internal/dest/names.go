package dest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// Split deals tensors into shards of at most maxBytes, or into one if that is 0. It names them
// and their index by a stem, as Numbered does.
func Split(tensors map[string]safetensors.Tensor, maxBytes int64, stem string) (shards map[string]Shard, index string) {
	shards = make(map[string]Shard)
	for name, some := range safetensors.Split(tensors, maxBytes) {
		shards[name] = Shard{Tensors: some}
	}
	return Numbered(shards, stem)
}

// Numbered gives shards, in the order of their names, the names of a whole model, which start
// with a stem, and names their index: "" if there is one shard.
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
