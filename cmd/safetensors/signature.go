package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/modelsig"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/pflag"
)

// A signature holds the flags of sign, and those of verify --signature.
type signature struct {
	file, key, cert string // key is the private key for sign, and the public key for verify
	chain           []string
	ignore          []string
	follow          bool
	force           bool
	unsigned        bool // whether files that no loader reads need no signature
}

// maxPEM is the size in bytes of the largest file of keys or certificates.
const maxPEM = 4 << 20

func (s *signature) addIgnore(f *pflag.FlagSet) {
	f.StringArrayVar(&s.ignore, "ignore", nil, "leave out the file or folder `PATH` of the model")
	f.BoolVar(&s.follow, "allow-symlinks", false, "follow symbolic links")
}

// ignored returns the paths of a model that need no signature: files of git, those of --ignore, and the signature itself.
func (s *signature) ignored(model string) []string {
	paths := slices.Concat(modelsig.DefaultIgnorePaths, s.ignore)
	if own, ok := within(s.file, model); ok {
		paths = append(paths, own)
	}
	return paths
}

// signedTree lists the files of a model, except those that skip selects. It warns about links that lead out of the model,
// as the format requires.
func (c *command) signedTree(name string, follow bool, skip func(name string) bool) (*storage.Tree, error) {
	tree, err := c.opener.Tree(name, follow, skip)
	if err != nil {
		return nil, err
	}
	for _, name := range tree.Outside {
		c.opener.Note(fmt.Sprintf("%s is a link that leads out of the model; its target counts as a part of the model", term.Name(name)))
	}
	return tree, nil
}

type named struct{ index, file string }

// uncovered returns the files that indexes of checkpoints name and that are not signed, because a
// program that loads the checkpoint would load them.
func uncovered(files []storage.File, m *modelsig.Manifest) (missing []named, err error) {
	for _, file := range files {
		if !storage.IsIndex(file.Name) && !storage.IsTorchIndex(file.Name) {
			continue
		}
		var index *safetensors.Index
		r, err := file.Open()
		if err == nil {
			index, err = safetensors.ReadIndex(r)
			r.Close()
		}
		if err != nil {
			return missing, fmt.Errorf("%s: %w", term.Name(file.Name), term.Bare(err))
		}
		for _, shard := range slices.Compact(slices.Sorted(maps.Values(index.Shards))) {
			name := path.Join(path.Dir(file.Name), shard)
			if _, signed := m.Find(name); !signed {
				missing = append(missing, named{file.Name, name})
			}
		}
	}
	return missing, nil
}

// readParsed reads and parses a file that the command line names. A file of more than max bytes is
// an error.
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

func readCertificates(ctx context.Context, names []string) ([]*x509.Certificate, error) {
	all, err := pattern.Each(names, func(name string) ([]*x509.Certificate, error) {
		return readParsed(ctx, name, maxPEM, modelsig.ParseCertificates)
	})
	return slices.Concat(all...), err
}

// within returns the path of a local file relative to a model, if the file is in the model.
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
	if err == nil {
		full, err = filepath.EvalSymlinks(full)
	}
	return full, err
}

// isSignature reports whether a file is a signature of a model.
func (c *command) isSignature(name string) bool {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return false
	}
	_, err := readParsed(c.ctx, name, modelsig.MaxSize, modelsig.Parse)
	return err == nil || errors.Is(err, modelsig.ErrKeyless)
}
