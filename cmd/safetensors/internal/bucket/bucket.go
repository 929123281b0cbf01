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
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A store is the client of a kind of object store. Its errors tell the status of the
// answer. It may be used concurrently.
type store interface {
	// list returns objects whose keys, which are their names here, start with prefix, up to the
	// next slash: what ends in one has nothing else. The list starts after marker, which is ""
	// or the marker that a list before returned, nil if it was the last. All that was written
	// before is in them.
	list(ctx context.Context, prefix, marker string) (page []objectInfo, next *string, err error)

	// head describes an object.
	head(ctx context.Context, key string) (objectInfo, error)

	// get returns n bytes of an object, from off on, or fewer at its end, as the Content-Range of
	// the answer says, and the tag that it has now.
	get(ctx context.Context, key string, off, n int64) (body io.ReadCloser, sent, tag string, err error)

	// put writes an object at once. If it is to be a new one, and there is an object of that
	// key, the status of the error is 412.
	put(ctx context.Context, key string, body []byte, isNew bool) error

	// begin begins to write an object in parts.
	begin(ctx context.Context, key string) (upload, error)

	delete(ctx context.Context, key string) error
}

// An upload is an object that appears when it is complete.
type upload interface {
	// part uploads part i, from 0 on. It may be called concurrently.
	part(ctx context.Context, i int, body []byte) error
	complete(ctx context.Context, parts int) error

	// abort removes the parts. Its error has the status 404 when there is no upload.
	abort(ctx context.Context) error
}

// stores open the bucket of a URL, by its scheme. The query has the options.
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

// A Bucket is a file system, whose files are io.ReaderAts and safetensors.RangeReaders for
// concurrent use. It holds the context of all requests, because io.ReaderAt takes none.
type Bucket struct {
	ctx   context.Context
	store store
	url   string // without the key and the query, which may hold secrets
}

// Open returns the bucket of a URL and the key in it, without a slash at its end. The
// query of the URL has options: s3://models/llama?region=eu-central-1. ctx governs the
// bucket as long as it is used.
func Open(ctx context.Context, rawURL string) (b *Bucket, key string, err error) {
	parsed, named := rawURL, arn.FindString(rawURL)
	if named != "" { // which no URL has as its host
		parsed = "s3://arn" + strings.TrimPrefix(rawURL, named)
	}
	u, err := url.Parse(parsed)
	if err != nil {
		bare, _, _ := strings.Cut(rawURL, "?") // the rest, which the error of Parse has, may be secret
		return nil, "", fmt.Errorf("%q is not a URL", bare)
	}
	shown := cmp.Or(named, u.Scheme+"://"+u.Host)
	if u.Host == "" {
		return nil, "", fmt.Errorf("%s names no bucket", shown)
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

// An arn names an access point, or a bucket of an outpost, as in s3://arn:aws:s3:…/mine/key.
var arn = regexp.MustCompile(`^s3://arn:[^?]*?[:/](accesspoint|bucket)[:/][^:/?]+`)

// options returns the values of the options in a query, which has no others.
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

// An Error says which object, or folder of objects, it is about.
type Error struct {
	URL string // without the query
	Err error
}

func (e *Error) Error() string { return term.Name(e.URL) + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// meanings are what the statuses of answers mean.
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
	if errors.As(err, new(*Error)) { // of another object, which is copied to this one
		return &Error{b.URL(key), err}
	}
	if meaning := meanings[status(err)]; meaning != nil {
		err = fmt.Errorf("%w: %w", meaning, err)
	}
	return &Error{b.URL(key), err}
}

const (
	mostPages  = 10_000  // of a list
	mostListed = 1 << 20 // objects of a folder, far more than a model has
)

var (
	errNoList = errors.New("the answer is no list")
	errNoSize = errors.New("the answer does not tell the size")
)

// list returns the pages of a list. Each has to go on at another place than the one before.
func (b *Bucket) list(prefix string) (entries []objectInfo, err error) {
	marker := ""
	for pages := 1; ; pages++ {
		page, next, err := b.store.list(b.ctx, prefix, marker)
		entries = append(entries, page...)
		switch {
		case err != nil, next == nil:
			return entries, err
		case *next == "" || *next == marker:
			return nil, errors.New("the list ends early: the answer does not say where it goes on")
		case pages >= mostPages || len(entries) >= mostListed:
			return nil, fmt.Errorf("the list does not end: %d objects so far", len(entries))
		}
		marker = *next
	}
}

// value returns what p points to, or zero.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Head returns an error if there is no object of that key.
func (b *Bucket) Head(key string) error {
	_, err := b.store.head(b.ctx, key)
	return b.fail(key, err)
}

// cleaning returns the bucket for cleaning up, which works after its context is cancelled, too.
func (b *Bucket) cleaning() (*Bucket, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), time.Minute)
	return &Bucket{ctx, b.store, b.url}, cancel
}

// Delete removes an object. It cleans up: it works after the context is cancelled, too.
// An object that is not there is no error.
func (b *Bucket) Delete(key string) error {
	b, cancel := b.cleaning()
	defer cancel()
	err := b.store.delete(b.ctx, key)
	if err == nil || status(err) == http.StatusNotFound {
		return nil
	}
	return &Error{b.URL(key), err}
}

// Create writes a small object unless there is one of that key: then the error wraps
// fs.ErrExist. Of several that create it at once, one succeeds. A store that does not know
// how says errors.ErrUnsupported, or replaces the object.
func (b *Bucket) Create(key string, data []byte) error {
	return b.fail(key, b.store.put(b.ctx, key, data, true))
}

// Start returns the first n bytes of an object, or all if it is shorter. It works after the
// context is cancelled, too: what is there decides what is to be cleaned up.
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
