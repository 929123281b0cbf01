package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"hash"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/modelsig"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/pflag"
)

func addIgnore(f *pflag.FlagSet, ignore *[]string, follow *bool) {
	f.StringArrayVar(ignore, "ignore", nil, "leave out the file or folder `PATH` of the model")
	f.BoolVar(follow, "allow-symlinks", false, "follow symbolic links")
}

// within returns the path of a local file in a model, if it is in it.
func within(file, model string) (string, bool) {
	if strings.Contains(model, "://") {
		return "", false
	}
	dir, err1 := realPath(model)
	parent, err2 := realPath(filepath.Dir(file))
	if err1 != nil || err2 != nil {
		return "", false
	}
	below, err := filepath.Rel(dir, filepath.Join(parent, filepath.Base(file)))
	return filepath.ToSlash(below), err == nil && below != "." && filepath.IsLocal(below)
}

func realPath(name string) (string, error) {
	full, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(full)
}

// warnOutside names the links that lead out of the model, as the format asks for.
func (c *command) warnOutside(tree *source.Tree) {
	for _, name := range tree.Outside {
		fmt.Fprintf(c.stderr, "safetensors: %s is a link that leads out of the model\n", term.Name(name))
	}
}

// sumsOf hashes files as a signature says.
func (c *command) sumsOf(files []source.File, m *modelsig.Manifest) ([][][]byte, error) {
	return c.hashFiles(files, m.ShardSize, func(source.File) (hash.Hash, error) { return modelsig.NewHash(m.Hash) })
}

// A named is a file that an index names.
type named struct{ index, file string }

// uncovered returns the files that indexes of checkpoints name and that are not covered:
// whoever loads the checkpoint would load them.
func uncovered(files []source.File, covered func(name string) bool) (missing []named, err error) {
	for _, file := range files {
		if !source.IsIndex(file.Name) && !source.IsTorchIndex(file.Name) {
			continue
		}
		index, err := readIndex(file)
		if err != nil {
			return missing, fmt.Errorf("%s: %w", term.Name(file.Name), term.Bare(err))
		}
		for _, shard := range slices.Compact(slices.Sorted(maps.Values(index.Shards))) {
			if name := path.Join(path.Dir(file.Name), shard); !covered(name) {
				missing = append(missing, named{file.Name, name})
			}
		}
	}
	return missing, nil
}

func readIndex(file source.File) (*safetensors.Index, error) {
	r, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return safetensors.ReadIndex(r)
}

// readParsed reads a file of at most max bytes that the command line names.
func readParsed[T any](ctx context.Context, name string, max int64, parse func(text []byte) (T, error)) (v T, err error) {
	text, err := localfile.ReadNamed(ctx, name, max)
	if err != nil {
		return v, err
	}
	if v, err = parse(text); err != nil {
		err = fmt.Errorf("%s: %w", term.Name(name), err)
	}
	return v, err
}

func readCertificates(ctx context.Context, names []string) (all []*x509.Certificate, err error) {
	for _, name := range names {
		some, err := readParsed(ctx, name, maxPEM, modelsig.ParseCertificates)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}
