package variant

import "slices"

// weights are the endings of all files with weights that readers open in the directory of a model.
var weights = Endings{".safetensors", ".bin", ".pt", ".pth", ".ckpt"}

// libraryWeights are the endings of the files among them that libraries open.
var libraryWeights = Endings{".safetensors", ".bin"}

// OfLibrary returns the files and the indexes, among the names in a directory, of the model that a library opens if it
// gives these stems to its files. The result includes the variants of that model. It is nil unless the directory has a
// file or an index under which the library opens a model without a variant, and beside it a file with one of the other
// stems, which other readers could open instead.
func OfLibrary(names, stems, others []string) (own []string) {
	opened, beside := false, false
	for _, name := range names {
		file, _, _ := weights.cutIndex(name)
		if !weights.has(file) {
			continue
		}
		model, variant := weights.Split(name)
		if !slices.Contains(stems, model) {
			beside = beside || slices.Contains(others, model)
			continue
		}
		own = append(own, name)
		_, numbered := ParseShard(name)
		opened = opened || variant == "" && !numbered && libraryWeights.has(file)
	}
	if !opened || !beside {
		return nil
	}
	return own
}

// OfVariant returns the files and the indexes, among the names in a directory, of a variant such as fp16.
func OfVariant(names []string, variant string) (own []string) {
	for _, name := range names {
		if file, _, _ := weights.cutIndex(name); weights.has(file) && weights.Of(name) == variant {
			own = append(own, name)
		}
	}
	return own
}
