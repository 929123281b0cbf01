// Package bucket reads and writes the objects of object stores, by URL: s3://, gs://
// and azblob://.
package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// A store is a client of one kind of object store. Its errors contain the status of the answer: see
// status. It may be used concurrently.
type store interface {
	// list returns one page of the objects whose keys start with prefix. The names of these objects
	// are their keys. A key with a slash after the prefix is cut off after that slash; its
	// objectInfo has only a name. The page starts after marker, which is "" for the first page, and
	// otherwise the result next of the previous page. next is nil for the last page. The list is
	// consistent: it contains all objects that were written before.
	list(ctx context.Context, prefix, marker string) (page []objectInfo, next *string, err error)

	// head describes an object.
	head(ctx context.Context, key string) (objectInfo, error)

	// get returns n bytes of an object, from off on, or fewer at its end. sent is the Content-Range
	// of the answer, and tag the current tag of the object.
	get(ctx context.Context, key string, off, n int64) (body io.ReadCloser, sent, tag string, err error)

	// put writes an object in one request. If isNew is true and there is an object with this key,
	// the status of the error is 412.
	put(ctx context.Context, key string, body []byte, isNew bool) error

	// begin begins to write an object in parts.
	begin(ctx context.Context, key string) (upload, error)

	delete(ctx context.Context, key string) error
}

// An upload writes one object, which appears when the upload is complete.
type upload interface {
	// part uploads part i, counted from 0. It may be called concurrently.
	part(ctx context.Context, i int, body []byte) error
	complete(ctx context.Context, parts int) error

	// abort removes the parts. If the store does not know the upload, the status of the error is
	// 404.
	abort(ctx context.Context) error
}

// stores maps the scheme of a URL to a func that opens the bucket of the URL. The query contains
// options.
var stores = map[string]func(ctx context.Context, name string, query url.Values) (store, error){
	"s3":     openS3,
	"gs":     openGoogle,
	"azblob": openAzure,
}

// IsURL reports whether a name is the URL of an object or of a folder of objects.
func IsURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && stores[scheme] != nil
}

// A Bucket is a file system. Its files implement io.ReaderAt and safetensors.RangeReader, and may
// be read concurrently. It holds the context of all requests, because the methods of io.ReaderAt
// have none.
type Bucket struct {
	ctx   context.Context
	store store
	url   string // URL of the bucket, without the query, which may contain secrets
}

// Open returns the bucket of a URL and the key in it, without a slash at its end. The query of the
// URL contains options: s3://models/llama?region=eu-central-1. ctx governs all requests of the
// bucket.
func Open(ctx context.Context, rawURL string) (b *Bucket, key string, err error) {
	parsed, named := rawURL, arn().FindString(rawURL)
	if named != "" { // url.Parse would not accept it as a host
		parsed = "s3://arn" + strings.TrimPrefix(rawURL, named)
	}
	u, err := url.Parse(parsed)
	if err != nil {
		bare, _, _ := strings.Cut(rawURL, "?") // the error of Parse contains the rest, which may be secret
		return nil, "", fmt.Errorf("%q is not a URL", bare)
	}
	shown := cmp.Or(named, u.Scheme+"://"+u.Host)
	if u.Host == "" {
		return nil, "", errors.New("it names no bucket")
	}
	opened, err := stores[u.Scheme](ctx, strings.TrimPrefix(shown, u.Scheme+"://"), u.Query())
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", shown, err)
	}
	key = strings.Trim(u.Path, "/")
	if strings.ContainsFunc(key, unicode.IsControl) {
		return nil, "", fmt.Errorf("the key %s has control characters", term.Name(key))
	}
	return &Bucket{ctx, opened, shown}, key, nil
}

// arn matches the URL of an access point, or of a bucket of an outpost, without the key:
// s3://arn:aws:s3:…/mine/key.
var arn = lazyregexp.New(`^s3://arn:[^?]*?[:/](accesspoint|bucket)[:/][^:/?]+`)

// options returns the values of the options in a query. An unknown option is an error.
func options(query url.Values, known ...string) (map[string]string, error) {
	values := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("the query has %q, expected %s", name, strings.Join(known, ", "))
		}
		values[name] = query.Get(name)
	}
	return values, nil
}

// URL returns the URL of a key, for messages.
func (b *Bucket) URL(key string) string { return b.url + "/" + key }

// An Error is an error with the URL of the object, or of the folder of objects, that it is about.
type Error struct {
	URL string // URL of the object or the folder, without the query
	Err error
}

func (e *Error) Error() string { return term.Name(e.URL) + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// meanings maps statuses of answers to errors that callers recognize.
var meanings = map[int]error{
	http.StatusNotFound: fs.ErrNotExist, http.StatusUnauthorized: fs.ErrPermission, http.StatusForbidden: fs.ErrPermission,
	http.StatusPreconditionFailed: fs.ErrExist, http.StatusNotImplemented: errors.ErrUnsupported,
}

func (b *Bucket) fail(key string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(b.ctx); cause != nil {
		return cause
	}
	if errors.As(err, new(*Error)) { // the error is about another object, which is being copied to this one
		return &Error{b.URL(key), err}
	}
	err = explain(b.store, err)
	if meaning := meanings[status(err)]; meaning != nil {
		err = fmt.Errorf("%w: %w", meaning, err)
	}
	return &Error{b.URL(key), err}
}

const (
	mostPages  = 10_000  // largest number of pages of a list
	mostListed = 1 << 20 // largest number of objects in a folder, far more than a model has
)

var (
	errNoList = errors.New("the answer is not a list")
	errNoSize = errors.New("the answer does not contain the size")
)

// list returns the entries of all pages of a list. It is an error if two successive pages have the
// same marker for the next page, because the list might never end.
func (b *Bucket) list(prefix string) (entries []objectInfo, err error) {
	marker := ""
	for pages := 1; ; pages++ {
		page, next, err := b.store.list(b.ctx, prefix, marker)
		entries = append(entries, page...)
		switch {
		case err != nil, next == nil:
			return entries, err
		case *next == "" || *next == marker:
			return nil, errors.New("the list ends early: the answer does not specify where it continues")
		case pages >= mostPages || len(entries) >= mostListed:
			return nil, fmt.Errorf("the list does not end: %d objects so far", len(entries))
		}
		marker = *next
	}
}

// value returns the value that p points to, or the zero value if p is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Head returns an error if there is no object with this key.
func (b *Bucket) Head(key string) error {
	_, err := b.store.head(b.ctx, key)
	return b.fail(key, err)
}

// cleaning returns a Bucket for cleaning up. Its requests may take a minute, even if the context of
// b is already canceled.
func (b *Bucket) cleaning() (*Bucket, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), time.Minute)
	return &Bucket{ctx, b.store, b.url}, cancel
}

// Delete removes an object, even after the context is canceled. If the object does not exist, that
// is not an error.
func (b *Bucket) Delete(key string) error {
	b, cancel := b.cleaning()
	defer cancel()
	err := b.store.delete(b.ctx, key)
	if err == nil || status(err) == http.StatusNotFound {
		return nil
	}
	return &Error{b.URL(key), err}
}

// Create writes a small object. If there is already an object with this key, the error wraps
// fs.ErrExist. If several processes create it at the same time, one of them succeeds. A store that
// lacks this operation returns an error that wraps errors.ErrUnsupported, or replaces the object.
func (b *Bucket) Create(key string, data []byte) error {
	return b.fail(key, b.store.put(b.ctx, key, data, true))
}

// Start returns the first n bytes of an object, or the whole object if it is shorter. It works even
// after the context is canceled, because the caller may need it to decide what to clean up.
func (b *Bucket) Start(key string, n int64) ([]byte, error) {
	if b.ctx.Err() != nil {
		var cancel context.CancelFunc
		b, cancel = b.cleaning()
		defer cancel()
	}
	f, err := b.Open(key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}
