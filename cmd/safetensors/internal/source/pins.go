package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A Pin is a file as it was when a source was opened. Another machine that opens the
// source has the same pins, unless the source has changed.
type Pin struct {
	Name string `json:"name"` // in the folder of the source; of the second of several sources, 2:NAME
	Size int64  `json:"size"`
	Tag  string `json:"tag"` // an ETag, a time, a sum, a commit
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
func (o *Opener) pinURL(c *Checkpoint, rawURL string, f *safetensors.File, seen *answers) error {
	base, err := url.Parse(rawURL)
	if err != nil {
		return errors.New("is not a URL")
	}
	c.pins = []Pin{seen.pin(path.Base(base.Path), base)}
	if strings.HasSuffix(base.Path, ".index.json") || IsIndex(base.Path) {
		for name := range f.Headers() {
			c.pins = append(c.pins, seen.pin(name, base.ResolveReference(&url.URL{Path: name})))
		}
	}
	return nil
}

// An answers transport keeps the header of the last good answer for each URL. It describes
// the very file that was opened, and package remote has already retried what failed.
type answers struct {
	http.RoundTripper
	mu   sync.Mutex
	last map[string]http.Header // by the URL before redirects
}

func (a *answers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		return resp, err
	}
	for req.Response != nil { // which has redirected to it
		req = req.Response.Request
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[req.URL.String()] = resp.Header
	return resp, nil
}

func (a *answers) pin(name string, u *url.URL) Pin {
	asked := *u
	asked.Host = strings.TrimSuffix(u.Host, ":") // as package http does to an empty port
	a.mu.Lock()
	defer a.mu.Unlock()
	header := a.last[asked.String()]
	size := header.Get("Content-Length")
	if whole := header.Get("Content-Range"); whole != "" {
		size = whole[strings.LastIndexByte(whole, '/')+1:]
	}
	p := Pin{Name: name, Size: -1, Tag: cmp.Or(header.Get("ETag"), header.Get("Last-Modified"))}
	if n, err := strconv.ParseInt(size, 10, 64); err == nil {
		p.Size = n
	}
	return p
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
