package safetensors

import (
	"slices"
	"strings"
)

// A directory may hold variants of a model, as diffusers and transformers name them: x and
// x.fp16, say. Of these, the files are
//
//	x.safetensors                    x.fp16.safetensors
//	x-00001-of-00004.safetensors     x.fp16-00001-of-00002.safetensors
//	                                 x-00001-of-00002.fp16.safetensors, in older ones
//	x.safetensors.index.json         x.safetensors.index.fp16.json
//	                                 x.fp16.safetensors.index.json, in some

// withoutVariants removes the names of variants of a model that is there itself.
func withoutVariants(names []string) []string {
	models := make(map[string]bool)
	for _, name := range names {
		models[modelOf(name)] = true
	}
	return slices.DeleteFunc(names, func(name string) bool {
		model, variant := cutVariant(modelOf(name))
		return variant != "" && models[model]
	})
}

// modelOf returns what all files of a model have in common: x, or x.fp16 of that variant.
func modelOf(name string) string {
	file, variant, _ := cutIndex(name)
	model := cutShard(strings.TrimSuffix(file, fileSuffix))
	if base, last := cutVariant(model); last != "" && cutShard(base) != base {
		model, variant = cutShard(base), last
	}
	if variant == "" {
		return model
	}
	return model + "." + variant
}

// cutShard cuts the number of a shard from the end of a name.
func cutShard(name string) string {
	if stem, _, _, ok := cutShardName(name + fileSuffix); ok {
		return stem
	}
	return name
}

// cutIndex takes the name of an index apart: x.safetensors, and the variant or "".
func cutIndex(name string) (file, variant string, ok bool) {
	base, ok := strings.CutSuffix(name, ".json")
	if !ok {
		return name, "", false
	}
	if file, ok = strings.CutSuffix(base, ".index"); ok {
		return file, "", true
	}
	base, variant = cutVariant(base)
	if file, ok = strings.CutSuffix(base, fileSuffix+".index"); !ok || variant == "" {
		return name, "", false
	}
	return file + fileSuffix, variant, true
}

// isIndex reports whether a file is an index, by its name.
func isIndex(name string) bool {
	_, _, ok := cutIndex(name)
	return ok
}

// cutVariant cuts the variant from the end of a name. It starts with a letter: wan2.1 is a
// version, not the variant 1 of wan2.
func cutVariant(name string) (model, variant string) {
	at := strings.LastIndexByte(name, '.')
	if at < 1 {
		return name, ""
	}
	for i, c := range []byte(name[at+1:]) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return name, ""
		}
	}
	return name[:at], name[at+1:]
}
