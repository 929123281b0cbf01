package bucket

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/remote"
)

// Open opens an object. It sends one request, for the first bytes.
func (b *Bucket) Open(key string) (fs.File, error) {
	client := remote.Client{HTTP: &http.Client{Transport: b}}
	objects, _ := client.FS(b.ctx, "http://bucket/") // never fails for this URL
	file, err := objects.Open(key)
	if err != nil {
		return nil, object{b: b, key: key}.fail(err)
	}
	return object{file.(remoteFile), b, key}, nil
}

// Stat describes an object or a folder. A folder exists if there are objects below it.
func (b *Bucket) Stat(key string) (fs.FileInfo, error) {
	if key == "." {
		return objectInfo{name: ".", dir: true}, nil
	}
	info, err := b.store.head(b.ctx, key)
	info.name = path.Base(key)
	if err = b.fail(key, err); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	entries, listErr := b.ReadDir(key)
	if listErr != nil && !errors.Is(listErr, fs.ErrNotExist) {
		return nil, listErr // whether there is a folder is unknown
	}
	if len(entries) == 0 {
		return nil, err
	}
	return objectInfo{name: path.Base(key), dir: true}, nil
}

// ReadDir lists objects and folders. A folder without objects does not exist. A key that cannot be
// the name of a file, such as one with a newline, is an error. The list contains all objects that
// were written before: the stores have consistent lists, S3 since 2020.
func (b *Bucket) ReadDir(folder string) (entries []fs.DirEntry, err error) {
	prefix := ""
	if folder != "." {
		prefix = folder + "/"
	}
	listed, err := b.list(prefix)
	for _, e := range listed {
		key := e.name
		name, ok := strings.CutPrefix(key, prefix)
		if !ok || name == "" {
			continue
		}
		e.name, e.dir = strings.CutSuffix(name, "/")
		if e.name == "." || !fs.ValidPath(e.name) || strings.ContainsFunc(e.name, unicode.IsControl) {
			err = fmt.Errorf("the key %s is not the name of a file", term.Name(key))
		}
		entries = append(entries, fs.FileInfoToDirEntry(e))
	}
	if err != nil {
		return nil, b.fail(strings.TrimSuffix(prefix, "/"), err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// An objectInfo describes an object or a folder. The tag changes with the content of an object.
// Version changes when the object is replaced.
type objectInfo struct {
	name     string
	size     int64
	modified time.Time
	tag      string
	dir      bool
}

func (i objectInfo) Name() string       { return i.name }
func (i objectInfo) Size() int64        { return i.size }
func (i objectInfo) ModTime() time.Time { return i.modified }
func (i objectInfo) IsDir() bool        { return i.dir }
func (i objectInfo) Sys() any           { return http.Header{"Etag": {i.tag}} } // the same header as that of an open object
func (i objectInfo) Version() string    { return i.tag + " " + i.modified.UTC().Format(time.RFC3339Nano) }
func (i objectInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o777
	}
	return 0o666
}

// An object is an open object. Package remote reads it through RoundTrip.
type object struct {
	remoteFile
	b   *Bucket
	key string
}

type remoteFile interface {
	fs.File
	io.ReaderAt
	safetensors.RangeReader
}

func (o object) Read(p []byte) (int, error) {
	n, err := o.remoteFile.Read(p)
	return n, o.fail(err)
}

func (o object) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.remoteFile.ReadAt(p, off)
	return n, o.fail(err)
}

func (o object) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	return o.fail(o.remoteFile.ReadRanges(ranges))
}

// fail returns an error of package remote as an error of the bucket.
func (o object) fail(err error) error {
	if err == io.EOF {
		return err
	}
	var refused *storeError
	if errors.As(err, &refused) {
		return o.b.fail(o.key, refused)
	}
	for at := (*fs.PathError)(nil); errors.As(err, &at); { // the path of such an error is the URL of the request
		err = at.Err
	}
	return o.b.fail(o.key, err)
}

// RoundTrip answers a request for a range of an object, as an HTTP server would, so that package
// remote can read the object. Package remote cancels a request that receives nothing for 30
// seconds, which is too short for the pauses between the tries of a store's client.
func (b *Bucket) RoundTrip(r *http.Request) (*http.Response, error) {
	var first, last int64
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last) // package remote sends the header in this form
	key := strings.TrimPrefix(r.URL.Path, "/")
	resp := &http.Response{StatusCode: http.StatusPartialContent, ContentLength: -1, Request: r}
	body, sent, tag, err := b.store.get(b.ctx, key, first, last+1-first)
	if status(err) == http.StatusRequestedRangeNotSatisfiable {
		empty, headErr := b.store.head(b.ctx, key)
		if headErr == nil && empty.size == 0 {
			body, tag, err = http.NoBody, empty.tag, nil
			resp.StatusCode = http.StatusOK
		}
	}
	if err != nil {
		return nil, tried{err}
	}
	resp.Body = body
	resp.Header = http.Header{"Content-Range": {sent}, "Etag": {tag}}
	return resp, nil
}

// A tried is an error after which another try is useless, because the client of the store has tried
// often enough. Its method Tried tells package remote not to try again.
type tried struct{ error }

func (e tried) Unwrap() error { return e.error }
func (e tried) Tried() bool   { return true }
