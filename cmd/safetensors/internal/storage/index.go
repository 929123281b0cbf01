package storage

import (
	"regexp"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
)

// indexName matches the names of indexes, that of a variant is
// x.safetensors.index.fp16.json.
var indexName = regexp.MustCompile(`(\.\w+)\.index(\.[A-Za-z]\w*)?\.json$`)

// IsIndex reports whether a file is an index of safetensors, by its name.
func IsIndex(name string) bool {
	match := indexName.FindStringSubmatch(name)
	return match != nil && match[1] == ".safetensors"
}

// IsTorchIndex reports whether a file is an index of files of torch.save, by its name.
func IsTorchIndex(name string) bool {
	match := indexName.FindStringSubmatch(name)
	return match != nil && format.ByName(match[1]) == format.Torch
}
