package storage

import (
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
)

// An FS is a folder, or what is next to a file on a web server. Its files are metered and noted.
type FS struct {
	session *Session
	files   fs.FS
	away    bool // files of other formats are downloaded before they are read

	mu     sync.Mutex
	opened []File
}

// Local returns a folder of this machine.
func (s *Session) Local(dir string) *FS { return &FS{session: s, files: localFS(dir)} }

// Opened returns the files that were opened, by name.
func (f *FS) Opened() []File {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.SortFunc(f.opened, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return f.opened
}

func (f *FS) Stat(name string) (fs.FileInfo, error)      { return fs.Stat(f.files, name) }
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.files, name) }

func (f *FS) Open(name string) (fs.File, error) {
	file, err := f.files.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	r, ok := file.(io.ReaderAt)
	if !ok || !info.Mode().IsRegular() {
		return file, nil
	}
	noted := f.describe(name, info)
	if other := format.ByName(name); f.away && other != nil && other.Open != nil {
		temp, size, err := f.session.Spool(stream{file, f.session})
		file.Close()
		if err != nil {
			return nil, err
		}
		noted.Size, noted.Open = size, f.session.OfReader(name, temp, size).Open
		r, file = temp, temp
	}
	f.note(noted)
	if m, ok := f.session.Meter(r).(meteredRanges); ok {
		return struct {
			fs.File
			meteredRanges
		}{file, m}, nil
	}
	return struct {
		fs.File
		metered
	}{file, metered{r, f.session}}, nil
}

// note notes a file, which may be opened several times, concurrently.
func (f *FS) note(file File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.opened, func(have File) bool { return have.Name == file.Name }) {
		f.opened = append(f.opened, file)
	}
}

// A localFS is a folder of the operating system. Unlike os.DirFS, it opens regular files
// only.
type localFS string

func (f localFS) path(name string) string { return filepath.Join(string(f), filepath.FromSlash(name)) }

func (f localFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(f.path(name)) }
func (f localFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(f.path(name)) }

func (f localFS) Open(name string) (fs.File, error) {
	file, _, err := localfile.Open(f.path(name))
	if err != nil {
		return nil, err
	}
	return file, nil
}

// A subFS is a folder in a file system. Unlike that of fs.Sub, its Stat is that of the whole.
type subFS struct {
	fs.FS
	dir string
}

func (s subFS) Open(name string) (fs.File, error)     { return s.FS.Open(path.Join(s.dir, name)) }
func (s subFS) Stat(name string) (fs.FileInfo, error) { return fs.Stat(s.FS, path.Join(s.dir, name)) }
func (s subFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(s.FS, path.Join(s.dir, name))
}
