package quant

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// Open opens a checkpoint as [safetensors.Open] does, with the tensors that it stands
// for: see [Dequantize]. The config is that of FindConfig, in the directory, or next to
// the file. Close closes the files.
func Open(name string) (*safetensors.File, error) {
	folder := name
	if info, err := os.Stat(name); err == nil && !info.IsDir() {
		folder = filepath.Dir(name)
	}
	config, err := FindConfig(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(folder, name)) })
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Open(name)
	if err != nil {
		return nil, err
	}
	var whole *safetensors.File
	plain, err := Dequantize(maps.Collect(f.Tensors()), config)
	if err == nil {
		whole, err = safetensors.FileOf(plain, f.Metadata(), f.Close)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return whole, nil
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
