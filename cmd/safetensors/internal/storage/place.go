package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/remote"
)

// IsURL reports whether a name is not one of a file of this machine.
func IsURL(name string) bool { return strings.Contains(name, "://") }

// Away returns the folder that a URL leads to, or the one of a file and its name there, "." if there
// is none: hf://OWNER/NAME[@REVISION][/FILE], that of an object or a folder in a bucket, or that of a
// file on a web server.
func (s *Session) Away(name string) (*FS, string, error) {
	switch {
	case strings.HasPrefix(name, "hf://"):
		return s.onHub(name)
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
		files, err := new(remote.Client).FS(s.Context, name)
		if err != nil {
			return nil, "", err
		}
		u, err := url.Parse(name)
		if err != nil || path.Base(u.Path) == "." || path.Base(u.Path) == "/" {
			return nil, "", errors.New("is not the URL of a file")
		}
		return &FS{session: s, files: files, away: true}, path.Base(u.Path), nil
	case bucket.IsURL(name):
		return s.inBucket(name)
	}
	return nil, "", errors.New("no URL of a kind that is known: http, https, hf, s3, gs, azblob, file")
}

func (s *Session) onHub(name string) (*FS, string, error) {
	repo, revision, file, err := SplitHub(name)
	if err != nil {
		return nil, "", err
	}
	files, err := new(hub.Client).FS(s.Context, repo, revision)
	if err != nil {
		return nil, "", err
	}
	root, err := fs.Stat(files, ".")
	if err != nil {
		return nil, "", err
	}
	commit := &Pin{Name: path.Join(repo, file), Tag: root.Sys().(*hub.Snapshot).Commit}
	info, err := fs.Stat(files, path.Clean(file))
	if err != nil {
		return nil, "", err
	}
	dir, base := file, "."
	if !info.IsDir() {
		dir, base = path.Split(file)
	}
	return &FS{session: s, files: files, dir: dir, away: true, listed: true, Commit: commit}, base, nil
}

// inBucket returns the place of a key. Its ending says what it is, so that opening it is one request.
func (s *Session) inBucket(name string) (*FS, string, error) {
	b, key, err := bucket.Open(s.Context, name)
	if err != nil {
		return nil, "", err
	}
	dir, base := path.Split(key)
	if ending := path.Ext(key); ending != ".safetensors" && ending != ".json" {
		info, err := fs.Stat(b, path.Clean(key))
		if err != nil {
			return nil, "", err
		}
		if info.IsDir() {
			dir, base = key, "."
		}
	}
	return &FS{session: s, files: b, dir: dir, listed: true}, base, nil
}

// SplitHub takes hf://OWNER/NAME[@REVISION][/FILE] apart. A slash in a revision is
// written as %2F, but for refs/pr/N and refs/convert/NAME.
func SplitHub(name string) (repo, revision, file string, err error) {
	parts := strings.SplitN(strings.TrimPrefix(name, "hf://"), "/", 3)
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		err := errors.New("is not hf://OWNER/NAME[@REVISION][/FILE]")
		return "", "", "", &Error{Shown(name), err, err}
	}
	if len(parts) == 3 {
		file = strings.Trim(parts[2], "/")
	}
	if file != "" && !fs.ValidPath(file) { // which would lead out of the repository
		return "", "", "", fmt.Errorf("%q does not name a file in a repository", file)
	}
	base, revision, _ := strings.Cut(parts[1], "@")
	if revision == "refs" {
		ref := strings.SplitN(file, "/", 3)
		if len(ref) < 2 || ref[0] != "pr" && ref[0] != "convert" {
			return "", "", "", fmt.Errorf("%q: a revision is a branch, a tag, a commit, refs/pr/N or refs/convert/NAME", name)
		}
		revision, file = "refs/"+ref[0]+"/"+ref[1], strings.Join(ref[2:], "/")
	}
	revision = strings.NewReplacer("%2F", "/", "%2f", "/").Replace(revision)
	return parts[0] + "/" + base, revision, file, nil
}

// HubCache returns where the Python tools have a repository, hf://OWNER/NAME[@REVISION],
// and which commit that is.
func HubCache(name string) (dir, repo, commit string, err error) {
	repo, revision, file, err := SplitHub(name)
	if err == nil && file != "" {
		err = fmt.Errorf("%q: expected a whole repository, hf://OWNER/NAME[@REVISION]", name)
	}
	if err == nil {
		dir, err = hub.CacheDir(repo, revision)
	}
	return dir, repo, filepath.Base(dir), err
}
