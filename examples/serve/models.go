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

// A server serves the models in a directory. Requests read the map of models, which is never
// changed: reload stores another one.
type server struct {
	dir    string
	models atomic.Pointer[map[string]*model]
	failed map[string]string // the last error of each name that could not be opened; of reload only
	stats  *expvar.Map
}

// A model is open. Its version is that of the files before they were opened: if they are
// replaced during that, the next reload finds another version.
type model struct {
	*safetensors.File
	version string
}

func newServer(dir string) *server {
	s := &server{dir: dir, failed: make(map[string]string), stats: new(expvar.Map).Init()}
	s.models.Store(new(map[string]*model))
	return s
}

// reload opens new and replaced models, and closes those that are gone. A model that cannot be
// opened, such as one that somebody is copying, stays what it was before.
//
// A replaced model is closed while requests may still read it. Close waits for the reads that
// run; the next read fails with fs.ErrClosed, which ServeHTTP handles. reload must not be
// called concurrently.
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

// open returns the model of a name: old, which may be nil, unless its files were replaced.
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

// fail logs the error of a name, once and not at every poll.
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

// list returns the names of the models in a file system: its .safetensors files, and what
// checkpoint.Models finds in its directories. Hidden ones are left out: a download may still run.
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
