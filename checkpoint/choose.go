package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// choose returns the files of a directory that open considers. If a variant is selected, these are its files. Files that
// ofLibrary leaves out are not among them. The result is nil if open considers all files.
func (o Opener) choose(in where, dir string, l listing) (names []string, err error) {
	own, err := ofLibrary(in.Tree, dir, l)
	if err != nil || o.Variant == "" {
		return own, err
	}
	names = l.names
	if own != nil {
		names = own
	}
	if names = variant.OfVariant(names, o.Variant); names == nil {
		err = prefix.Absent{Err: fmt.Errorf("no file of the variant %s in it", quoted(o.Variant))}
	}
	return names, err
}

// ofLibrary returns the files of the model that the library of the config.json of a directory opens, with their variants. It
// returns nil if no file of another library is beside them, or if the config identifies no library. It reads the config only
// if the names are those of files of two libraries.
func ofLibrary(in osfile.Tree, dir string, l listing) ([]string, error) {
	if !l.has(configFile) || l.modes[configFile].IsDir() || variant.OfLibrary(l.names, modelconfig.Diffusers, modelconfig.Transformers) == nil && variant.OfLibrary(l.names, modelconfig.Transformers, modelconfig.Diffusers) == nil {
		return nil, nil
	}
	text, err := readText(in, in.Join(dir, configFile), maxConfig)
	if err != nil && !errors.Is(err, errTooLong) && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var config modelconfig.Library
	if err != nil || unmarshal(text, &config) != nil {
		return nil, nil // Check has a finding about such a config
	}
	own, others := config.Stems()
	return variant.OfLibrary(l.names, own, others), nil
}
