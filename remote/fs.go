package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"net/http"
	"net/url"
	"path"
	"sync/atomic"
	"time"

	"github.com/gosafetensors/safetensors/internal/prefix"
)

// FS returns the file at an http or https URL and those next to it as a file system, for
// functions that take one, such as OpenFS of package torch. Names are relative to the URL, as
// links in a page are; the last element of its path is the URL itself, with its query. HTTP has
// no lists: Stat and ReadDir fail with [errors.ErrUnsupported]. ctx governs the files, too.
//
// Open sends one request, for the first 100,008 bytes. A file is an [io.ReaderAt] and a
// [safetensors.RangeReader] for concurrent use, with the guarantees of [Client.Open]. Read and
// Close are not for concurrent use: they read the file with one more request, which another one
// continues where it broke off. That works without range requests too, unless it breaks off;
// ReadAt of a longer file then fails with [errors.ErrUnsupported], and Size is -1 if the server
// does not tell it. Sys is the [http.Header] of the first answer. Errors are those of Client.Open.
func (c *Client) FS(ctx context.Context, rawURL string) (fs.FS, error) {
	s, u, err := c.session(ctx, rawURL)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return fileSystem{s, u}, nil
}

// A fileSystem is the files next to a URL.
type fileSystem struct {
	*session
	url *url.URL
}

func (f fileSystem) Stat(name string) (fs.FileInfo, error) { return nil, noList("stat", name) }

func (f fileSystem) ReadDir(name string) ([]fs.DirEntry, error) { return nil, noList("readdir", name) }

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
		u = u.ResolveReference(&url.URL{Path: "./" + name}) // the first element may have a colon
	}
	o, err := newObject(f.session, u)
	if err != nil && !errors.Is(err, errNoRanges) {
		return nil, openError(u, err)
	}
	opened := &file{object: o, name: path.Base(name), ranges: err == nil}
	if head := o.head; o.size > int64(len(head)) {
		opened.head.Store(&head)
	}
	o.opened()
	return opened, nil
}

// A file is an object as an fs.File.
type file struct {
	*object
	name   string
	ranges bool                   // the server has them
	head   atomic.Pointer[[]byte] // the first bytes, until some behind them are read

	pos    int64 // of Read
	body   io.ReadCloser
	from   int64     // where body begins
	broken int       // bodies in sequence that brought less than leastTry
	x      *exchange // of body
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

// ReadAt implements io.ReaderAt. What reads a header finds it in head.
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	if !f.ranges {
		return 0, openError(f.url, errNoRanges)
	}
	if head := f.head.Load(); head != nil && off >= 0 {
		if off >= int64(len(*head)) {
			f.head.Store(nil)
		} else if n = copy(p, (*head)[off:]); n == len(p) {
			return n, nil
		}
	}
	m, err := f.object.ReadAt(p[n:], off+int64(n))
	return n + m, err
}

// ReadRanges implements safetensors.RangeReader.
func (f *file) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	if !f.ranges {
		return openError(f.url, errNoRanges)
	}
	return f.object.ReadRanges(ranges)
}

// Read implements io.Reader.
func (f *file) Read(p []byte) (n int, err error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case f.pos == f.size:
		return 0, io.EOF
	case f.object.head != nil: // the whole file
		n, err := f.object.ReadAt(p[:min(int64(len(p)), f.size-f.pos)], f.pos)
		f.pos += int64(n)
		return n, err
	}
	at := place{url: f.url}
	err = f.retry(func() (int64, error) {
		if f.body == nil {
			if at, err = f.send(); err != nil {
				return 0, err
			}
		}
		f.x.watch.Reset(f.x.stall)
		n, err = f.body.Read(p)
		f.x.watch.Stop() // a slow reader is no stalled server
		f.pos += int64(n)
		switch {
		case n > 0 || err == nil: // an error comes again
			return int64(n), nil
		case err == io.EOF && (f.pos == f.size || f.size < 0):
			return 0, nil
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		err = f.x.cause(err)
		if t := new(temporary); !f.ranges && errors.As(err, &t) {
			err = t.error // the next answer would begin again
		}
		err = fmt.Errorf("%w after %d bytes", err, f.pos)
		f.stop()
		if f.broken++; f.pos-f.from >= leastTry {
			f.broken = 0
		}
		if !f.ranges || f.broken == maxTries {
			return 0, err
		}
		return 0, &temporary{error: err}
	})
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil && err != io.EOF {
		err = getError(at.url, err)
	}
	return n, err
}

// send requests the rest of the file.
func (f *file) send() (at place, err error) {
	f.x = f.exchange()
	var resp *http.Response
	var r contentRange
	if f.ranges {
		var want place
		resp, at, want, err = f.ask(f.x.ctx, f.pos, f.size-1)
		if err == nil {
			r, err = check(resp, at, want, f.pos, f.size-1, f.size)
		}
	} else {
		r = contentRange{0, math.MaxInt64 - 1, -1}
		resp, at, err = f.get(f.x.ctx, place{url: f.url, trusted: true}, http.Header{"Accept-Encoding": {"identity"}})
		if err == nil {
			err = f.checkWhole(resp, at)
		}
	}
	if err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		err = f.x.cause(err)
		f.stop()
		return at, err
	}
	f.body, f.from = limited{io.LimitReader(resp.Body, r.last+1-r.first), resp.Body}, f.pos
	return at, nil
}

// limited is the part of a body that was asked for.
type limited struct {
	io.Reader
	io.Closer
}

// checkWhole validates an answer with the whole file of a server without range requests.
func (f *file) checkWhole(resp *http.Response, at place) error {
	diff := f.pinned.differs(at)
	if n := resp.ContentLength; diff == "" && n >= 0 && f.size >= 0 && n != f.size {
		diff = fmt.Sprintf("it has %d bytes, had %d", n, f.size)
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		return statusError(resp, http.StatusOK)
	case diff != "":
		return fmt.Errorf("%w: %s", ErrChanged, diff)
	}
	return checkEncoding(resp)
}

// stop ends the request of Read.
func (f *file) stop() {
	if f.body != nil {
		f.body.Close()
		f.body = nil
	}
	if f.x != nil {
		f.x.end()
	}
}

// Close ends the request of Read.
func (f *file) Close() error {
	f.stop()
	return nil
}
