package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A folder is the objects of a bucket whose keys have a prefix. It holds the
// context of all requests, because io.ReaderAt takes none.
type folder struct {
	ctx            context.Context
	client         *s3.Client
	bucket, prefix string
}

func (d folder) key(name string) *string { return aws.String(path.Join(d.prefix, name)) }

func (d folder) url(name string) string { return "s3://" + path.Join(d.bucket, *d.key(name)) }

// open returns an object for random access. It requests only the size and ETag.
func (d folder) open(name string) (*object, error) {
	head, err := d.client.HeadObject(d.ctx, &s3.HeadObjectInput{Bucket: &d.bucket, Key: d.key(name)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.url(name), err)
	}
	return &object{folder: d, name: name, size: aws.ToInt64(head.ContentLength), etag: aws.ToString(head.ETag)}, nil
}

// read returns a reader of a whole object, in one request.
func (d folder) read(name string) (io.ReadCloser, error) {
	got, err := d.client.GetObject(d.ctx, &s3.GetObjectInput{Bucket: &d.bucket, Key: d.key(name)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.url(name), err)
	}
	return got.Body, nil
}

// create uploads what write writes, while it writes. The object appears when the
// upload is complete; after an error there is no object, or the previous one.
func (d folder) create(name string, write func(io.Writer) error) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(write(w)) }() // an error of write ends the upload
	uploads := transfermanager.New(d.client, func(o *transfermanager.Options) {
		o.FailTimeout = time.Minute // to remove the parts, even when ctx is cancelled
	})
	_, err := uploads.UploadObject(d.ctx, &transfermanager.UploadObjectInput{Bucket: &d.bucket, Key: d.key(name), Body: r})
	r.CloseWithError(err) // an error of the upload ends write
	if err != nil {
		return fmt.Errorf("%s: %w", d.url(name), err)
	}
	return nil
}

// An object is an io.ReaderAt. ReadAt requests a range of bytes; it may be called
// concurrently.
type object struct {
	folder
	name string
	size int64
	etag string
}

func (o *object) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: negative offset %d", o.url(o.name), off)
	}
	end := int(min(int64(len(b)), max(o.size-off, 0)))
	n := 0
	for n < end {
		// The SDK repeats a failed request. A truncated body is resumed where it
		// ended, as long as each attempt makes progress.
		read, err := o.get(b[n:end], off+int64(n))
		if n += read; read == 0 && err != nil {
			return n, err
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// get fills b with the bytes at off, in one request.
func (o *object) get(b []byte, off int64) (int, error) {
	last := off + int64(len(b)) - 1
	got, err := o.client.GetObject(o.ctx, &s3.GetObjectInput{
		Bucket:  &o.bucket,
		Key:     o.key(o.name),
		Range:   aws.String(fmt.Sprintf("bytes=%d-%d", off, last)),
		IfMatch: &o.etag, // two versions must not be mixed
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", o.url(o.name), err)
	}
	defer got.Body.Close()
	// Some stores ignore If-Match, and some proxies ignore Range.
	if etag := aws.ToString(got.ETag); etag != o.etag {
		return 0, fmt.Errorf("%s has changed since it was opened: ETag %s, was %s", o.url(o.name), etag, o.etag)
	}
	want := fmt.Sprintf("bytes %d-%d/%d", off, last, o.size)
	if sent := aws.ToString(got.ContentRange); sent != want {
		return 0, fmt.Errorf("%s: asked for %s, got %q", o.url(o.name), want, sent)
	}
	return io.ReadFull(got.Body, b)
}
