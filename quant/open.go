package quant

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// isShard matches the name of one file of several.
var isShard = regexp.MustCompile(`-\d+-of-0*([2-9]|1\d)\d*\.safetensors$`)

// Open opens a checkpoint as [safetensors.Open] does, with the tensors that it stands
// for: see [Dequantize]. The config is that of FindConfig, in the directory, or next to
// the file; else _quantization_metadata in the metadata, which the result does not have.
// Close closes the files. A single shard may have no tensor that is quantised.
func Open(name string) (*safetensors.File, error) {
	folder, shard := name, false
	if info, err := os.Stat(name); err == nil && !info.IsDir() {
		folder, shard = filepath.Dir(name), isShard.MatchString(name)
	}
	text, err := FindConfig(func(name string) ([]byte, error) {
		return osfile.ReadRegular(filepath.Join(folder, name), maxConfig) // it may be anything
	})
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Open(name)
	if err != nil {
		return nil, err
	}
	whole, err := dequantizeFile(f, text, shard)
	if err != nil {
		return nil, errors.Join(prefix.Add(prefix.OpenError(name, err)), f.Close())
	}
	return whole, nil
}

func dequantizeFile(f *safetensors.File, text []byte, shard bool) (*safetensors.File, error) {
	c, err := parseConfig(text)
	if err != nil {
		return nil, err
	}
	const marker = "_quantization_metadata" // by which ComfyUI marks quantised layers
	metadata := maps.Clone(f.Metadata())
	if text, ok := metadata[marker]; ok {
		if c.method != "" {
			return nil, fmt.Errorf("%s of ComfyUI in its metadata, though the config says quant_method %s", marker, quote(c.named))
		}
		if c, err = parseConfig([]byte(text)); err != nil {
			return nil, err
		}
		delete(metadata, marker)
	}
	c.shard = shard
	plain, err := dequantize(maps.Collect(f.Tensors()), c)
	if err != nil {
		return nil, err
	}
	return safetensors.FileOf(plain, metadata, f.Close)
}

// FindConfig returns the content of the file that says how the tensors next to it are
// quantised: config.json or hf_quant_config.json, nil if neither does. read returns the
// content of a file, and an error wrapping [fs.ErrNotExist] if there is none of that
// name, as os.ReadFile does, or a client of a hub.
func FindConfig(read func(name string) ([]byte, error)) ([]byte, error) {
	for _, name := range []string{"config.json", "hf_quant_config.json"} {
		text, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, prefix.Add(err)
		}
		if c, err := parseConfig(text); err != nil || c.method != "" {
			return text, nil // Dequantize says what is wrong with it
		}
	}
	return nil, nil
}
