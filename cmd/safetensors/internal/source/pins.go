package source

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"golang.org/x/sync/errgroup"
)

// A Pin is a file as it was when a source was opened. Another machine that opens the
// source has the same pins, unless the source has changed.
type Pin struct {
	Name string // in the folder of the source; of the second of several sources, 2:NAME
	Size int64
	Tag  string // an ETag, a time, a sum, a commit
}

// tagOf returns what tells that a file has changed: the ETag of an object, the time of
// a file.
func tagOf(info fs.FileInfo) string {
	if tagged, ok := info.(interface{ Tag() string }); ok {
		return tagged.Tag()
	}
	return info.ModTime().UTC().Format(time.RFC3339Nano)
}

// Pins returns the files of a source, and those next to it that were read or listed so
// far. It is an error if the source can change without notice.
func (c *Checkpoint) Pins() ([]Pin, error) {
	pins := c.pins
	switch {
	case c.parts != nil:
		return pinsOf(c.parts)
	case pins == nil && c.Files == nil:
		return nil, fmt.Errorf("%s: nothing tells whether it changes", Shown(c.Name))
	case pins == nil:
		for _, f := range c.Files {
			pins = append(pins, Pin{f.Name, f.Size, f.Tag})
		}
		pins = append(pins, c.Folder.pinned()...)
	}
	for _, p := range pins {
		if p.Tag == "" {
			return nil, fmt.Errorf("%s: nothing tells whether %s changes: it has no ETag and no time", Shown(c.Name), term.Name(p.Name))
		}
	}
	return pins, nil
}

// pinsOf returns the pins of several sources.
func pinsOf(sources []*Checkpoint) (all []Pin, err error) {
	for i, c := range sources {
		pins, err := c.Pins()
		if err != nil {
			return nil, err
		}
		for _, p := range pins {
			if i > 0 {
				p.Name = fmt.Sprintf("%d:%s", i+1, p.Name)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// pinURL pins what was opened at a URL: a file, or an index and its shards.
func (o *Opener) pinURL(c *Checkpoint, rawURL string, f *safetensors.File) error {
	base, err := url.Parse(rawURL)
	if err != nil {
		return errors.New("is not a URL")
	}
	names := []string{path.Base(base.Path)}
	if strings.HasSuffix(base.Path, ".index.json") {
		for name := range f.Headers() {
			names = append(names, name)
		}
	}
	c.pins = make([]Pin, len(names))
	client := o.client()
	var group errgroup.Group
	group.SetLimit(20)
	for i, name := range names {
		u := base
		if i > 0 {
			u = base.ResolveReference(&url.URL{Path: name})
		}
		group.Go(func() error {
			resp, err := o.request(client, http.MethodHead, u.String())
			if err != nil {
				return err
			}
			resp.Body.Close()
			tag := resp.Header.Get("ETag")
			if tag == "" {
				tag = resp.Header.Get("Last-Modified")
			}
			c.pins[i] = Pin{name, resp.ContentLength, tag}
			return nil
		})
	}
	return group.Wait()
}

// Unchanged returns an error if a local file is no longer what it was when the source
// was opened. Objects of a bucket need no look: each answer says what it is of.
func (c *Checkpoint) Unchanged() error {
	for _, part := range c.parts {
		if err := part.Unchanged(); err != nil {
			return err
		}
	}
	for _, f := range c.Files {
		if f.Path == "" {
			continue
		}
		info, err := os.Stat(f.Path)
		if err != nil {
			return err
		}
		if info.Size() != f.Size || tagOf(info) != f.Tag {
			return fmt.Errorf("%s: %s has changed since it was opened", Shown(c.Name), f.Name)
		}
	}
	return nil
}

// pinned returns what was read and listed, by name. Of a file that was read its sum
// counts.
func (f *Folder) pinned() []Pin {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	byName := make(map[string]Pin)
	for _, p := range f.listed {
		byName[p.Name] = p
	}
	for name, c := range f.files {
		byName[name] = c.pin
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b Pin) int { return strings.Compare(a.Name, b.Name) })
}
