package hub

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// CacheDir finds a repository that the Python tools have downloaded, with the zero
// Client.
func CacheDir(repo, revision string) (string, error) {
	return new(Client).CacheDir(repo, revision)
}

// CacheDir returns the directory to which the Python package huggingface_hub has
// downloaded a repository, "owner/name", at a branch, tag or commit; an empty revision
// is "main". It sends nothing, so [safetensors.Open] of the directory works offline. The
// directory holds the downloaded files, perhaps not all of the repository. A branch is
// at the commit of the last download.
//
// The cache is the directory HF_HUB_CACHE, by default hub in HF_HOME, which is by
// default ~/.cache/huggingface. Like that of Python, it is one for all endpoints. If it
// does not hold the repository at that revision, the error wraps [fs.ErrNotExist].
func (c *Client) CacheDir(repo, revision string) (string, error) {
	return prefix.Added(cacheDir(repo, revision))
}

func cacheDir(repo, revision string) (string, error) {
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

// snapshot finds the snapshot of a revision in a directory of the cache.
func snapshot(folder, revision string) (string, error) {
	commit := revision
	if !commitName.MatchString(revision) {
		ref, err := cachePath(folder + "/refs/" + revision)
		if err != nil {
			return "", err
		}
		const most = 1 << 10 // a commit has 40 digits
		text, err := osfile.ReadRegular(ref, most)
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
		return "", fmt.Errorf("%q: %w", name, err)
	}
	return filepath.Join(hubCache(), local), nil
}

// checkRepo checks that a path made of a repository and a revision stays where
// it should. It returns the revision, "main" if that is empty.
func checkRepo(repo, revision string) (string, error) {
	revision = cmp.Or(revision, "main")
	for _, name := range []string{repo, revision} {
		if !fs.ValidPath(name) || name == "." {
			return "", fmt.Errorf("%q at revision %q does not name a repository", repo, revision)
		}
	}
	return revision, nil
}
