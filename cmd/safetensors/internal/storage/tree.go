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

// A Tree has all files of a model, even those that contain no tensors.
type Tree struct {
	Name   string   // name of the file or the folder
	Single bool     // whether the model is one file, Files[0]
	Files  []File   // sorted by name
	Links  []string // links that were not followed, or lead nowhere

	// Outside has the names of those files that are outside of the model, because a link that was
	// followed leads there.
	Outside []string

	fsys   *FS
	follow bool
	skip   func(name string) bool
	linked int // number of folders to which links lead
}

// maxLinked limits linked: thirty folders with two links each to the next folder have 2³⁰ paths.
const maxLinked = 10_000

// Tree lists the files of a model: of a file or a folder on this machine, in a bucket or in the
// cache of the hub, or of a file on a web server. Files and folders for which skip returns true are
// left out, the folders with everything in them. Symbolic links are followed if follow is true, and
// listed in Links otherwise. Pipes and other special files are an error.
func (s *Session) Tree(name string, follow bool, skip func(name string) bool) (*Tree, error) {
	t := &Tree{follow: follow, skip: skip}
	if err := t.open(s, name); err != nil {
		return nil, s.Named(name, err)
	}
	slices.SortFunc(t.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return t, nil
}

func (t *Tree) open(s *Session, name string) error {
	name, err := localfile.Path(name)
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, "hf://") {
		if name, _, _, err = HubCache(name); err != nil {
			return err
		}
		t.follow = true // the cache consists of links
	}
	switch {
	case name == "-":
		return errors.New("expected a file, a folder, a bucket or the URL of a file")
	case IsURL(name):
		t.Name = path.Base(strings.TrimRight(name, "/"))
		if t.fsys, name, err = s.Away(name); err != nil {
			return err
		}
		return t.list(name)
	}
	full, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	t.Name, t.fsys = filepath.Base(full), s.Local(name)
	if err = t.list("."); err == nil && t.follow && !t.Single {
		err = t.findOutside(full)
	}
	return err
}

// list lists a folder, or a file in it.
func (t *Tree) list(name string) error {
	info, err := t.fsys.Stat(name)
	if errors.Is(err, errors.ErrUnsupported) { // a web server describes only open files
		info, err = fs.Stat(struct{ fs.FS }{t.fsys.files}, t.fsys.in(name))
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return t.folder(name, []fs.FileInfo{info})
	}
	t.Single = true
	if err = t.add(name, info); err == nil {
		t.Files[0].Name = t.Name
	}
	return err
}

// folder lists a folder. above are the folders that contain it, to detect links that lead back.
func (t *Tree) folder(dir string, above []fs.FileInfo) error {
	entries, err := t.fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := context.Cause(t.fsys.session.Context); err != nil {
			return err
		}
		name := path.Join(dir, e.Name())
		if n := e.Name(); n == "" || n == "." || n == ".." || strings.Contains(n, "/") {
			return fmt.Errorf("%s/%s is not the name of a file", term.Name(dir), term.Name(e.Name())) // keys of objects can have such names
		}
		link := e.Type()&fs.ModeSymlink != 0
		if t.skip(name) {
			continue
		}
		info, err := t.fsys.Stat(name)
		switch {
		case link && (!t.follow || errors.Is(err, fs.ErrNotExist)):
			t.Links = append(t.Links, name)
			continue
		case err != nil:
		case !info.IsDir():
			err = t.add(name, info)
		case link && slices.ContainsFunc(above, func(up fs.FileInfo) bool { return os.SameFile(up, info) }):
			err = fmt.Errorf("link %s leads in a circle", term.Name(name))
		case link && t.linked == maxLinked:
			err = fmt.Errorf("links lead to more than %d folders", maxLinked)
		default:
			if link {
				t.linked++
			}
			err = t.folder(name, append(slices.Clip(above), info))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) add(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", term.Name(name))
	}
	f := t.fsys.describe(name, info)
	f.Open = func() (io.ReadCloser, error) { return t.fsys.reopen(name, "") } // opens the file even if it has changed
	t.Files = append(t.Files, f)
	return nil
}

// findOutside finds the files that a link places outside of the folder root.
func (t *Tree) findOutside(root string) error {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	for _, f := range t.Files {
		real, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(f.Name)))
		if err != nil {
			return err
		}
		if below, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(below) {
			t.Outside = append(t.Outside, f.Name)
		}
	}
	return nil
}
