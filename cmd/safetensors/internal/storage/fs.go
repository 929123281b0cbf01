package storage

import (
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// An FS is a folder of any kind, or the files next to a file on a web server. It counts the bytes
// that are read from its files, and records which files were opened.
type FS struct {
	session *Session
	files   fs.FS
	dir     string // name of the folder in the file system files
	url     string // URL of the folder, without user, query and the slash at its end; "" for a folder of this machine
	local   bool   // whether dir is a path of this machine, in the form of the system
	away    bool   // whether files of other formats are downloaded before they are read
	listed  bool   // whether the folder can be listed
	Commit  *Pin   // the commit, if the folder is in a repository; otherwise nil

	folder fs.FileInfo // description of a folder in a bucket, which costs requests; nil for other folders

	mu      sync.Mutex
	opened  []File
	entries []fs.DirEntry // result of the last ReadDir of the folder itself; nil before that
	noted   sync.Once     // for the note that a server does not support range requests
}

// Local returns a folder of this machine.
func (s *Session) Local(dir string) *FS {
	return &FS{session: s, files: s.through(osfile.FS{}), dir: dir, local: true, listed: true}
}

func (s *Session) through(files fs.FS) fs.FS {
	if s.Through == nil {
		return files
	}
	return s.Through(files)
}

// WithLinks returns a folder of this machine as a file system with a method ReadLink, for verdicts
// on symbolic links. Verbs that only read the tensors follow links wherever they lead.
func (f *FS) WithLinks() fs.FS { return linkedFS{f} }

type linkedFS struct{ *FS }

func (l linkedFS) ReadLink(name string) (string, error) { return os.Readlink(l.in(name)) }

// Opened returns the files that were opened, sorted by name.
func (f *FS) Opened() []File {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.SortFunc(f.opened, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return f.opened
}

// in returns the name of a file in f.files.
func (f *FS) in(name string) string {
	if f.local {
		return filepath.Join(f.dir, filepath.FromSlash(name))
	}
	return path.Join(f.dir, name)
}

// shown returns the name of a file for errors.
func (f *FS) shown(name string) string {
	if f.local {
		return term.Name(f.in(name))
	}
	if !strings.HasPrefix(f.url, "hf://") { // names on the hub stand in a URL as they are
		name = (&url.URL{Path: name}).EscapedPath()
	}
	return term.Name(f.url + "/" + name)
}

func (f *FS) Stat(name string) (fs.FileInfo, error) {
	if name == "." && f.folder != nil {
		return f.folder, nil
	}
	return fs.Stat(f.files, f.in(name))
}

func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.files, f.in(name))
	if name == "." && err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.entries = slices.Clone(entries) // callers delete entries
	}
	return entries, err
}

// Entries returns the files and folders in the folder as ReadDir has last returned them, or calls ReadDir if nobody
// has. It is for notes about a folder that was opened, because each ReadDir of a bucket is a request.
func (f *FS) Entries() ([]fs.DirEntry, error) {
	f.mu.Lock()
	entries := f.entries
	f.mu.Unlock()
	if entries != nil {
		return entries, nil
	}
	return f.ReadDir(".")
}

func (f *FS) Open(name string) (fs.File, error) {
	file, err := f.files.Open(f.in(name))
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	r, ok := file.(readable)
	if !ok || !info.Mode().IsRegular() {
		return file, nil
	}
	noted := f.describe(name, info)
	if f.downloads(name, r) {
		temp, size, err := f.session.Spool(metered{r, f.session, f.shown(name)}, info.Size())
		file.Close()
		if err != nil {
			return nil, err
		}
		noted.Size, noted.Open = size, f.session.OfReader(name, temp, size).Open
		r = temp
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.opened, func(have File) bool { return have.Name == name }) { // a file may be opened several times
		f.opened = append(f.opened, noted)
	}
	return f.session.Meter(r, f.shown(name)), nil
}

// downloads reports whether a file is downloaded before it is read: a file of another format than safetensors, which is not
// read in the order of its bytes, and a file on a web server without range requests, which is noted.
func (f *FS) downloads(name string, r io.ReaderAt) bool {
	if !f.away {
		return false
	}
	if other := format.ByName(name); other != nil && other.Open != nil {
		return true
	}
	if f.Commit != nil || path.Ext(name) == ".json" { // a hub supports them, and an index is read from start to end
		return false
	}
	if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, errors.ErrUnsupported) { // the first byte is in memory
		return false
	}
	f.noted.Do(func() {
		if f.session.Downloading != nil {
			f.session.Downloading("the server does not support range requests: the whole file is downloaded")
		}
	})
	return true
}
