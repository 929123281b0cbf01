package checkpoint

import (
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/variant"
)

// findSets groups the files of the directory into sets. If there are several sets, it leaves out files of
// torch.save that are not models, such as the states of optimizers. Files of torch.save with other endings than .bin,
// which no library opens, count only if there are no other weights.
func (d *directory) findSets() {
	usual := d.any(func(name string) bool { return isWeights(name) && (!isTorch(name) || strings.HasSuffix(name, ".bin")) })
	for _, name := range d.names {
		if d.modes[name].IsDir() || d.isCTranslate2(name) || d.isOpenVINO(name) {
			continue
		}
		torch := isTorchWeights(name) || isTorchIndex(name)
		if !torch && !isSafetensors(name) || usual && isTorch(name) && !strings.HasSuffix(name, ".bin") {
			continue
		}
		stem, of, shard, isIndex := parts(name, torch)
		s := d.set(stem, of, torch)
		switch {
		case isIndex && (s.index == "" || len(name) < len(s.index)):
			s.index = name
		case isIndex:
		case shard.Count != "":
			s.shards[shard.Set()] = append(s.shards[shard.Set()], name)
		default:
			s.single = name
		}
	}
	lone := len(d.sets) == 1
	d.sets = slices.DeleteFunc(d.sets, func(s *set) bool {
		return s.torch && !lone && !slices.Contains(modelStems, s.stem) && !(strings.HasSuffix(s.single, ".bin") && d.twin(s) != nil)
	})
}

// modelStems are the stems under which libraries save models by torch.save.
var modelStems = []string{"pytorch_model", "adapter_model", "diffusion_pytorch_model"}

// parts splits the name of a file with weights into the stem, the variant, which it returns as of, and for a
// shard, the parts of the name that number it.
func parts(name string, torch bool) (stem, of string, shard variant.Shard, isIndex bool) {
	endings := safetensorsEndings
	if torch {
		endings = torchEndings
	}
	of = endings.Of(name)
	if shard, ok := variant.ParseShard(name); ok {
		return shard.Stem, of, shard, false
	}
	stem = name
	for _, ending := range append(slices.Clone(endings), ".json", ".index", "."+of) {
		isIndex = isIndex || strings.HasSuffix(name, ".json")
		stem = strings.TrimSuffix(stem, ending)
	}
	for range 2 { // the variant may follow the ending, as in x.safetensors.index.fp16.json, or precede it
		for _, ending := range append(slices.Clone(endings), ".index", "."+of) {
			if ending != "." {
				stem = strings.TrimSuffix(stem, ending)
			}
		}
	}
	return stem, of, variant.Shard{}, isIndex
}

// set returns the set with this stem, variant and format. It adds the set to the directory if there is none.
func (d *directory) set(stem, of string, torch bool) *set {
	for _, s := range d.sets {
		if s.stem == stem && s.variant == of && s.torch == torch {
			return s
		}
	}
	s := &set{stem: stem, variant: of, torch: torch, shards: make(map[variant.Shard][]string), where: make(place)}
	d.sets = append(d.sets, s)
	return s
}

// twin returns the set of the other format, safetensors or torch.save, that stores the same checkpoint
// according to its name, or nil if there is none.
func (d *directory) twin(s *set) *set {
	stem := strings.TrimPrefix(s.stem, "pytorch_")
	for _, other := range d.sets {
		if other.torch != s.torch && other.variant == s.variant && strings.TrimPrefix(other.stem, "pytorch_") == stem {
			return other
		}
	}
	return nil
}

// unlisted returns the files of a set that its index does not name, grouped: the single file, then the shards of
// each save. Without an index it returns all files.
func (d *directory) unlisted(s *set) (rest [][]string) {
	if s.single != "" && !slices.Contains(s.listed, s.single) {
		rest = append(rest, []string{s.single})
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.shards), func(a, b variant.Shard) int { return strings.Compare(a.String(), b.String()) }) {
		var files []string
		for _, name := range s.shards[key] {
			if !slices.Contains(s.listed, name) {
				files = append(files, name)
			}
		}
		if len(files) > 0 {
			rest = append(rest, files)
		}
	}
	return rest
}
