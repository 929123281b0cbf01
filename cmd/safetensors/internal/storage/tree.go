package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A Tree is all files of a model, whether they hold tensors or not.
type Tree struct {
	Name   string   // of the file or the folder
	Single bool     // the model is a file, Files[0]
	Files  []File   // sorted by name
	Links  []string // that were not followed, or lead nowhere

	// Outside are links that were followed out of the model.
	Outside []string

	linked int // folders that links lead to
}

// maxLinked limits these: thirty folders with two links each to the next one have 2³⁰ paths.
const maxLinked = 10_000

// Tree lists the files of a model: a file or a folder, of this machine, of a bucket or
// of the cache of the hub, or a file on a web server. Files for which skip is true are
// left out, folders with all that is in them. Symbolic links are followed, or listed as
// Links; pipes and the like are an error.
func (s *Session) Tree(name string, follow bool, skip func(name string) bool) (*Tree, error) {
	t := new(Tree)
	if err := s.tree(t, name, follow, skip); err != nil {
		return nil, s.Named(name, err)
	}
	slices.SortFunc(t.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return t, nil
}

func (s *Session) tree(t *Tree, name string, follow bool, skip func(string) bool) error {
	name, err := localfile.Path(name)
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, "hf://") {
		if name, _, _, err = HubCache(name); err != nil {
			return err
		}
		follow = true // the cache consists of links
	}
	switch {
	case name == "-":
		return errors.New("expected a file, a folder, a bucket or the URL of a file")
	case IsURL(name):
		place, err := s.Away(name)
		if err != nil {
			return err
		}
		t.Name = path.Base(strings.TrimRight(name, "/"))
		return t.list(place.FS, place.Name, follow, skip)
	}
	full, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	t.Name = filepath.Base(full)
	if err := t.list(s.Local(name), ".", follow, skip); err != nil {
		return err
	}
	if follow {
		return t.findOutside(full)
	}
	return nil
}

// list lists a folder, or a file in it.
func (t *Tree) list(f *FS, name string, follow bool, skip func(string) bool) error {
	info, err := f.Stat(name)
	if errors.Is(err, errors.ErrUnsupported) { // of a web server
		var file fs.File
		if file, err = f.files.Open(f.in(name)); err == nil {
			defer file.Close()
			info, err = file.Stat()
		}
	}
	if err != nil {
		return err
	}
	w := walk{t, f, follow, skip}
	if info.IsDir() {
		return w.folder(name, []fs.FileInfo{info})
	}
	t.Single = true
	if err := w.add(name, info); err != nil {
		return err
	}
	t.Files[0].Name = t.Name
	return nil
}

// A walk goes through the folders of a model.
type walk struct {
	*Tree
	fsys   *FS
	follow bool
	skip   func(string) bool
}

// folder lists a folder. above are the folders that it is in, for links that lead back.
func (w walk) folder(dir string, above []fs.FileInfo) error {
	entries, err := w.fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ctx := w.fsys.session.Context; ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name := path.Join(dir, e.Name())
		if n := e.Name(); n == "" || n == "." || n == ".." || strings.Contains(n, "/") {
			return fmt.Errorf("%s/%s is not the name of a file", term.Name(dir), term.Name(e.Name())) // of an object
		}
		link := e.Type()&fs.ModeSymlink != 0
		switch {
		case w.skip(name):
			continue
		case link && !w.follow:
			w.Links = append(w.Links, name)
			continue
		}
		info, err := w.fsys.Stat(name)
		if link && errors.Is(err, fs.ErrNotExist) {
			w.Links = append(w.Links, name)
			continue
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			if err := w.add(name, info); err != nil {
				return err
			}
			continue
		}
		if link && slices.ContainsFunc(above, func(up fs.FileInfo) bool { return os.SameFile(up, info) }) {
			return fmt.Errorf("link %s leads in a circle", term.Name(name))
		}
		if link {
			if w.linked++; w.linked > maxLinked {
				return fmt.Errorf("links lead to more than %d folders", maxLinked)
			}
		}
		if err := w.folder(name, append(above[:len(above):len(above)], info)); err != nil {
			return err
		}
	}
	return nil
}

func (w walk) add(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", term.Name(name))
	}
	f := w.fsys.describe(name, info)
	f.Open = func() (io.ReadCloser, error) { return w.fsys.reopen(name, "") } // whatever it has become
	w.Files = append(w.Files, f)
	return nil
}

// findOutside finds the files that are not in the folder root.
func (t *Tree) findOutside(root string) error {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	for _, f := range t.Files {
		real, err := filepath.EvalSymlinks(f.Path)
		if err != nil {
			return err
		}
		if real, err = filepath.Abs(real); err != nil {
			return err
		}
		if below, err := filepath.Rel(root, real); err != nil || below != "." && !filepath.IsLocal(below) {
			t.Outside = append(t.Outside, f.Name)
		}
	}
	return nil
}
