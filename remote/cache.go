package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CachedRepo returns the folder to which the Python package huggingface_hub has
// downloaded a repository, "owner/name", at a branch, tag or commit; an empty
// revision is "main". It sends no requests, so safetensors.Open of the folder
// works offline. The folder holds the files that were downloaded, which need not
// be all of the repository. A branch stands for the commit it had at the last
// download.
//
// The cache is the folder HF_HUB_CACHE, which defaults to hub in HF_HOME, which
// defaults to ~/.cache/huggingface. If the repository is not in it at that
// revision, the error wraps fs.ErrNotExist.
func CachedRepo(repo, revision string) (dir string, err error) {
	dir, err = cachedRepo(repo, revision)
	return dir, prefixed(err)
}

func cachedRepo(repo, revision string) (string, error) {
	revision, err := checkRepo(repo, revision)
	if err != nil {
		return "", err
	}
	dir, err := snapshot("models--"+strings.ReplaceAll(repo, "/", "--"), revision)
	if err != nil {
		return "", fmt.Errorf("%q at revision %q in the cache: %w", repo, revision, err)
	}
	return dir, nil
}

// snapshot finds the snapshot of a revision in a folder of the cache.
func snapshot(folder, revision string) (string, error) {
	commit := revision
	if !commitName.MatchString(revision) {
		ref, err := cachePath(folder + "/refs/" + revision)
		if err != nil {
			return "", err
		}
		text, err := os.ReadFile(ref)
		if err != nil {
			return "", err
		}
		commit = strings.TrimSpace(string(text))
	}
	dir, err := cachePath(folder + "/snapshots/" + commit)
	if err != nil {
		return "", err
	}
	_, err = os.Stat(dir)
	return dir, err
}

// cachePath returns the path of a slash-separated name, which must not leave the
// cache.
func cachePath(name string) (string, error) {
	local, err := filepath.Localize(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", quote(name), err)
	}
	return filepath.Join(hubCache(), local), nil
}
