package objectstore

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sync/errgroup"
)

// An object is one version of an object in a folder, for random access. A read of
// an object that has been replaced since it was opened is an error wrapping
// errChanged. Its methods may be called concurrently.
type object struct {
	*blob.Attributes
	folder folder
	name   string
}

var _ safetensors.RangeReader = (*object)(nil)

var errChanged = errors.New("it has changed since it was opened")

// open requests only the attributes.
func (d folder) open(name string) (*object, error) {
	attributes, err := d.Attributes(d.ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	return &object{attributes, d, name}, nil
}

// pin adds the condition that the object has not been replaced to a request: its
// ETag, at Google its generation. Memory and folders know no conditions.
func (o *object) pin(as func(any) bool) error {
	var (
		amazon *s3.GetObjectInput
		google **storage.ObjectHandle
		azure  *azblob.DownloadStreamOptions
		client *[]func(*s3.Options)
	)
	switch {
	case as(&amazon):
		amazon.IfMatch = &o.ETag
		if as(&client) { // the store has a checksum of the whole object, not of a range
			*client = append(*client, func(s *s3.Options) {
				s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
			})
		}
	case as(&google):
		var attrs storage.ObjectAttrs
		o.As(&attrs)
		*google = (*google).If(storage.Conditions{GenerationMatch: attrs.Generation})
	case as(&azure):
		etag := azcore.ETag(o.ETag)
		azure.AccessConditions = &azblob.AccessConditions{
			ModifiedAccessConditions: &azblob.ModifiedAccessConditions{IfMatch: &etag},
		}
	}
	return nil
}

// check compares an answer with the object and with the range asked for. Some
// servers that speak S3 ignore the condition, and some proxies the range. Google
// ignores neither, and gives the time in another unit.
func (o *object) check(r *blob.Reader, off, n int64) error {
	var (
		amazon s3.GetObjectOutput
		google *storage.Reader
	)
	switch {
	case r.As(&amazon):
		if etag := aws.ToString(amazon.ETag); etag != o.ETag {
			return fmt.Errorf("%w: ETag %q, was %q", errChanged, etag, o.ETag)
		}
		want := fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, o.Size)
		if sent := aws.ToString(amazon.ContentRange); sent != want {
			return fmt.Errorf("asked for %s, got %q", want, sent)
		}
	case r.As(&google):
	case r.Size() != o.Size || !r.ModTime().Equal(o.ModTime):
		return fmt.Errorf("%w: %d bytes of %v, was %d of %v", errChanged, r.Size(), r.ModTime(), o.Size, o.ModTime)
	}
	return nil
}

// A span is a range of an object and its destination.
type span struct {
	off int64
	dst []byte
}

func (s span) end() int64 { return s.off + int64(len(s.dst)) }

// ReadAt requests a range of bytes.
func (o *object) ReadAt(b []byte, off int64) (int, error) {
	n := int(min(int64(len(b)), max(o.Size-off, 0)))
	if n > 0 {
		if err := o.fetch([]span{{off, b[:n]}}); err != nil {
			return 0, err
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// ReadRanges requests neighbors together, because a request takes longer than the
// bytes of a gap: a slice of many short runs, such as columns, would otherwise take
// one request for each run.
func (o *object) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	const largestGap, most = 256 << 10, 8 << 20
	var requests errgroup.Group
	requests.SetLimit(8) // in each call; several calls may run concurrently
	var near []span
	for off, dst := range ranges {
		next := span{off, dst}
		if len(near) > 0 && (off-near[len(near)-1].end() > largestGap || next.end()-near[0].off > most) {
			spans := near
			requests.Go(func() error { return o.fetch(spans) })
			near = nil
		}
		near = append(near, next)
	}
	if len(near) > 0 {
		requests.Go(func() error { return o.fetch(near) })
	}
	return requests.Wait()
}

// fetch fills spans, which are in order. The SDKs repeat a failed request; a body
// that breaks off is resumed there, as long as each attempt makes progress.
func (o *object) fetch(spans []span) error {
	for {
		rest, err := o.request(spans)
		switch {
		case err == nil:
			return nil
		case rest[0].off == spans[0].off:
			return fmt.Errorf("%q: %w", o.name, err)
		}
		spans = rest
	}
}

// request fills spans with one request, which includes the gaps between them. With
// an error it returns what is left to fill.
func (o *object) request(spans []span) (rest []span, err error) {
	pos, end := spans[0].off, spans[len(spans)-1].end()
	r, err := o.folder.NewRangeReader(o.folder.ctx, o.name, pos, end-pos, &blob.ReaderOptions{BeforeRead: o.pin})
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		err = fmt.Errorf("%w: %w", errChanged, err)
	}
	if err != nil {
		return spans, err
	}
	defer r.Close()
	if err := o.check(r, pos, end-pos); err != nil {
		return spans, err
	}
	for i, s := range spans {
		n := 0
		if _, err = io.CopyN(io.Discard, r, s.off-pos); err == nil {
			n, err = io.ReadFull(r, s.dst)
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return append([]span{{s.off + int64(n), s.dst[n:]}}, spans[i+1:]...), err
		}
		pos = s.end()
	}
	return nil, nil
}
