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

// ownFolder is the folder in which the Python tools record their downloads to a folder.
const ownFolder = ".cache/huggingface"

// verifyHub compares local files with the checksums of the hub. repo is OWNER/NAME[@REVISION]. If
// it is "", name is hf://... and means the files in the cache of the Python tools.
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
		if repo, revision, err = splitRepo(repo); err != nil {
			return err
		}
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
	sums, err := c.hashFiles(tree.Files, 0, func(f storage.File) hash.Hash {
		if published, found := hub[f.Name]; found {
			return published.Hash(f.Size)
		}
		return nil
	})
	if err != nil {
		return err
	}
	v := &verification{File: name, Files: compareHub(tree, sums, hub)}
	v.Absent = len(hub)
	if len(v.Files) == 0 {
		err = fmt.Errorf("%s: none of its files is on the hub", term.Name(tree.Name))
	}
	return c.printVerification(v, err)
}

// splitRepo splits the value of --hub into the name of the repository and the revision.
func splitRepo(text string) (repo, revision string, err error) {
	repo, revision, at := strings.Cut(strings.TrimPrefix(text, "hf://"), "@")
	if at && revision == "" {
		return "", "", usage("--hub %s: the revision after @ is empty", term.Name(text))
	}
	if _, address, isURL := strings.Cut(repo, "://"); isURL {
		if parts := strings.Split(address, "/"); len(parts) > 2 && parts[1] != "" && parts[2] != "" { // host, owner, name
			return "", "", usage("--hub %s is a URL: expected OWNER/NAME, as in --hub %s", term.Name(text), term.Word(parts[1]+"/"+parts[2]))
		}
	}
	if owner, model, ok := strings.Cut(repo, "/"); !ok || owner == "" || model == "" || strings.Contains(model, "/") {
		return "", "", usage("--hub %s: expected OWNER/NAME[@REVISION], such as openai-community/gpt2", term.Name(text))
	}
	return repo, revision, nil
}

// compareHub returns a finding for each local file, and removes the file from hub.
func compareHub(tree *storage.Tree, sums [][][]byte, hub map[string]*storage.HubFile) []finding {
	all := []finding{}
	for i, file := range tree.Files {
		published, found := hub[file.Name]
		delete(hub, file.Name)
		f := finding{file.Name, resultDifferent, "DIFFERS"}
		if !found {
			f.Result, f.words = resultUncovered, "NOT ON THE HUB"
		} else if published.Matches(sums[i][0]) {
			f.Result, f.words = resultOK, "OK"
		} else if real, err := filepath.EvalSymlinks(file.Path); err == nil && filepath.Base(real) != filepath.Base(file.Path) {
			f.words += ", " + term.Name(real) // names the entry of the cache, so that the user can remove it
		}
		all = append(all, f)
	}
	for _, name := range tree.Links {
		delete(hub, name)
		all = append(all, finding{name, resultMissing, "MISSING, the link leads nowhere"})
	}
	return all
}
