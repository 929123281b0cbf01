package objectstore

import (
	"fmt"
	"net/http"
	"strings"

	"cloud.google.com/go/storage"
	azblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// open opens an object, or all shards of an index, as remote.Client opens a URL: it reads
// the index and the headers, and no data. A read of an object that has been replaced since
// is an error wrapping remote.ErrChanged.
func (d folder) open(name string) (*safetensors.File, error) {
	client := &remote.Client{HTTP: &http.Client{Transport: d}}
	return client.Open(d.ctx, "http://bucket/"+name)
}

// statuses are those of errors that are the same however often one asks.
var statuses = map[gcerrors.ErrorCode]int{
	gcerrors.NotFound:         http.StatusNotFound,
	gcerrors.PermissionDenied: http.StatusForbidden,
}

// RoundTrip answers a request for an object, or for a range of one, as a server of HTTP
// does. remote.Client merges ranges that are close to each other, resumes a body that
// breaks off, and compares the ETag and the Content-Range with those of the first answer.
func (d folder) RoundTrip(r *http.Request) (*http.Response, error) {
	first, last := int64(0), int64(-2) // all
	if s := r.Header.Get("Range"); s != "" {
		if _, err := fmt.Sscanf(s, "bytes=%d-%d", &first, &last); err != nil {
			return nil, fmt.Errorf("range %q: %w", s, err)
		}
	}
	resp := &http.Response{Header: make(http.Header), ContentLength: -1, Request: r}
	o, err := d.NewRangeReader(r.Context(), strings.TrimPrefix(r.URL.Path, "/"), first, last+1-first, &blob.ReaderOptions{BeforeRead: noChecksum})
	if status, ok := statuses[gcerrors.Code(err)]; ok {
		resp.StatusCode, resp.Body = status, http.NoBody
		resp.Status = fmt.Sprint(status, " ", http.StatusText(status))
		text := err.Error()
		resp.Header.Set("X-Error-Message", text[max(len(text)-200, 0):]) // its end tells most
		return resp, nil
	}
	if err != nil {
		return nil, err
	}
	resp.StatusCode, resp.Body = http.StatusOK, o
	etag, sent := version(o, fmt.Sprintf("bytes %d-%d/%d", first, min(last+1, o.Size())-1, o.Size()))
	resp.Header.Set("Etag", etag)
	if last >= 0 && sent != "" { // else the server has ignored the range
		resp.StatusCode = http.StatusPartialContent
		resp.Header.Set("Content-Range", sent)
	}
	return resp, nil
}

// noChecksum keeps the client of S3 from checking the sum of a whole object, which the
// store has, with a range.
func noChecksum(as func(any) bool) error {
	var amazon *s3.GetObjectInput // must be asked for first
	var client *[]func(*s3.Options)
	if as(&amazon) && as(&client) {
		*client = append(*client, func(s *s3.Options) {
			s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		})
	}
	return nil
}

// version returns the ETag of the object that an answer is of, at Google its generation, of a
// file its time and size; and the range that was sent, if the provider tells it.
func version(o *blob.Reader, asked string) (etag, sent string) {
	var (
		amazon s3.GetObjectOutput
		google *storage.Reader
		azure  azblob.DownloadStreamResponse
	)
	switch {
	case o.As(&amazon):
		return aws.ToString(amazon.ETag), aws.ToString(amazon.ContentRange)
	case o.As(&azure):
		return string(*azure.ETag), aws.ToString(azure.ContentRange)
	case o.As(&google): // which checks the range
		return fmt.Sprintf(`"%d"`, google.Attrs.Generation), asked
	}
	return fmt.Sprintf(`"%d-%d"`, o.ModTime().UnixNano(), o.Size()), asked
}
