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

// open opens an object, or all shards of an index, as remote.Client opens a URL: it reads the index
// and the headers, but no data. Reading an object that was replaced in the meantime fails with an
// error that wraps remote.ErrChanged.
func (d folder) open(name string) (*safetensors.File, error) {
	client := &remote.Client{HTTP: &http.Client{Transport: d}}
	return client.Open(d.ctx, "http://bucket/"+name)
}

// statuses maps the errors that another try would return again to the status of an answer.
var statuses = map[gcerrors.ErrorCode]int{
	gcerrors.NotFound:         http.StatusNotFound,
	gcerrors.PermissionDenied: http.StatusForbidden,
}

// RoundTrip answers a request for an object, or for a range of one, as an HTTP server does.
// remote.Client merges ranges that are close to each other, resumes a body that breaks off, and
// compares the ETag and the Content-Range with those of the first answer.
func (d folder) RoundTrip(r *http.Request) (*http.Response, error) {
	first, last := int64(0), int64(-2) // makes the length -1, which means the whole object
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
		resp.Header.Set("X-Error-Message", text[max(len(text)-200, 0):]) // the end of the text is the most specific part
		return resp, nil
	}
	if err != nil {
		return nil, err
	}
	resp.StatusCode, resp.Body = http.StatusOK, o
	etag, sent := version(o, fmt.Sprintf("bytes %d-%d/%d", first, min(last+1, o.Size())-1, o.Size()))
	resp.Header.Set("Etag", etag)
	if last >= 0 && sent != "" { // otherwise the answer is the whole object
		resp.StatusCode = http.StatusPartialContent
		resp.Header.Set("Content-Range", sent)
	}
	return resp, nil
}

// noChecksum keeps the client of S3 from comparing the bytes of a range with the checksum that the
// store has for the whole object.
func noChecksum(as func(any) bool) error {
	var client *[]func(*s3.Options)
	if as(&client) { // false for other providers
		*client = append(*client, func(s *s3.Options) {
			s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		})
	}
	return nil
}

// version returns an ETag for the version of the object that was read: the ETag of the store, the
// generation at Google, or the time and the size of a file. It also returns the Content-Range of
// the answer, or "" if the provider sent the whole object. asked is the Content-Range of a correct
// answer, which version returns for providers that do not report one.
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
	case o.As(&google): // its reader has checked the range
		return fmt.Sprintf(`"%d"`, google.Attrs.Generation), asked
	}
	return fmt.Sprintf(`"%d-%d"`, o.ModTime().UnixNano(), o.Size()), asked
}
