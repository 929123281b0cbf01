package checkpoint

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/gosafetensors/safetensors/internal/osfile"
)

// The types in this file present a part of a file system as a file system of its own.

// An onlyFS is a directory that lists only some of its files.
type onlyFS struct {
	fs.FS
	names []string
}

func (o onlyFS) Stat(name string) (fs.FileInfo, error) { return osfile.StatFS(o.FS, name) }

func (o onlyFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.FS, name)
	if name != "." {
		return entries, err
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !slices.Contains(o.names, e.Name()) }), err
}

// A subFS presents a directory of a file system as a file system of its own.
type subFS struct {
	fsys fs.FS
	dir  string
}

func (s subFS) Open(name string) (fs.File, error) { return s.fsys.Open(path.Join(s.dir, name)) }
func (s subFS) Stat(name string) (fs.FileInfo, error) {
	return osfile.StatFS(s.fsys, path.Join(s.dir, name))
}
func (s subFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(s.fsys, path.Join(s.dir, name))
}

// A linkedSubFS is a subFS of a file system with symbolic links.
type linkedSubFS struct {
	subFS
	reader linkReader
}

func (s linkedSubFS) ReadLink(name string) (string, error) {
	return s.reader.ReadLink(path.Join(s.dir, name))
}

// An osDir presents a directory of the operating system as a file system that opens only regular files.
type osDir string

func (d osDir) in(name string) (string, error) {
	local, err := filepath.Localize(name)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return filepath.Join(string(d), local), nil
}

func (d osDir) Open(name string) (fs.File, error) {
	at, err := d.in(name)
	if err != nil {
		return nil, err
	}
	return osfile.FS{}.Open(at)
}

func (d osDir) Stat(name string) (fs.FileInfo, error) {
	at, err := d.in(name)
	if err != nil {
		return nil, err
	}
	return os.Stat(at)
}

func (d osDir) ReadLink(name string) (string, error) {
	at, err := d.in(name)
	if err != nil {
		return "", err
	}
	return os.Readlink(at)
}

func (d osDir) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := d.in(name)
	if err != nil {
		return nil, err
	}
	return os.ReadDir(at)
}
