package source

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"path/filepath"

	"github.com/gosafetensors/safetensors/hub"
)

// A HubFile is a file of a repository as the hub describes it.
type HubFile struct {
	Name string
	Size int64 // 0 if the hub does not say
	sum  []byte
	git  bool // sum is that of a git blob
}

// Hash returns the hash of the sum that the hub publishes: SHA-256 of large files, which
// are in LFS, and the git blob hash of the others.
func (f HubFile) Hash(size int64) hash.Hash {
	if !f.git {
		return sha256.New()
	}
	h := sha1.New()
	if len(f.sum) == sha256.Size {
		h = sha256.New() // a repository of the newer kind
	}
	fmt.Fprintf(h, "blob %d\x00", size)
	return h
}

// Matches reports whether a sum is the one of the hub.
func (f HubFile) Matches(sum []byte) bool { return bytes.Equal(f.sum, sum) }

// HubFiles returns the files of a repository by their names, with their sums.
func (o *Opener) HubFiles(repo, revision string) (map[string]HubFile, error) {
	snapshot, err := o.snapshot(repo, revision)
	if err != nil {
		return nil, err
	}
	return hubFiles(snapshot)
}

func (o *Opener) snapshot(repo, revision string) (*hub.Snapshot, error) {
	snapshot, err := (&hub.Client{HTTP: o.client()}).Files(o.Context, repo, revision)
	if err != nil && context.Cause(o.Context) != nil {
		err = context.Cause(o.Context)
	}
	return snapshot, err
}

func hubFiles(snapshot *hub.Snapshot) (map[string]HubFile, error) {
	files := make(map[string]HubFile, len(snapshot.Files))
	for _, info := range snapshot.Files {
		f := HubFile{Name: info.Name, Size: info.Size, git: info.SHA256 == ""}
		sum := info.SHA256
		if f.git {
			sum = info.BlobID
		}
		var err error
		if f.sum, err = hex.DecodeString(sum); err != nil || len(f.sum) != sha256.Size && !(f.git && len(f.sum) == sha1.Size) {
			return nil, fmt.Errorf("the hub gives %.200q the sum %.200q", info.Name, sum)
		}
		files[f.Name] = f
	}
	return files, nil
}

// HubCache returns where the Python tools have a repository, hf://OWNER/NAME[@REVISION],
// and which commit that is.
func HubCache(name string) (dir, repo, commit string, err error) {
	repo, revision, file, err := splitHub(name)
	if err == nil && file != "" {
		err = fmt.Errorf("%q: expected a whole repository, hf://OWNER/NAME[@REVISION]", name)
	}
	if err == nil {
		dir, err = hub.CacheDir(repo, revision)
	}
	return dir, repo, filepath.Base(dir), err
}
