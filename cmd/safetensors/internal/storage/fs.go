package storage

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// An FS is a folder, or what is next to a file on a web server. Its files are metered and noted.
type FS struct {
	session *Session
	files   fs.FS
	dir     string // the folder, in files
	away    bool   // files of other formats are downloaded before they are read
	listed  bool   // it can be
	Commit  *Pin   // of a repository, which it stands for; else nil

	mu     sync.Mutex
	opened []File
}

// Local returns a folder of this machine.
func (s *Session) Local(dir string) *FS {
	return &FS{session: s, files: osfile.FS{}, dir: dir, listed: true}
}

// Opened returns the files that were opened, by name.
func (f *FS) Opened() []File {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.SortFunc(f.opened, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return f.opened
}

func (f *FS) local() bool { _, is := f.files.(osfile.FS); return is }

// in returns the name that a file has in files.
func (f *FS) in(name string) string {
	if f.local() {
		return filepath.Join(f.dir, filepath.FromSlash(name))
	}
	return path.Join(f.dir, name)
}

func (f *FS) Stat(name string) (fs.FileInfo, error)      { return fs.Stat(f.files, f.in(name)) }
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.files, f.in(name)) }

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
	if other := format.ByName(name); f.away && other != nil && other.Open != nil {
		temp, size, err := f.session.Spool(metered{r, f.session})
		file.Close()
		if err != nil {
			return nil, err
		}
		noted.Size, noted.Open = size, f.session.OfReader(name, temp, size).Open
		r = temp
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.opened, func(have File) bool { return have.Name == name }) { // it may be opened several times
		f.opened = append(f.opened, noted)
	}
	return f.session.Meter(r), nil
}
