// Package bucket reads and writes the objects of object stores, by URL: s3://,
// gs://, azblob:// and mem://.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // the schemes of URLs
	_ "gocloud.dev/blob/gcsblob"
	_ "gocloud.dev/blob/memblob"
	_ "gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"
)

var schemes = []string{"s3", "gs", "azblob", "mem"}

// IsURL reports whether a name is the URL of an object or of a folder of objects.
func IsURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && slices.Contains(schemes, scheme)
}

// A Bucket holds the context of all requests, because io.ReaderAt takes none.
type Bucket struct {
	ctx  context.Context
	blob *blob.Bucket
	url  string // without the key and the query, which may hold secrets
}

// Open returns the bucket of a URL and the key in it, without a slash at its end.
// The query of the URL is for the driver: s3://models/llama?region=eu-central-1.
// ctx governs the bucket as long as it is used.
func Open(ctx context.Context, rawURL string) (b *Bucket, key string, err error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("%q is not a URL", rawURL) // the error of Parse would show a secret too
	}
	key = strings.Trim(u.Path, "/")
	query := u.Query()
	switch u.Scheme {
	case "s3":
		if os.Getenv("AWS_ENDPOINT_URL_S3")+os.Getenv("AWS_ENDPOINT_URL") != "" && !query.Has("use_path_style") {
			query.Set("use_path_style", "true") // such stores have no host for each bucket
		}
		u.Path = ""
	default:
		u.Path = ""
	}
	u.RawQuery = query.Encode()
	opened, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, "", errors.New(strings.ReplaceAll(err.Error(), "?"+u.RawQuery, ""))
	}
	return &Bucket{ctx, opened, redact(u)}, key, nil
}

// redact returns a URL without its query and user.
func redact(u *url.URL) string {
	c := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return strings.TrimRight(c.String(), "/")
}

// Close ends the use of the bucket.
func (b *Bucket) Close() error { return b.blob.Close() }

// URL returns the URL of a key, for messages.
func (b *Bucket) URL(key string) string { return b.url + "/" + key }

func (b *Bucket) fail(key string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(b.ctx); cause != nil {
		return cause
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case gcerrors.PermissionDenied:
		err = fmt.Errorf("%w: %w", fs.ErrPermission, err)
	}
	return fmt.Errorf("%s: %w", b.URL(key), err)
}

// List returns the names of the objects in a folder, and those of its folders with
// a slash at their end. A folder without objects does not exist.
func (b *Bucket) List(folder string) (names []string, err error) {
	prefix := folder + "/"
	if folder == "" {
		prefix = ""
	}
	objects := b.blob.List(&blob.ListOptions{Prefix: prefix, Delimiter: "/"})
	for {
		o, err := objects.Next(b.ctx)
		if err == io.EOF {
			return names, nil
		}
		if err != nil {
			return nil, b.fail(folder, err)
		}
		if name := strings.TrimPrefix(o.Key, prefix); name != "" {
			names = append(names, name)
		}
	}
}

// Exists reports whether there is an object of that key.
func (b *Bucket) Exists(key string) (bool, error) {
	ok, err := b.blob.Exists(b.ctx, key)
	return ok, b.fail(key, err)
}

// grace is how long cleaning up may take after the context is cancelled.
const grace = time.Minute

// Delete removes an object. It works after the context is cancelled, too: it
// cleans up.
func (b *Bucket) Delete(key string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), grace)
	defer cancel()
	return b.fail(key, b.blob.Delete(ctx, key))
}

// Write uploads the size bytes that write writes, part by part while it writes.
// The object appears when the upload is complete. After an error, and when the
// context is cancelled, there is no object or the previous one, and no part of an
// upload.
func (b *Bucket) Write(key string, size int64, write func(io.Writer) error) error {
	r, w := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.CloseWithError(write(cancellable{b.ctx, w}))
	}()
	// The drivers commit what they have when the body of an upload ends with an
	// error, unless their context is cancelled; that of S3 does not, and needs its
	// context to remove the parts.
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.ctx))
	defer cancel()
	defer context.AfterFunc(b.ctx, func() { time.AfterFunc(grace, cancel) })()
	abort := cancel
	if client := (*s3.Client)(nil); b.blob.As(&client) {
		abort = func() {}
	}
	body := &aborting{r: r, abort: abort}
	const parts = 9000 // S3 accepts 10,000
	err := b.blob.Upload(ctx, key, body, &blob.WriterOptions{
		ContentType: "application/octet-stream",
		BufferSize:  int(max(8<<20, size/parts)),
	})
	r.CloseWithError(err) // an error of the upload ends write
	<-written
	if body.err != nil {
		err = body.err
	}
	return b.fail(key, err)
}

// cancellable is a writer that ends with its context.
type cancellable struct {
	ctx context.Context
	w   io.Writer
}

func (c cancellable) Write(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.w.Write(p)
}

// aborting calls abort before it returns an error.
type aborting struct {
	r     io.Reader
	abort func()
	err   error
}

func (a *aborting) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if err != nil && err != io.EOF {
		a.err = err
		a.abort()
	}
	return n, err
}
