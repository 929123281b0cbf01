package dest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/pyjson"
	"github.com/gosafetensors/safetensors/internal/variant"
)

const configFile = "config.json"

// CheckLibrary returns an error if the library that config.json names would open another model in the folder than the one that
// the Set writes. config is the config.json that the copy brings, or nil if the folder keeps its own. If the Set has no shards,
// the copy writes model.safetensors. CheckLibrary skips adapters, which have a config of their own. If that library opens the
// model of the Set, Write accepts that a model of another library stays beside it.
func (s *Set) CheckLibrary(to Shared, config []byte) error {
	files, err := to.Files("", false)
	if _, found := files[configFile]; err != nil || config == nil && !found || s.model().stem == "adapter_model" {
		return err
	}
	if config == nil {
		if config, err = to.Read(configFile, MostSmall); err != nil {
			return ignoreAbsent(err)
		}
	}
	var library modelconfig.Library
	if json.Unmarshal(pyjson.WithNulls(config), &library) != nil {
		return nil // it names no library
	}
	ours := append(slices.Sorted(maps.Keys(s.Shards)), cmp.Or(s.Index, format.ModelFile))
	if s.Index == "" && len(s.Shards) > 0 {
		ours = ours[:1]
	}
	own, others := library.Stems()
	opened := variant.OfLibrary(append(slices.Sorted(maps.Keys(files)), ours...), own, others)
	if s.byConfig = slices.Contains(opened, ours[len(ours)-1]); s.byConfig || len(opened) == 0 {
		return nil
	}
	main := cmp.Or(mainOf(slices.Clone(opened)), opened[0]) // mainOf returns "" for files of torch.save
	return anotherModel(to, main, ours[len(ours)-1])
}

// anotherModel returns the error for a folder in which a reader would open the file or the index main, and not the file or the
// index of the new model.
func anotherModel(to Shared, main, file string) error {
	return fmt.Errorf("%s has another model, %s: a reader of the folder would not open %s beside it; write to another folder",
		term.Name(strings.TrimSuffix(to.PathOf("."), "/")), term.Name(main), term.Name(file))
}
