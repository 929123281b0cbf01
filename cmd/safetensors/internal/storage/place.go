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
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/remote"
)

// IsURL reports whether a name is a URL, and not a file of this machine.
func IsURL(name string) bool { return strings.Contains(name, "://") }

// Away returns the folder to which a URL leads, or the folder of a file and the name of the file in
// it; the name is "." for a folder. The URL may be hf://OWNER/NAME[@REVISION][/FILE], that of an
// object or a folder in a bucket, or that of a file on a web server.
func (s *Session) Away(name string) (*FS, string, error) {
	f, file, err := s.away(name)
	if err != nil {
		return nil, "", err
	}
	f.url = strings.TrimRight(Bare(name), "/")
	if file != "." {
		f.url = f.url[:strings.LastIndexByte(f.url, '/')]
	}
	return f, file, nil
}

// away is like Away, but does not set the url of the folder.
func (s *Session) away(name string) (*FS, string, error) {
	switch {
	case strings.HasPrefix(name, "hf://"):
		return s.onHub(name)
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
		files, err := new(remote.Client).FS(s.Context, name)
		if err != nil {
			return nil, "", err
		}
		u, err := url.Parse(name)
		if err != nil || u.Path == "" || strings.HasSuffix(u.Path, "/") || path.Base(u.Path) == "." {
			return nil, "", errors.New("is not the URL of a file: name the file, or the index of its shards, such as model.safetensors.index.json")
		}
		return &FS{session: s, files: s.through(files), away: true}, path.Base(u.Path), nil
	case bucket.IsURL(name):
		return s.inBucket(name)
	}
	return nil, "", errors.New("only URLs of http, https, hf, s3, gs, azblob and file are read" + suggestScheme(name))
}

// suggestScheme returns a question with the scheme that is written here instead of that of another program's URL, or "".
func suggestScheme(name string) string {
	switch scheme, rest, _ := strings.Cut(name, "://"); scheme {
	case "gcs":
		return ", did you mean gs://" + rest + "?"
	case "s3a", "s3n":
		return ", did you mean s3://" + rest + "?"
	case "az", "abfs", "abfss", "wasb", "wasbs":
		return ", did you mean azblob://CONTAINER/KEY?"
	}
	return ""
}

func (s *Session) onHub(name string) (*FS, string, error) {
	repo, revision, file, err := SplitHub(name)
	if err != nil {
		return nil, "", err
	}
	files, err := s.repository(repo, revision)
	if errors.Is(err, errors.ErrUnsupported) {
		err = notCached(repo, revision, file, err)
	}
	if err != nil {
		return nil, "", err
	}
	files = s.through(files)
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

// repository returns the files of a repository. All calls of a run with the same name and revision see the same
// commit.
func (s *Session) repository(repo, revision string) (fs.FS, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := repo + "@" + revision
	if known := s.repositories[name]; known != nil {
		return known, nil
	}
	files, err := new(hub.Client).FS(s.Context, repo, revision)
	if err != nil {
		return nil, err
	}
	if s.repositories == nil {
		s.repositories = make(map[string]fs.FS)
	}
	s.repositories[name] = files
	return files, nil
}

// notCached returns the error for a file of a repository, or for its model if file is "", that is
// not in the cache while HF_HUB_OFFLINE forbids requests. err is the error of listing the files.
func notCached(repo, revision, file string, err error) error {
	dir, absent := hub.CacheDir(repo, revision)
	if absent != nil {
		return err // err names the cache
	}
	what := "a checkpoint, such as model.safetensors,"
	if file != "" {
		what = term.Name(file)
	}
	return &offlineError{fmt.Sprintf("HF_HUB_OFFLINE is set: %s is not in the cache %s", what, dir), err}
}

// An offlineError gives an error another text.
type offlineError struct {
	text string
	err  error
}

func (e *offlineError) Error() string { return e.text }
func (e *offlineError) Unwrap() error { return e.err }

// inBucket returns the folder that contains a key, and the name of the file in it. If the key is a
// folder itself, it returns that folder and ".". A key that ends in .safetensors or .json is taken
// for a file without a request, so that opening the file takes only one.
func (s *Session) inBucket(name string) (*FS, string, error) {
	b, key, err := bucket.Open(s.Context, name)
	if err != nil {
		return nil, "", err
	}
	files := s.through(b)
	dir, base := path.Split(key)
	var folder fs.FileInfo
	if ending := path.Ext(key); ending != ".safetensors" && ending != ".json" {
		info, err := fs.Stat(files, path.Clean(key))
		if err != nil {
			return nil, "", err
		}
		if info.IsDir() {
			dir, base, folder = key, ".", info
		}
	}
	return &FS{session: s, files: files, dir: dir, listed: true, folder: folder}, base, nil
}

// SplitHub splits hf://OWNER/NAME[@REVISION][/FILE]. A slash in a revision is written as %2F,
// except in refs/pr/N and refs/convert/NAME.
func SplitHub(name string) (repo, revision, file string, err error) {
	parts := strings.SplitN(strings.TrimPrefix(name, "hf://"), "/", 3)
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		err := fmt.Errorf("%s is not hf://OWNER/NAME[@REVISION][/FILE]", Shown(name))
		if len(parts) == 1 && parts[0] != "" {
			err = fmt.Errorf("%w: expected OWNER and NAME, as in hf://openai-community/gpt2", err)
		}
		return "", "", "", &Error{"", err, err}
	}
	if len(parts) == 3 {
		file = strings.Trim(parts[2], "/")
	}
	if file != "" && !fs.ValidPath(file) { // such a name would lead out of the repository
		return "", "", "", fmt.Errorf("%q does not name a file in a repository", file)
	}
	base, revision, at := strings.Cut(parts[1], "@")
	if at && revision == "" { // as when a variable of a shell is not set
		return "", "", "", errors.New("the revision after @ is empty")
	}
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

// HubCache returns the directory in which the Python tools have cached a repository
// hf://OWNER/NAME[@REVISION], the name of the repository, and the commit.
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
