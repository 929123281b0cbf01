// Package variant implements the rules for the names of a model's files in a directory. A directory
// may hold several variants of a model. diffusers and transformers give them names such as x and
// x.fp16. The files of these two are
//
//	x.safetensors                    x.fp16.safetensors
//	x-00001-of-00004.safetensors     x.fp16-00001-of-00002.safetensors
//	                                 x-00001-of-00002.fp16.safetensors, in older checkpoints
//	x.safetensors.index.json         x.safetensors.index.fp16.json
//	                                 x.fp16.safetensors.index.json, in some checkpoints
package variant

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Endings are the endings that the names of files of one kind have: .safetensors, or the endings
// that PyTorch uses.
type Endings []string

// Among returns the names that belong to a model: its files and its indexes. It leaves out the
// variants of a model whose plain files are also among the names.
func (e Endings) Among(names []string) (files, indexes []string) {
	all := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		file, _, _ := e.cutIndex(name)
		return !e.has(file)
	})
	models := make(map[string]bool)
	for _, name := range all {
		models[join(e.modelOf(name))] = true
	}
	for _, name := range all {
		model, variant := e.modelOf(name)
		saved, _ := cutSave(model)
		switch {
		case variant != "" && (models[model] || models[saved]):
		case e.IsIndex(name):
			indexes = append(indexes, name)
		default:
			files = append(files, name)
		}
	}
	return files, indexes
}

// Of returns the variant that the name of a file indicates, or "" if it indicates none.
func (e Endings) Of(name string) string {
	_, variant := e.modelOf(name)
	return variant
}

// Model returns the part of a file's name that all files of a model have in common, without a variant and the digits
// of a save: "x" of x.fp16-00001-of-00002.safetensors. The name must be that of a file with tensors, not of an index.
func Model(name string) string {
	model, _ := Endings(nil).modelOf(name)
	model, _ = cutSave(model)
	return model
}

// Split returns the part of the name of a file or an index that Model returns, and its variant, or "".
func (e Endings) Split(name string) (model, variant string) {
	model, variant = e.modelOf(name)
	model, _ = cutSave(model)
	return model, variant
}

// FileName returns the name of the only file of a model: x.safetensors, or x.fp16.safetensors for the variant fp16.
func FileName(model, variant, ending string) string { return join(model, variant) + ending }

// IndexName returns the name of the index of a model: x.safetensors.index.json, or x.safetensors.index.fp16.json for the
// variant fp16.
func IndexName(model, variant, ending string) string {
	return join(model+ending+".index", variant) + ".json"
}

// Main returns the one of the files and indexes of a directory, as Among returns them, that a reader opens as
// the model of the directory: the file with the usual name, its index, or the only index. It returns "" if
// there is none.
func Main(usual string, files, indexes []string) string {
	index := usual + ".index.json"
	switch {
	case slices.Contains(files, usual):
		return usual
	case slices.Contains(indexes, index):
		return index
	case len(indexes) == 1:
		return indexes[0]
	}
	return ""
}

// IsIndex reports whether a file is an index, judging by its name.
func (e Endings) IsIndex(name string) bool {
	_, _, ok := e.cutIndex(name)
	return ok
}

func (e Endings) has(file string) bool { return slices.Contains(e, path.Ext(file)) }

// modelOf returns the part of a name that all files of a model have in common, and the variant that
// the name indicates, or "". In the name of a shard, that part includes the digits of a save.
func (e Endings) modelOf(name string) (model, variant string) {
	file, variant, _ := e.cutIndex(name)
	shard, ok := ParseShard(file)
	switch {
	case !ok:
		model = strings.TrimSuffix(file, path.Ext(file))
	case variant != "":
		model = join(join(shard.Stem, shard.Variant), shard.Save)
	default:
		return join(shard.Stem, shard.Save), shard.Variant
	}
	if variant == "" {
		model, variant = cutVariant(model)
	}
	return model, variant
}

// cutIndex splits the name of an index into the name of its model, such as x.safetensors, and the
// variant, or "".
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

// cutVariant cuts the variant off the end of a name. A variant starts with a letter, since wan2.1
// is a version, and not the variant 1 of wan2.
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

// A Members reports a directory without a model of its own whose members have models: a pipeline of
// diffusers, or a directory of sentence-transformers.
type Members struct {
	Err   error    // says that the directory has no model of its own
	Names []string // directories of the members with models
}

func (e *Members) Error() string {
	return e.Err.Error() + "; checkpoint.Models lists the directories of its models, to be opened one by one"
}

func (e *Members) Unwrap() error { return e.Err }

// A Several reports a directory with several files or indexes. None of them has the usual name of a
// model, and they are not the shards of one model.
type Several struct {
	Usual string   // the name that a single file of a model usually has
	Names []string // indexes, then files
	List  string   // the names, formatted for the error
}

func (e *Several) Error() string {
	return e.Found() + "; open those of one model by name, and Join them"
}

// Found returns the text of the error without the advice at its end.
func (e *Several) Found() string {
	return fmt.Sprintf("no %s in it, but several other files: %s", e.Usual, e.List)
}
