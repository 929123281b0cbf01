package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// FS returns a file system that contains the file at an http or https URL and the files next to
// it, for functions that take an [fs.FS], such as OpenFS of package torch. Names are relative to
// the URL, as links in a page are. The name that equals the last element of the URL's path stands
// for the URL itself, with its query. HTTP cannot list files, so Stat and ReadDir fail with
// [errors.ErrUnsupported]. ctx also governs the files, as long as they are used.
//
// Open sends one request, for the first 100,008 bytes. A file is an [io.ReaderAt] and a
// [safetensors.RangeReader] for concurrent use, with the guarantees of [Client.Open]. Read and
// Close must not be called concurrently. Read gets the rest of the file with one more request; if
// that breaks off, another request continues there.
//
// If the server does not support range requests, Read works unless the answer breaks off, ReadAt
// of a file of more than 100,008 bytes fails with [errors.ErrUnsupported], and Size is -1 if the
// server does not send it. Sys returns the [http.Header] of the first answer. Errors are those of
// Client.Open.
func (c *Client) FS(ctx context.Context, rawURL string) (fs.FS, error) {
	s, u, err := c.session(ctx, rawURL)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return fileSystem{s, u}, nil
}

// A fileSystem contains the file at a URL and the files next to it.
type fileSystem struct {
	*session
	url *url.URL
}

func (f fileSystem) Stat(name string) (fs.FileInfo, error) { return nil, noList("stat", name) }

func (f fileSystem) ReadDir(name string) ([]fs.DirEntry, error) { return nil, noList("readdir", name) }

// noList returns the error for operations that need a list of files.
func noList(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("HTTP has no lists of files: %w", errors.ErrUnsupported)}
}

func (f fileSystem) Open(name string) (fs.File, error) {
	switch {
	case !fs.ValidPath(name):
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	case name == ".":
		return nil, noList("open", name)
	}
	u := f.url
	if path.Base(u.Path) != name || u.Path[len(u.Path)-1] == '/' {
		u = u.ResolveReference(&url.URL{Path: "./" + name}) // "./", because the first element may have a colon
	}
	o, err := newObject(f.session, u)
	if o.noRanges = errors.Is(err, errNoRanges); err != nil && !o.noRanges {
		return nil, openError(u, err)
	}
	o.merges = true
	return &file{object: o, name: path.Base(name)}, nil
}

// A file is an object with the methods of an fs.File.
type file struct {
	*object
	name string

	pos    int64     // offset in the file that Read continues at
	x      *exchange // the exchange that Read reads from, or nil
	body   io.Reader // the body of that exchange's answer, limited to the bytes that the answer announced
	from   int64     // offset in the file at which that body begins
	failed int       // number of answers in a row that broke off early
}

func (f *file) Stat() (fs.FileInfo, error) { return f, nil }
func (f *file) Name() string               { return f.name }
func (f *file) Size() int64                { return f.size }
func (f *file) Mode() fs.FileMode          { return 0o444 }
func (f *file) IsDir() bool                { return false }
func (f *file) Sys() any                   { return f.answer }

func (f *file) ModTime() time.Time {
	t, _ := http.ParseTime(f.answer.Get("Last-Modified"))
	return t
}

// Read implements io.Reader.
func (f *file) Read(p []byte) (n int, err error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case f.pos == f.size:
		return 0, io.EOF
	}
	if head := f.head.Load(); head != nil && f.pos < int64(len(*head)) {
		n = copy(p, (*head)[f.pos:])
		f.pos += int64(n)
		return n, nil
	}
	at, end := place{url: f.url}, false
	err = f.retry(&f.failed, func() (int64, error) {
		if f.x == nil {
			if at, err = f.send(); err != nil {
				f.Close()
				return 0, err
			}
		}
		n, err = f.body.Read(p)
		f.pos += int64(n)
		switch {
		case n > 0 || err == nil: // an error that comes with bytes is ignored: the body returns it again at the next Read
			return 0, nil
		case err == io.EOF && (f.pos == f.size || f.size < 0):
			end = true
			return 0, nil
		case err == io.EOF:
			err = &temporary{error: io.ErrUnexpectedEOF}
		}
		err = f.x.cause(err)
		if t := new(temporary); f.noRanges && errors.As(err, &t) {
			return 0, fmt.Errorf("%w after %s", t.error, shapetext.Count(f.pos, "byte")) // another answer would start at the beginning of the file
		}
		f.Close()
		return f.pos - f.from, fmt.Errorf("%w after %s", err, shapetext.Count(f.pos, "byte"))
	})
	if end {
		return 0, io.EOF
	}
	return n, getError(at.url, err)
}

// send requests the rest of the file.
func (f *file) send() (place, error) {
	f.x, f.from = f.exchange(), f.pos
	resp, at, want, err := f.ask(f.x, f.pos, f.size-1)
	if err != nil {
		return at, f.x.cause(err)
	}
	r, err := f.check(resp, at, want, f.pos, f.size-1)
	f.body = io.LimitReader(f.x, r.last+1-r.first)
	return at, err
}

// Close ends the request of Read, if there is one.
func (f *file) Close() error {
	if f.x != nil {
		f.x.Close()
		f.x = nil
	}
	return nil
}
