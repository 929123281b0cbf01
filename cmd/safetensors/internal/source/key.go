package source

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/torch"
)

// Keys returns the possible values of Key for a PyTorch file of this machine, but at most limit of
// them.
func (o *Opener) Keys(name string, limit int) ([]string, error) {
	name, err := localfile.Path(name)
	if err != nil {
		return nil, err
	}
	return localfile.Await(o.Context, func() ([]string, error) {
		f, size, err := osfile.OpenRegular(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if is, err := format.Of(f, size, name); is != format.Torch { // no other format has dicts to select
			return nil, err
		}
		keys, err := torch.Keys(o.Meter(f, term.Name(name)), size)
		return keys[:min(limit, len(keys))], err
	})
}

// CheckKey returns an error if Key is set, and none of several sources has that dict. It notes the sources that were read
// without the key.
func (o *Opener) CheckKey(sources ...*Checkpoint) error {
	if o.Key == "" {
		return nil
	}
	used, keyless := false, []string(nil)
	for _, s := range sources {
		for _, one := range s.Sources() {
			used = used || !one.keyless && one.hasDicts()
			if one.keyless {
				keyless = append(keyless, one.Name)
			}
		}
	}
	if used {
		for _, name := range keyless {
			o.note("%s: its tensors are at the top level, so it is read without --key", storage.Shown(name))
		}
		return nil
	}
	if len(keyless) > 0 {
		return fmt.Errorf("--key %s selects a dict of a PyTorch file, and no source has it", term.Name(o.Key))
	}
	return errors.New("--key selects a dict of a PyTorch file, and no source is one")
}

// hasDicts reports whether torch.save has written the files of a source, so that Key may select one of several dicts in
// them. The pieces of a distributed checkpoint are no such files, unless ranks have saved them with torch.save.
func (c *Checkpoint) hasDicts() bool {
	if c.Format != nil { // a single file
		return c.Format == format.Torch
	}
	return slices.ContainsFunc(c.Files, func(f storage.File) bool { return isTorch(f.Name) })
}

// keyOf returns the key of the dict to read in a checkpoint.
func (o *Opener) keyOf(c *Checkpoint) string {
	if c.keyless {
		return ""
	}
	return o.Key
}

// checkKey returns an error for a source without dicts, if Key would have to select one. what
// describes the source in the error.
func (o *Opener) checkKey(what string) error {
	if o.Key == "" || o.KeyOfSome {
		return nil
	}
	return fmt.Errorf("--key selects a dict of a PyTorch file, and %s", what)
}
