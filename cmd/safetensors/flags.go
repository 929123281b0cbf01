package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// checkFolder returns an error if the folder of a file that a flag names is missing, or if the file may not be written
// there: see dest.Replaced.
func checkFolder(flag, name string) error {
	_, err := os.Stat(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--%s %s: the folder %s does not exist", flag, term.Name(name), term.Name(filepath.Dir(name)))
	} else if err != nil {
		return fmt.Errorf("--%s %s: %w", flag, term.Name(name), err)
	}
	_, err = dest.Replaced(name)
	return err
}

// openDestination opens the destination of a verb that writes a checkpoint. If ranks is not 0, the
// checkpoint is a distributed one.
func (c *command) openDestination(name, maxShardSize string, ranks int) (dest.Destination, error) {
	maxBytes := int64(0)
	if maxShardSize != "" {
		if digits := strings.TrimRight(strings.ToLower(maxShardSize), "kmgtpeib"); digits != "" && strings.Trim(digits, "0.") == "" {
			return nil, usage("--max-shard-size %s: expected a size above 0, such as 5GB; without the flag a file is not split", maxShardSize)
		}
		var err error
		if maxBytes, err = term.ParseBytes(maxShardSize); err != nil {
			return nil, usage("--max-shard-size: %w", err)
		}
	}
	if ranks == 0 {
		return dest.Parse(c.ctx, name, c.stdout, maxBytes)
	}
	return dest.ParseRanks(name, ranks)
}

// unoccupied returns an error if a destination contains a checkpoint, unless replace is true.
func unoccupied(dst dest.Destination, replace bool) error {
	if replace {
		return nil
	}
	return dst.Free()
}

// parsePairs parses arguments KEY=VALUE.
func parsePairs(args []string) (map[string]string, error) {
	pairs := make(map[string]string)
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY=VALUE", arg)
		}
		if key == "" {
			return nil, fmt.Errorf("%q has an empty key: expected KEY=VALUE", arg)
		}
		if _, twice := pairs[key]; twice {
			return nil, fmt.Errorf("%q is given twice", key)
		}
		pairs[key] = value
	}
	return pairs, nil
}

// withPairs returns metadata with pairs added. If there are no pairs, it returns metadata itself,
// which may be nil.
func withPairs(metadata, pairs map[string]string) map[string]string {
	if len(pairs) == 0 {
		return metadata
	}
	all := make(map[string]string)
	maps.Copy(all, metadata)
	maps.Copy(all, pairs)
	return all
}

// torchFormat returns the pair that loaders of PyTorch expect and metadata does not have, or nil:
// accelerate and huggingface_hub refuse a file whose metadata has other keys but not this one.
func torchFormat(metadata map[string]string) map[string]string {
	if _, ok := metadata["format"]; ok {
		return nil
	}
	return map[string]string{"format": "pt"}
}

// dtypeNames maps other spellings to dtypes.
var dtypeNames = map[string]safetensors.DType{
	"float16": safetensors.F16, "half": safetensors.F16, "fp16": safetensors.F16,
	"bfloat16": safetensors.BF16,
	"float32":  safetensors.F32, "float": safetensors.F32, "fp32": safetensors.F32,
	"float64": safetensors.F64, "double": safetensors.F64, "fp64": safetensors.F64,
	"float8_e4m3fn": safetensors.F8_E4M3, "f8_e4m3fn": safetensors.F8_E4M3, "fp8_e4m3fn": safetensors.F8_E4M3,
	"float8_e5m2": safetensors.F8_E5M2, "fp8_e5m2": safetensors.F8_E5M2,
}

// parseDType parses a dtype that cp can write, in any case, or its name in PyTorch.
func parseDType(text string) (d safetensors.DType, err error) {
	short := strings.TrimPrefix(strings.ToLower(text), "torch.")
	if d, ok := dtypeNames[short]; ok {
		return d, nil
	}
	if d.UnmarshalText([]byte(strings.ToUpper(short))) != nil {
		var all []string
		for d := range safetensors.DTypes() {
			none, _ := safetensors.NewTensor(safetensors.F32, []int{0}, []byte{})
			if _, err := none.Convert(d); err == nil {
				all = append(all, d.String())
			}
		}
		return 0, fmt.Errorf("there is no dtype %q, only %s", text, strings.Join(all, ", "))
	}
	return d, nil
}
