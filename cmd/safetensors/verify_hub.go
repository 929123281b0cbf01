package main

import (
	"fmt"
	"hash"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/modelsig"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// ownFolder is where the Python tools note what they downloaded to a folder.
const ownFolder = ".cache/huggingface"

// verifyHub compares local files with the sums of the hub. repo is OWNER/NAME[@REVISION];
// without it, name is hf://..., for what the Python tools have in their cache.
func (c *command) verifyHub(name, repo string, ignore []string) error {
	name, err := localfile.Path(name)
	if err != nil {
		return err
	}
	revision, dir := "", name
	if repo == "" {
		if dir, repo, revision, err = storage.HubCache(name); err != nil {
			return err
		}
	} else {
		if strings.Contains(name, "://") {
			return usage("--hub compares local files: expected a folder")
		}
		repo, revision, _ = strings.Cut(strings.TrimPrefix(repo, "hf://"), "@")
	}
	hub, err := c.opener.HubFiles(repo, revision)
	if err != nil {
		return err
	}
	ignore = slices.Concat(ignore, modelsig.DefaultIgnorePaths, []string{ownFolder})
	tree, err := c.opener.Tree(dir, true, func(name string) bool {
		_, known := hub[name]
		return !known && modelsig.Ignored(name, ignore)
	})
	if err != nil {
		return err
	}
	return c.compareHub(name, tree, hub)
}

// compareHub prints a verdict on each local file.
func (c *command) compareHub(name string, tree *storage.Tree, hub map[string]*storage.HubFile) error {
	have := slices.DeleteFunc(slices.Clone(tree.Files), func(f storage.File) bool { return hub[f.Name] == nil })
	sums, err := c.hashFiles(have, 0, func(f storage.File) hash.Hash { return hub[f.Name].Hash(f.Size) })
	if err != nil {
		return err
	}
	v, here := newVerification(name), 0
	for _, file := range tree.Files {
		published, found := hub[file.Name]
		if !found {
			v.add(file.Name, resultUncovered, "NOT ON THE HUB")
			continue
		}
		here++
		if published.Matches(sums[here-1][0]) {
			v.add(file.Name, resultOK, "OK")
			continue
		}
		words := "DIFFERS"
		if real, err := filepath.EvalSymlinks(file.Path); err == nil && filepath.Base(real) != filepath.Base(file.Path) {
			words += ", " + term.Name(real) // the entry of the cache, to be removed
		}
		v.add(file.Name, resultDifferent, words)
	}
	for _, name := range tree.Links {
		v.add(name, resultMissing, "MISSING, the link leads nowhere")
	}
	v.Absent = max(len(hub)-here-len(tree.Links), 0)
	none := v.OK && here == 0
	v.OK = v.OK && here > 0
	err = c.printVerification(v)
	if none {
		return fmt.Errorf("%s: none of its files is on the hub", term.Name(tree.Name))
	}
	return err
}
