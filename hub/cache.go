package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// CacheDir is like the method CacheDir of the zero [Client].
func CacheDir(repo, revision string) (string, error) {
	return new(Client).CacheDir(repo, revision)
}

// CacheDir returns the directory to which the Python package huggingface_hub has
// downloaded a repository, "owner/name", at a branch, tag or commit; an empty revision
// is "main". It sends nothing, so [safetensors.Open] of the directory works offline. The
// directory contains the files that were downloaded, perhaps not all files of the repository. A
// branch stands for the commit of the last download.
//
// The cache is the directory HF_HUB_CACHE. It defaults to hub in HF_HOME, which defaults
// to ~/.cache/huggingface. As in Python, all endpoints share one cache. If the cache
// does not contain the repository at this revision, the error wraps [fs.ErrNotExist].
func (c *Client) CacheDir(repo, revision string) (string, error) {
	return prefix.Added(cacheDir(repo, revision, ""))
}

// cacheDir returns the directory of a repository in the cache. file is the file that the caller wants to open,
// which the error names, or "".
func cacheDir(repo, revision, file string) (string, error) {
	revision, err := checkRepo(repo, revision)
	if err != nil {
		return "", err
	}
	dir, err := snapshot("models--"+strings.ReplaceAll(repo, "/", "--"), revision)
	if err != nil {
		what := fmt.Sprintf("%q at revision %q", repo, revision)
		if file != "" {
			what = fmt.Sprintf("%q of %s", file, what)
		}
		return "", inCache(what, hubCache(), err)
	}
	return dir, nil
}

// inCache returns the error of looking for a repository, or for a file of one, in a directory of
// the cache. If something is absent, the error omits the failed call, and names what is absent only
// if that is another file, such as a shard.
func inCache(what, dir string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s in the cache: %w", what, err)
	}
	absent := fmt.Errorf("%s is not in the cache %s", what, dir)
	if path, ok := err.(*fs.PathError); ok {
		if _, system := path.Err.(interface{ Temporary() bool }); !system { // system is true for errors of package syscall, whose type differs between systems
			absent = fmt.Errorf("%w: %w", absent, path.Err)
		}
	}
	return prefix.Absent{Err: absent}
}

// snapshot finds the snapshot of a revision in a directory of the cache.
func snapshot(folder, revision string) (string, error) {
	commit := revision
	if !isCommit(revision) {
		ref, err := cachePath(folder + "/refs/" + revision)
		if err != nil {
			return "", err
		}
		const most = 1 << 10 // limit in bytes; the name of a commit has 40 or 64 digits
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

// cachePath returns the path of a slash-separated name in the cache. A name that leads out of the cache is an
// error.
func cachePath(name string) (string, error) {
	local, err := filepath.Localize(name)
	if err != nil {
		return "", fmt.Errorf("%q: %w", name, err)
	}
	return filepath.Join(hubCache(), local), nil
}

// notModels maps the first element of a name that does not mean a model to what the name means.
var notModels = map[string]string{"buckets": "a bucket", "datasets": "a dataset", "spaces": "a space"}

// checkRepo returns an error if repo is not the name of a model, or if repo or revision has an element such as "..",
// which would lead out of the path that is made of them. A URL, and a revision within repo, are refused with advice. It returns the revision, or "main" if it is empty.
func checkRepo(repo, revision string) (string, error) {
	revision = cmp.Or(revision, "main")
	switch address, rest, isURL := strings.Cut(repo, "://"); {
	case isURL:
		if address != "hf" { // otherwise there is no name of a host
			_, rest, _ = strings.Cut(rest, "/")
		}
		return "", fmt.Errorf("%.200q is a URL, not the name of a repository, which has the form \"owner/name\": expected %.200q", repo, rest)
	case strings.Contains(repo, "@"):
		name, after, _ := strings.Cut(repo, "@")
		return "", fmt.Errorf("%.200q is not the name of a repository, which has the form \"owner/name\": the revision %.200q is an argument of its own, after %.200q", repo, after, name)
	}
	for _, name := range []string{repo, revision} {
		if !fs.ValidPath(name) || name == "." {
			return "", fmt.Errorf("%q at revision %q does not name a repository, whose name has the form \"owner/name\"", repo, revision)
		}
	}
	if kind, rest, _ := strings.Cut(repo, "/"); rest != "" && notModels[kind] != "" {
		return "", fmt.Errorf("%q names %s on the hub, not a model", repo, notModels[kind])
	}
	return revision, nil
}
