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

// configs are the files that may say how the tensors next to them are quantised. The
// first that does so counts.
var configs = []string{"config.json", "hf_quant_config.json"}

// Open opens a checkpoint as [safetensors.Open] does, with the tensors that it stands
// for: see [Dequantize]. The config is config.json, or hf_quant_config.json, in the
// folder, or next to the file. Close closes the files.
func Open(name string) (*safetensors.File, error) {
	config, err := readConfig(name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	f, err := safetensors.Open(name)
	if err != nil {
		return nil, err
	}
	plain, err := Dequantize(maps.Collect(f.Tensors()), config)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return safetensors.FileOf(plain, f.Metadata(), f.Close)
}

// readConfig returns the content of the config of a checkpoint, nil if there is none.
func readConfig(name string) ([]byte, error) {
	folder := name
	if info, err := os.Stat(name); err == nil && !info.IsDir() {
		folder = filepath.Dir(name)
	}
	for _, file := range configs {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if c, err := parseConfig(text); err != nil || c.method != "" {
			return text, nil // Dequantize says what is wrong with it
		}
	}
	return nil, nil
}
