package checkpoint

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/gosafetensors/safetensors/internal/osfile"
)

// sideConfigs are the names of configs that libraries need to open the files beside them, but that do not describe
// tensors.
var sideConfigs = []string{schedulerFile, moduleConfigFile, "config_sentence_transformers.json"}

// configNames are the names of the files that are read, other than weights and indexes.
var configNames = append([]string{configFile, adapterConfigFile, modulesFile, pipelineFile, "quantize_config.json", "quant_config.json", "hf_quant_config.json"}, sideConfigs...)

// irregular notes weights and configs that are pipes, devices, links to nothing or links out of the directory. So
// that they are not opened, it marks weights as seen and removes configs from the listing.
func (d *directory) irregular() error {
	for _, name := range slices.Clone(d.names) {
		config := slices.Contains(configNames, name)
		if !isWeights(name) && !config || d.modes[name].IsRegular() {
			continue
		}
		isDir, why, err := d.irregularity(name)
		switch {
		case err != nil:
			return err
		case why == nil && !isDir:
			continue
		case why != nil:
			d.unreadable(d.at(name), why)
		}
		d.seen[d.at(name)] = true
		if config {
			d.names = slices.DeleteFunc(slices.Clone(d.names), func(n string) bool { return n == name })
		}
	}
	return nil
}

// irregularity returns the reason why a link, or a file that is not regular, must not be opened, or nil. isDir
// reports whether it is a directory.
func (d *directory) irregularity(name string) (isDir bool, why, err error) {
	if to, is := leaves(d.in, d.root, d.at(name)); is {
		return false, leavesError(to), nil
	}
	mode := d.modes[name]
	info, err := osfile.StatFS(d.in.FS, d.path(d.at(name)))
	if err == nil && mode&fs.ModeSymlink != 0 {
		mode = info.Mode()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, err, nil
	case err != nil:
		return false, nil, err
	case !mode.IsDir() && !mode.IsRegular():
		return false, errors.New("it is not a regular file"), nil
	}
	return mode.IsDir(), nil, nil
}
