// Package variant knows the names of a model's files in a directory. That may hold variants
// of a model, as diffusers and transformers name them: x and x.fp16, say. Of these, the files
// are
//
//	x.safetensors                    x.fp16.safetensors
//	x-00001-of-00004.safetensors     x.fp16-00001-of-00002.safetensors
//	                                 x-00001-of-00002.fp16.safetensors, in older ones
//	x.safetensors.index.json         x.safetensors.index.fp16.json
//	                                 x.fp16.safetensors.index.json, in some
package variant

import (
	"path"
	"slices"
	"strings"
)

// Endings are those of the files of one kind: .safetensors, or those of PyTorch.
type Endings []string

// Among returns which names are those of a model: the files and the indexes, but for
// variants of a model that is among them itself.
func (e Endings) Among(names []string) (files, indexes []string) {
	all := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		file, _, _ := e.cutIndex(name)
		return !e.has(file)
	})
	models := make(map[string]bool)
	for _, name := range all {
		models[e.modelOf(name)] = true
	}
	for _, name := range all {
		model, variant := cutVariant(e.modelOf(name))
		switch {
		case variant != "" && models[model]:
		case e.IsIndex(name):
			indexes = append(indexes, name)
		default:
			files = append(files, name)
		}
	}
	return files, indexes
}

// Of returns the variant that a file is of, by its name: "" if that tells none.
func (e Endings) Of(name string) string {
	_, variant := cutVariant(e.modelOf(name))
	return variant
}

// IsIndex reports whether a file is an index, by its name.
func (e Endings) IsIndex(name string) bool {
	_, _, ok := e.cutIndex(name)
	return ok
}

// CutShard takes the name of a shard apart, without its ending: stem-00001-of-00003.
func CutShard(name string) (stem, number, count string, ok bool) {
	digits := func(s string) bool { return len(s) >= 5 && strings.Trim(s, "0123456789") == "" }
	of := strings.LastIndex(name, "-of-")
	if of < 0 {
		return "", "", "", false
	}
	dash := strings.LastIndexByte(name[:of], '-')
	if dash < 1 {
		return "", "", "", false
	}
	stem, number, count = name[:dash], name[dash+1:of], name[of+len("-of-"):]
	return stem, number, count, digits(number) && digits(count)
}

func (e Endings) has(file string) bool { return slices.Contains(e, path.Ext(file)) }

// modelOf returns what all files of a model have in common: x, or x.fp16 of that variant.
func (e Endings) modelOf(name string) string {
	file, variant, _ := e.cutIndex(name)
	model := withoutNumber(strings.TrimSuffix(file, path.Ext(file)))
	if base, last := cutVariant(model); last != "" && withoutNumber(base) != base {
		model, variant = withoutNumber(base), last
	}
	if variant == "" {
		return model
	}
	return model + "." + variant
}

// withoutNumber cuts the number of a shard from the end of a name.
func withoutNumber(name string) string {
	if stem, _, _, ok := CutShard(name); ok {
		return stem
	}
	return name
}

// cutIndex takes the name of an index apart: x.safetensors, and the variant or "".
func (e Endings) cutIndex(name string) (file, variant string, ok bool) {
	base, ok := strings.CutSuffix(name, ".json")
	if !ok {
		return name, "", false
	}
	if file, ok = strings.CutSuffix(base, ".index"); ok {
		return file, "", true
	}
	base, variant = cutVariant(base)
	if file, ok = strings.CutSuffix(base, ".index"); !ok || variant == "" || !e.has(file) {
		return name, "", false
	}
	return file, variant, true
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
