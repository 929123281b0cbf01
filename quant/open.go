package quant

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// Open opens a checkpoint as [safetensors.Open] does, and returns the tensors that it represents:
// see [Dequantize]. It finds the config in the directory, or next to the file, as FindConfig does.
// If there is no config, Open uses the entry _quantization_metadata of the metadata. The result
// does not have that entry. Close closes the files. If name is the name of one of several shards,
// it is not an error that the config names a method which no tensor of this shard uses.
func Open(name string) (*safetensors.File, error) { return Opener{}.Open(name) }

// OpenFS is like Open, but opens a checkpoint in a file system. name is a name for
// [safetensors.OpenFS].
func OpenFS(fsys fs.FS, name string) (*safetensors.File, error) { return Opener{}.OpenFS(fsys, name) }

// An Opener opens checkpoints with settings. The funcs Open and OpenFS use the zero Opener.
type Opener struct {
	// Skip is called for each tensor that is left out of the result. The reason may be that it is
	// quantised in a layout that this package does not read, that unknown tensors are next to it,
	// or that its parts do not fit each other. why is the error that Dequantize would return. name
	// is the name that the tensor would have in the result, or the name of a stored tensor if the
	// layout is unknown. The other tensors of a module in an unknown layout are left out with it,
	// except a bias. Open makes all calls before it returns, from one goroutine.
	//
	// Problems of the whole model are still errors: a config that cannot be understood, an unknown
	// quant_method, a file that cannot be read. If Skip is nil, every problem is an error.
	Skip func(name string, why error)
}

// Open is like the func Open, but uses the settings of o.
func (o Opener) Open(name string) (*safetensors.File, error) {
	return o.open(osfile.OS, name, filepath.Dir, func() (*safetensors.File, error) { return safetensors.Open(name) })
}

// OpenFS is like the func OpenFS, but uses the settings of o.
func (o Opener) OpenFS(fsys fs.FS, name string) (*safetensors.File, error) {
	tree, err := osfile.TreeOf(fsys, name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return o.open(tree, name, path.Dir, func() (*safetensors.File, error) { return safetensors.OpenFS(fsys, name) })
}

// open calls stored to open the checkpoint, and dequantises its tensors. The config comes from the
// folder called name or, if name is a file, from the folder dir(name).
func (o Opener) open(in osfile.Tree, name string, dir func(string) string, stored func() (*safetensors.File, error)) (*safetensors.File, error) {
	folder, shard := name, false
	isDir, err := in.IsDir(name)
	if err != nil {
		return nil, prefix.Add(prefix.OpenError(name, err))
	}
	if !isDir {
		folder, shard = dir(name), isShard(path.Base(filepath.ToSlash(name)))
	}
	text, err := FindConfig(func(name string) ([]byte, error) {
		return in.ReadRegular(in.Join(folder, name), maxConfig) // limited, because a file of this name need not be a config
	})
	if err != nil {
		return nil, err
	}
	f, err := stored()
	if err != nil {
		return nil, err
	}
	whole, err := dequantizeFile(f, text, shard, o.Skip)
	if err != nil {
		return nil, errors.Join(prefix.Add(prefix.OpenError(name, err)), f.Close())
	}
	return whole, nil
}

// isShard reports whether a file is one of several shards, judging by its name.
func isShard(name string) bool {
	s, ok := variant.ParseShard(name)
	return ok && strings.TrimLeft(s.Count, "0") != "1"
}

// dequantizeFile returns a File with the tensors that f represents. text is the config. The result
// owns f.
func dequantizeFile(f *safetensors.File, text []byte, shard bool, skip func(name string, why error)) (*safetensors.File, error) {
	c, err := parseConfig(text)
	if err != nil {
		return nil, err
	}
	const marker = "_quantization_metadata" // key of the metadata in which ComfyUI describes quantised layers
	metadata := maps.Clone(f.Metadata())
	if text, ok := metadata[marker]; ok {
		if c.method != "" {
			return nil, fmt.Errorf("%s of ComfyUI in its metadata, though the config specifies quant_method %s", marker, quote(c.named))
		}
		if c, err = parseConfig([]byte(text)); err != nil {
			return nil, err
		}
		delete(metadata, marker)
	}
	if c.shard = shard; skip != nil {
		c.skip = func(name string, why error) { skip(name, prefix.Add(why)) }
	}
	plain, err := dequantize(maps.Collect(f.Tensors()), c)
	if err != nil {
		return nil, err
	}
	return safetensors.FileOf(plain, metadata, f.Close)
}

// FindConfig returns the content of the file that describes how the tensors next to it are
// quantised: config.json or hf_quant_config.json. It returns nil if neither file describes that.
// The func read returns the content of a file, as os.ReadFile or a client of a hub does. If there
// is no such file, its error must wrap [fs.ErrNotExist].
func FindConfig(read func(name string) ([]byte, error)) ([]byte, error) {
	if read == nil {
		return nil, prefix.Add(errors.New("the func that reads a config is nil"))
	}
	for _, name := range []string{"config.json", "hf_quant_config.json"} {
		text, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, prefix.Add(err)
		}
		if c, err := parseConfig(text); err != nil || c.method != "" {
			return text, nil // Dequantize returns the error, if there is one
		}
	}
	return nil, nil
}
