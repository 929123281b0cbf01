package source

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/hub"
)

// isForeign reports whether a file on a server is to be read in another format than
// safetensors, by its name.
func isForeign(name string) bool {
	f := format.ByName(name)
	return IsTorchIndex(name) || f != nil && f.Open != nil
}

// openAway opens a file of another format than safetensors on a server, or an index of such
// files. request makes the request for a file next to it. Each file takes one, and is
// downloaded into a temporary file.
func (o *Opener) openAway(c *Checkpoint, name string, request func(name string) (*http.Request, error)) error {
	fsys := awayFS{o, c, request}
	if IsTorchIndex(name) {
		return o.openIn(c, fsys, name, nil)
	}
	f, err := fsys.open(name)
	if err != nil {
		return err
	}
	file := o.wholeFile(name, f, f.info.size)
	file.Tag = f.info.tag
	c.Files = []File{file}
	return o.openReader(c, o.meter(f), f.info.size, name)
}

// An awayFS has the files of a server.
type awayFS struct {
	o       *Opener
	c       *Checkpoint // which removes the temporary files
	request func(name string) (*http.Request, error)
}

// Stat says of no name that it is a folder.
func (a awayFS) Stat(string) (fs.FileInfo, error) { return nil, errors.ErrUnsupported }

func (a awayFS) Open(name string) (fs.File, error) { return a.open(name) }

func (a awayFS) open(name string) (*awayFile, error) {
	req, err := a.request(name)
	if err != nil {
		return nil, err
	}
	client := a.o.client()
	client.Transport = bucket.RetryTransport{RoundTripper: client.Transport}
	resp, err := send(client, req, http.StatusOK)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	spool, size, err := a.o.spool(a.c, resp.Body)
	if err != nil {
		return nil, err
	}
	info, err := spool.Stat()
	return &awayFile{spool, awayInfo{info, size, cmp.Or(resp.Header.Get("ETag"), resp.Header.Get("Last-Modified"))}}, err
}

// An awayFile is one that was downloaded. The checkpoint closes it.
type awayFile struct {
	*os.File
	info awayInfo
}

func (f *awayFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *awayFile) Close() error               { return nil }

type awayInfo struct {
	fs.FileInfo
	size int64
	tag  string
}

func (i awayInfo) Tag() string { return i.tag }

// besides returns the requests for the files next to a URL.
func (o *Opener) besides(u *url.URL) func(name string) (*http.Request, error) {
	return func(name string) (*http.Request, error) {
		at := *u
		if name != path.Base(u.Path) {
			at = *u.ResolveReference(&url.URL{Path: name})
		}
		return http.NewRequestWithContext(o.Context, http.MethodGet, at.String(), nil)
	}
}

// inRepo returns the requests for the files of a folder in a repository: those that package
// hub sends, which knows the server and the token.
func (o *Opener) inRepo(repo, revision, dir string) func(name string) (*http.Request, error) {
	return func(name string) (*http.Request, error) {
		ctx, cancel := context.WithCancel(o.Context)
		defer cancel()
		first := &firstRequest{cancel: cancel}
		_, err := (&hub.Client{HTTP: &http.Client{Transport: first}}).OpenFile(ctx, repo, revision, path.Join(dir, name))
		if first.req == nil {
			return nil, err
		}
		req := first.req.Clone(o.Context)
		req.Header.Del("Range")
		return req, nil
	}
}

// firstRequest keeps the first request, and sends none.
type firstRequest struct {
	cancel context.CancelFunc // so that there is no second one
	req    *http.Request
}

func (f *firstRequest) RoundTrip(req *http.Request) (*http.Response, error) {
	f.req = req
	f.cancel()
	return nil, context.Canceled
}

// spool copies a stream into a temporary file, which Close of the checkpoint removes.
func (o *Opener) spool(c *Checkpoint, r io.Reader) (*os.File, int64, error) {
	f, err := os.CreateTemp("", "safetensors-*.tmp")
	if err != nil {
		return nil, 0, err
	}
	gone := os.Remove(f.Name()) == nil // where the system can: a command that is killed leaves nothing
	c.onClose(func() error {
		err := f.Close()
		if !gone {
			err = errors.Join(err, os.Remove(f.Name()))
		}
		return err
	})
	size, err := localfile.Await(o.Context, func() (int64, error) { return io.Copy(f, r) })
	return f, size, err
}
