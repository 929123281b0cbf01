package main

import (
	"errors"
	"expvar"
	"io/fs"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
)

// A server serves the models in a directory. Requests read the map of models, which never changes:
// reload stores a new map.
type server struct {
	dir    string
	models atomic.Pointer[map[string]*model]
	failed map[string]string // the last error of each name that could not be opened; only reload uses it
	stats  *expvar.Map
}

// A model is an open model. Its version was taken before its files were opened: if they are
// replaced while they are opened, the next reload finds a different version.
type model struct {
	*safetensors.File
	version string
}

func newServer(dir string) *server {
	s := &server{dir: dir, failed: make(map[string]string), stats: new(expvar.Map).Init()}
	s.models.Store(new(map[string]*model))
	return s
}

// reload opens new and replaced models, and closes models that were removed. If a model cannot be
// opened, for example because somebody is still copying it, the old one stays in use.
//
// A replaced model is closed while requests may still read it. Close waits for the reads in
// progress; the next read fails with fs.ErrClosed, which the handler that serve returns handles.
// reload must not be called concurrently.
func (s *server) reload() {
	before, after := *s.models.Load(), make(map[string]*model)
	root := os.DirFS(s.dir)
	names, err := list(root)
	if err != nil { // perhaps a network disk that will come back
		s.fail("", err)
		return
	}
	for _, name := range names {
		m, err := s.open(root, name, before[name])
		s.fail(name, err)
		if m != nil {
			after[name] = m
		}
	}
	s.models.Store(&after)
	for name, m := range before {
		if after[name] != m {
			m.Close()
		}
	}
}

// open returns the model with this name. That is old, which may be nil, unless its files were
// replaced. If they cannot be opened, it returns old and the error.
func (s *server) open(root fs.FS, name string, old *model) (*model, error) {
	version, err := checkpoint.Version(root, name)
	if err != nil || old != nil && old.version == version {
		return old, err
	}
	f, err := checkpoint.Open(filepath.Join(s.dir, filepath.FromSlash(name)))
	if err != nil {
		return old, err
	}
	s.stats.Add("opened", 1)
	return &model{f, version}, nil
}

// fail logs the error of opening a model, but only if it differs from the error at the last poll.
func (s *server) fail(name string, err error) {
	if err == nil {
		delete(s.failed, name)
		return
	}
	s.stats.Add("open_errors", 1)
	if s.failed[name] != err.Error() {
		s.failed[name] = err.Error()
		log.Printf("%q: %v", name, err)
	}
}

func (s *server) close() {
	for _, m := range *s.models.Swap(new(map[string]*model)) {
		m.Close()
	}
}

// list returns the names of the models in a file system: its .safetensors files, and the models
// that checkpoint.Models finds in its directories. It leaves out hidden names, because a download
// may still be writing there.
func list(root fs.FS) (names []string, err error) {
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		info, err := fs.Stat(root, name) // Stat follows a link
		switch {
		case err != nil || strings.HasPrefix(name, "."):
		case info.Mode().IsRegular() && path.Ext(name) == ".safetensors":
			names = append(names, name)
		case info.IsDir():
			models, err := checkpoint.Models(root, name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				models = []string{"."} // reload reports why it cannot be opened
			}
			for _, m := range models {
				names = append(names, path.Join(name, m))
			}
		}
	}
	return names, nil
}

// names returns the names of the models that are open.
func (s *server) names() []string { return slices.Sorted(maps.Keys(*s.models.Load())) }
