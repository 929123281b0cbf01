package storage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/gosafetensors/safetensors/hub"
)

// A HubFile is a file of a repository as the hub describes it.
type HubFile struct {
	sum []byte
	git bool // it is that of a git blob
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
func (s *Session) HubFiles(repo, revision string) (map[string]HubFile, error) {
	snapshot, err := new(hub.Client).Files(s.Context, repo, revision)
	if err != nil {
		return nil, cmp.Or(context.Cause(s.Context), err)
	}
	files := make(map[string]HubFile, len(snapshot.Files))
	for _, info := range snapshot.Files {
		if files[info.Name], err = hubFile(info); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func hubFile(info hub.FileInfo) (f HubFile, err error) {
	f.git = info.SHA256 == ""
	sum := info.SHA256
	if f.git {
		sum = info.BlobID
	}
	if f.sum, err = hex.DecodeString(sum); err != nil || len(f.sum) != sha256.Size && !(f.git && len(f.sum) == sha1.Size) {
		return f, fmt.Errorf("the hub gives %.200q the sum %.200q", info.Name, sum)
	}
	return f, nil
}
