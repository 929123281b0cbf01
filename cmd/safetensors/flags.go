package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// checkPage refuses a page whose name is that of something else, a model perhaps, and one
// whose folder is missing, before hours of reading.
func (c *command) checkPage() error {
	if c.page == "" {
		return nil
	}
	if !strings.HasSuffix(c.page, ".html") {
		return usage("--html %s: the name of the page has to end in .html", c.page)
	}
	return checkFolder("html", c.page)
}

// checkFolder returns an error if the folder of a file that a flag names is missing.
func checkFolder(flag, name string) error {
	if _, err := os.Stat(filepath.Dir(name)); err != nil {
		return fmt.Errorf("--%s %s: %w", flag, term.Name(name), err)
	}
	return nil
}

// drawPage writes the page, if one is asked for, completely or not at all.
func (c *command) drawPage(draw func(io.Writer) error) error {
	if c.page == "" {
		return nil
	}
	return dest.WriteFile(c.page, draw)
}

// openDestination opens the destination of a verb that makes a checkpoint: a distributed one
// unless ranks is 0.
func (c *command) openDestination(name, maxShardSize string, ranks int) (dest.Destination, error) {
	maxBytes := int64(0)
	if maxShardSize != "" {
		var err error
		if maxBytes, err = term.ParseBytes(maxShardSize); err != nil {
			return nil, usageError{err}
		}
	}
	switch {
	case ranks == 0:
		return dest.Parse(c.ctx, name, c.stdout, maxBytes)
	case maxBytes > 0:
		return nil, usage("--ranks and --max-shard-size cannot be combined")
	}
	return dest.ParseRanks(name, ranks)
}

// unoccupied refuses a destination that holds something, unless that is to be replaced.
func unoccupied(dst dest.Destination, replace bool) error {
	if replace {
		return nil
	}
	return dst.Free()
}

func parsePairs(args []string) (map[string]string, error) {
	pairs := make(map[string]string)
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY=VALUE", arg)
		}
		pairs[key] = value
	}
	return pairs, nil
}

// withPairs returns metadata with pairs set. Without any it stays nil.
func withPairs(metadata, pairs map[string]string) map[string]string {
	if len(pairs) == 0 {
		return metadata
	}
	all := make(map[string]string)
	maps.Copy(all, metadata)
	maps.Copy(all, pairs)
	return all
}

// dtypeNames are other spellings of dtypes.
var dtypeNames = map[string]safetensors.DType{
	"float16": safetensors.F16, "half": safetensors.F16,
	"bfloat16": safetensors.BF16,
	"float32":  safetensors.F32, "float": safetensors.F32,
	"float64": safetensors.F64, "double": safetensors.F64,
	"float8_e4m3fn": safetensors.F8_E4M3,
	"float8_e5m2":   safetensors.F8_E5M2,
}

// parseDType reads a dtype, in any case.
func parseDType(text string) (d safetensors.DType, err error) {
	if d, ok := dtypeNames[strings.ToLower(text)]; ok {
		return d, nil
	}
	if d.UnmarshalText([]byte(strings.ToUpper(text))) != nil {
		var all []string
		for d := range safetensors.DTypes() {
			all = append(all, d.String())
		}
		return 0, fmt.Errorf("there is no dtype %q, only %s", text, strings.Join(all, ", "))
	}
	return d, nil
}
