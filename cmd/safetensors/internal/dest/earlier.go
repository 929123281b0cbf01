package dest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// A model identifies one of the checkpoints in a folder: the part of the names that all its files have in common,
// and the variant, or "".
type model struct{ stem, variant string }

// modelOf returns the model to which a file or an index belongs, judging by its name.
func modelOf(name string) (m model) {
	m.stem, m.variant = safetensorsFiles.Split(path.Base(name))
	return m
}

// model returns the model that the Set writes. The index determines it, because shards may have any names.
func (s *Set) model() model {
	name := s.Index
	if name == "" {
		for shard := range s.Shards { // there is only one without an index
			name = shard
		}
	}
	if name == "" {
		name = format.ModelFile // WriteShards writes the files: see folder.Write
	}
	return modelOf(name)
}

// Replaces reports whether Write removes a file of the folder, judging by the file's name alone: the index or the
// single file of the model that the Set writes, or a shard of that model with the nine digits of a save.
func (s *Set) Replaces(name string) bool { return s.model().owns(name) }

// beside reports whether a file of the folder belongs to another variant of the model that the Set writes, and readers
// find both: they open the model without a variant by default, and the variant that the user names.
func (s *Set) beside(name string) bool {
	own := s.model()
	return own.isOther(name) && (own.variant == "" || own.variant == s.Variant)
}

// OtherVariant reports whether two files of a folder, of which either may be an index, belong to different variants of the
// same model, judging by their names.
func OtherVariant(a, b string) bool { return modelOf(a).isOther(b) }

// isOther reports whether a file belongs to another variant of m.
func (m model) isOther(name string) bool {
	other := modelOf(name)
	return m.stem == other.stem && m.variant != other.variant
}

// OtherKind returns the name of the single file of a model for the name of its index, and the other way round.
func OtherKind(name string) string {
	m := modelOf(name)
	if isSafetensorsIndex(name) {
		return variant.FileName(m.stem, m.variant, shardEnding)
	}
	return variant.IndexName(m.stem, m.variant, shardEnding)
}

// owns reports whether a file at the top of the folder is the index, the single file or a shard of a save of m.
func (m model) owns(name string) bool {
	if modelOf(name) != m || strings.Contains(name, "/") {
		return false
	}
	shard, numbered := variant.ParseShard(name)
	if numbered {
		return shard.Save != "" && shard.Ending == ".safetensors"
	}
	return name == singleName(name) && strings.HasSuffix(name, ".safetensors") || isSafetensorsIndex(name)
}

// singleName returns the name without the digits of a save.
func singleName(name string) string { return variant.WithSave(name, "") }

// isSafetensorsIndex reports whether a file is the index of safetensors files, judging by its name.
func isSafetensorsIndex(name string) bool {
	return safetensorsFiles.IsIndex(name) && strings.Contains(name, ".safetensors.index.")
}

// earlier returns the files of the checkpoint in a folder that the Set replaces. These are its index and the shards that the
// index names, even if a reader cannot open them. earlier includes shards that belong to
// no checkpoint only if their names have the digits of a save. It also returns the files of other checkpoints: the
// one that a reader opens, and those with an index. These stay.
func (s *Set) earlier(to Shared, there map[string]Stored) (files, others []string, err error) {
	own, indexed := s.model(), false
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if own.owns(name) {
			files = append(files, name)
		}
		if !isSafetensorsIndex(name) {
			continue
		}
		shards, err := shardsOf(to, name)
		if err != nil {
			return nil, nil, err
		}
		if !own.owns(name) {
			others = append(append(others, name), shards...)
			continue
		}
		indexed = true
		for _, shard := range shards {
			if _, found := there[shard]; found {
				files = append(files, shard)
			}
		}
	}
	main := mainOf(slices.Collect(maps.Keys(there)))
	f, err := to.Open()
	several := new(variant.Several)
	ownShard := func(name string) bool {
		shard, numbered := variant.ParseShard(name)
		return numbered && shard.Save == "" && modelOf(name) == own
	}
	switch broken := (*safetensors.FormatError)(nil); {
	case err == nil:
		for name := range f.Headers() {
			if main != "" && modelOf(main) == own || main == "" && modelOf(name) == own {
				files = append(files, name)
			} else {
				others = append(others, name)
			}
		}
		f.Close()
	case errors.As(err, &several) && (indexed || !slices.ContainsFunc(several.Names, ownShard)): // the others stay
	case errors.As(err, &several):
		return nil, nil, fmt.Errorf("the destination holds several models, %s, and none that is to be replaced: write to another folder", several.List)
	case !errors.As(err, &broken) && !errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	}
	files = slices.DeleteFunc(files, func(name string) bool { return name == "" || slices.Contains(others, name) })
	return files, others, nil
}

// shardsOf returns the shards that an index in a folder names. It returns none if the index is broken.
func shardsOf(to Shared, index string) ([]string, error) {
	text, err := to.Read(index, MostSmall)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	x, err := safetensors.ReadIndex(bytes.NewReader(text))
	if err != nil {
		return nil, nil
	}
	return slices.Compact(slices.Sorted(maps.Values(x.Shards))), nil
}

// mainOf returns the one of the files in a folder that a reader opens as the model of the folder, or "": see
// variant.Main.
func mainOf(names []string) string {
	files, indexes := safetensorsFiles.Among(slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, "/") }))
	return variant.Main(format.ModelFile, files, indexes)
}

// checkOthers returns an error if a reader of the folder would open another checkpoint, which stays, instead of the
// new one, or could not choose between them.
func (s *Set) checkOthers(to Shared, there map[string]Stored, replaced []string) error {
	want, names := s.Index, slices.Sorted(maps.Keys(s.Shards))
	if want == "" {
		want = names[0]
	}
	names = append(names, want)
	stay := slices.DeleteFunc(slices.Sorted(maps.Keys(there)), func(name string) bool {
		return slices.Contains(replaced, name) || slices.Contains(names, name) || s.beside(name)
	})
	main := mainOf(slices.Concat(names, stay))
	if i := slices.IndexFunc(stay, isSafetensorsIndex); main == "" && i >= 0 {
		main = stay[i]
	}
	if main == "" || main == want || s.byConfig {
		return nil // without main, checkThere has found no other file
	}
	return anotherModel(to, main, want)
}
