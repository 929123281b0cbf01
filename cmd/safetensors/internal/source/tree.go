package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
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

	closers []func() error
}

// Close ends the use of the files.
func (t *Tree) Close() error {
	var errs []error
	for _, f := range t.closers {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Tree lists the files of a model: a file or a folder, of this machine, of a bucket or
// of the cache of the hub, or a file on a web server. Files for which skip is true are
// left out, folders with all that is in them. Symbolic links are followed, or listed as
// Links; pipes and the like are an error.
func (o *Opener) Tree(name string, follow bool, skip func(name string) bool) (*Tree, error) {
	t := new(Tree)
	err := o.tree(t, name, follow, skip)
	if err != nil {
		t.Close()
		if cause := context.Cause(o.Context); cause != nil {
			return nil, cause
		}
		return nil, named(name, err)
	}
	slices.SortFunc(t.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return t, nil
}

func (o *Opener) tree(t *Tree, name string, follow bool, skip func(string) bool) error {
	name, err := localfile.Path(name)
	switch {
	case err != nil:
		return err
	case bucket.IsURL(name):
		b, key, err := bucket.Open(o.Context, name)
		if err != nil {
			return err
		}
		return o.treeIn(t, b.FS(key), key, follow, skip)
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
		return o.treeURL(t, name)
	case strings.HasPrefix(name, "hf://"):
		dir, _, _, err := HubCache(name)
		if err != nil {
			return err
		}
		name, follow = dir, true // the cache consists of links
	case strings.Contains(name, "://"), name == "-":
		return errors.New("expected a file, a folder, a bucket or the URL of a file")
	}
	full, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	if err := o.treeIn(t, localFS(name), filepath.ToSlash(full), follow, skip); err != nil {
		return err
	}
	if follow {
		return t.findOutside(full)
	}
	return nil
}

// treeIn lists a file system, which may be one file.
func (o *Opener) treeIn(t *Tree, fsys fs.FS, full string, follow bool, skip func(string) bool) error {
	t.Name = path.Base(full)
	info, err := fs.Stat(fsys, ".")
	if err != nil {
		return err
	}
	w := walk{t, meteredFS{FS: fsys, o: o}, follow, skip}
	if !info.IsDir() {
		t.Single = true
		if err := w.add(".", info); err != nil {
			return err
		}
		t.Files[0].Name = t.Name
		return nil
	}
	return w.folder(".", []fs.FileInfo{info})
}

// A walk goes through the folders of a model.
type walk struct {
	*Tree
	fsys   meteredFS
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
		if w.fsys.o.Context.Err() != nil {
			return context.Cause(w.fsys.o.Context)
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
	f := File{Name: name, Size: info.Size(), Tag: tagOf(info), Open: func() (io.ReadCloser, error) { return w.fsys.reopen(name, "") }}
	if local, ok := w.fsys.FS.(localFS); ok {
		f.Path = local.path(name)
	}
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

// treeURL describes a file on a web server, which is read in one request. One that fails is
// sent again, but not one whose answer breaks off.
func (o *Opener) treeURL(t *Tree, name string) error {
	u, err := url.Parse(name)
	if err != nil || path.Base(u.Path) == "." || path.Base(u.Path) == "/" {
		return errors.New("is not the URL of a file")
	}
	t.Name, t.Single = path.Base(u.Path), true
	client := o.client()
	client.Transport = bucket.RetryTransport{RoundTripper: client.Transport}
	head, err := o.request(client, http.MethodHead, name)
	if err != nil {
		return err
	}
	head.Body.Close()
	t.Files = []File{{Name: t.Name, Size: max(head.ContentLength, 0), Open: func() (io.ReadCloser, error) {
		resp, err := o.request(client, http.MethodGet, name)
		if err != nil {
			return nil, err
		}
		return resp.Body, nil
	}}}
	return nil
}

// request asks for a URL; the answer is 200.
func (o *Opener) request(client *http.Client, method, rawURL string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(o.Context, method, rawURL, nil)
	if err != nil {
		return nil, err
	}
	return send(client, req, http.StatusOK)
}

// send sends a request whose answer has a status.
func send(client *http.Client, req *http.Request, status int) (*http.Response, error) {
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(req)
	if err != nil {
		return nil, errors.Unwrap(err) // without the URL, whose query may be a secret
	}
	switch encoding := resp.Header.Get("Content-Encoding"); {
	case resp.StatusCode == http.StatusNotFound:
		err = fmt.Errorf("%s: %w", resp.Status, fs.ErrNotExist)
	case resp.StatusCode != status:
		err = errors.New(resp.Status)
	case encoding != "" && encoding != "identity":
		err = fmt.Errorf("the answer has the Content-Encoding %.100q, expected the file as it is", encoding)
	}
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}
