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

// Open opens an object, by one request for its first bytes.
func (b *Bucket) Open(key string) (fs.File, error) {
	client := remote.Client{HTTP: &http.Client{Transport: b}}
	objects, _ := client.FS(b.ctx, "http://bucket/") // which is a URL
	file, err := objects.Open(key)
	if err != nil {
		return nil, object{b: b, key: key}.fail(err)
	}
	return object{file.(remoteFile), b, key}, nil
}

// Stat describes an object, or a folder: what has objects below it.
func (b *Bucket) Stat(key string) (fs.FileInfo, error) {
	if key == "." {
		return objectInfo{name: ".", dir: true}, nil
	}
	info, err := b.store.head(b.ctx, key)
	info.name = path.Base(key)
	if err = b.fail(key, err); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	if entries, listErr := b.ReadDir(key); listErr != nil || len(entries) == 0 {
		return nil, err
	}
	return objectInfo{name: path.Base(key), dir: true}, nil
}

// ReadDir lists objects and folders. A folder without objects does not exist. A name that no
// file should have, such as one with a newline, is an error. What was written before is among
// them: the stores have consistent lists, S3 since 2020.
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

// objectInfo describes an object or a folder. The tag changes with the content of an object, and the
// version is another when it was replaced.
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
func (i objectInfo) Sys() any           { return http.Header{"Etag": {i.tag}} } // as of an open one
func (i objectInfo) Version() string    { return i.tag + " " + i.modified.UTC().Format(time.RFC3339Nano) }
func (i objectInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o777
	}
	return 0o666
}

// An object is open. Package remote reads it, over RoundTrip.
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

// fail returns an error of package remote as one of the bucket.
func (o object) fail(err error) error {
	if err == io.EOF {
		return err
	}
	var refused *storeError
	if errors.As(err, &refused) {
		return o.b.fail(o.key, refused)
	}
	for at := (*fs.PathError)(nil); errors.As(err, &at); { // of which it is the URL
		err = at.Err
	}
	return o.b.fail(o.key, err)
}

// RoundTrip answers a request for a range of an object as a server of HTTP does, so that package
// remote can read it. That ends a request that brings nothing for 30 seconds, which is not long
// enough for the pauses between the tries of this one.
func (b *Bucket) RoundTrip(r *http.Request) (*http.Response, error) {
	var first, last int64
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last) // as it sends it
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

// A tried error is one for which the client of the store has tried often enough, or need not try
// again: package remote does not either.
type tried struct{ error }

func (e tried) Unwrap() error { return e.error }
func (e tried) Tried() bool   { return true }
