package dest

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// cachedRepository matches the names of the directories in which huggingface_hub caches repositories.
var cachedRepository = lazyregexp.New(`^(?:models|datasets|spaces)--`)

// A CachedError is the error for a destination in the cache of a hub.
type CachedError struct{ error }

// checkCache returns a CachedError if a file or a folder, which need not exist, is in the cache of a hub. Programs rely
// on the content of a snapshot in this cache, whose name is that of a commit.
func checkCache(name string) error {
	if !isCached(name) {
		return nil
	}
	return CachedError{fmt.Errorf("%s is in the cache of a hub, which must not change: write to another folder", term.Name(name))}
}

// isCached reports whether a file or a folder, which need not exist, is in the cache of a hub: in a directory such as
// models--OWNER--NAME with the directories blobs and snapshots.
func isCached(name string) bool {
	dir, err := filepath.Abs(name)
	if err != nil {
		return false // the working directory is gone, so that a write to the name fails
	}
	real, err := filepath.EvalSymlinks(dir)
	for err != nil && dir != filepath.Dir(dir) { // the name does not exist: only folders above it can be of a cache
		dir = filepath.Dir(dir)
		real, err = filepath.EvalSymlinks(dir)
	}
	for dir = real; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if cachedRepository().MatchString(filepath.Base(dir)) && isDir(filepath.Join(dir, "blobs")) && isDir(filepath.Join(dir, "snapshots")) {
			return true
		}
	}
	return false
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
