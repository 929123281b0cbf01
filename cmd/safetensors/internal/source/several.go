package source

import (
	"maps"
	"path"

	"github.com/gosafetensors/safetensors"
)

// Several returns one Checkpoint of all models of a directory, where opened[i] is the model in the directory
// models[i]. Names of files, tensors and entries start with that directory, as in unet/conv_in.weight, unless it
// is ".". The metadata of all models is merged; if several models have a value for a key, the first value
// counts. Closing the Checkpoint closes the models.
func Several(name string, models []string, opened []*Checkpoint) *Checkpoint {
	all := &Checkpoint{Name: name, parts: opened}
	all.Tensors, all.Refused = make(map[string]safetensors.Tensor), make(map[string]error)
	for i, c := range opened {
		at := func(name string) string {
			if models[i] == "." {
				return name
			}
			return models[i] + "/" + name
		}
		all.closers = append(all.closers, c.Close)
		all.Joined = all.Joined || c.Joined
		for _, tensor := range c.Order {
			all.Tensors[at(tensor)] = c.Tensors[tensor]
			all.Order = append(all.Order, at(tensor))
		}
		for entry, why := range c.Refused {
			all.Refused[at(entry)] = why
		}
		for _, file := range c.Files {
			file.Name = path.Join(models[i], file.Name)
			all.Files = append(all.Files, file)
		}
		if merged := maps.Clone(c.Metadata); len(merged) > 0 {
			maps.Copy(merged, all.Metadata)
			all.Metadata = merged
		}
	}
	return all
}
