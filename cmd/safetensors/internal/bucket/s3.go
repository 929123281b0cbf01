package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// An s3Store is a bucket of S3, or of a store that speaks its protocol.
type s3Store struct {
	client *s3.Client
	name   *string
}

func openS3(ctx context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "region", "profile", "endpoint", "use_path_style", "anonymous")
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(o["profile"]))
	if err != nil {
		return nil, err
	}
	if cfg.Region = first(o["region"], cfg.Region); cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	endpoint := first(o["endpoint"], os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	client := s3.NewFromConfig(cfg, func(s *s3.Options) {
		s.DisableLogOutputChecksumValidationSkipped = true // of ranges, which have no sums
		s.UsePathStyle = endpoint != ""                    // such stores have no host for each bucket
		if o["use_path_style"] != "" {
			s.UsePathStyle = o["use_path_style"] == "true"
		}
		if o["endpoint"] != "" {
			s.BaseEndpoint = &endpoint
		}
		if o["anonymous"] == "true" {
			s.Credentials = aws.AnonymousCredentials{}
		}
	})
	return s3Store{client, &name}, nil
}

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// openGoogle opens a bucket of Google, whose XML API is the protocol of S3 with tokens
// in place of signatures. Its own client and what that imports would be two thirds of
// this command.
func openGoogle(ctx context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "endpoint", "anonymous")
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: googleTransport{http.DefaultTransport}}
	if o["anonymous"] != "true" {
		tokens, err := google.DefaultTokenSource(ctx, "https://www.googleapis.com/auth/devstorage.read_write")
		if err != nil {
			return nil, err
		}
		client.Transport = &oauth2.Transport{Source: tokens, Base: client.Transport}
	}
	return s3Store{s3.New(s3.Options{
		BaseEndpoint:               aws.String(first(o["endpoint"], "https://storage.googleapis.com")),
		Region:                     "auto",
		UsePathStyle:               true,
		Credentials:                aws.AnonymousCredentials{},
		HTTPClient:                 client,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}), &name}, nil
}

// A googleTransport leaves out what only Amazon knows, and says what only Google knows: that
// an object is written unless there is one.
type googleTransport struct{ http.RoundTripper }

func (t googleTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") || strings.HasPrefix(name, "Amz-Sdk-") {
			delete(r.Header, name)
		}
	}
	if r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "*" {
		r.Header.Del("If-None-Match")
		r.Header.Set("X-Goog-If-Generation-Match", "0")
	}
	query := r.URL.Query()
	query.Del("x-id")
	r.URL.RawQuery = query.Encode()
	return t.RoundTripper.RoundTrip(r)
}

func (s s3Store) list(ctx context.Context, prefix string) (entries []listed, err error) {
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: s.name, Prefix: &prefix, Delimiter: aws.String("/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			entries = append(entries, listed{aws.ToString(o.Key), attributes{aws.ToInt64(o.Size), aws.ToTime(o.LastModified), aws.ToString(o.ETag)}})
		}
		for _, p := range page.CommonPrefixes {
			entries = append(entries, listed{key: aws.ToString(p.Prefix)})
		}
	}
	return entries, nil
}

func (s s3Store) head(ctx context.Context, key string) (attributes, error) {
	o, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: s.name, Key: &key})
	if err != nil {
		return attributes{}, err
	}
	return attributes{aws.ToInt64(o.ContentLength), aws.ToTime(o.LastModified), aws.ToString(o.ETag)}, nil
}

func (s s3Store) get(ctx context.Context, key string, off, n int64) (io.ReadCloser, attributes, error) {
	o, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: s.name, Key: &key, Range: aws.String(byteRange(off, n))})
	if err != nil {
		return nil, attributes{}, err
	}
	size, err := sizeInRange(aws.ToString(o.ContentRange))
	if err != nil {
		o.Body.Close()
		return nil, attributes{}, err
	}
	return o.Body, attributes{size, aws.ToTime(o.LastModified), aws.ToString(o.ETag)}, nil
}

func byteRange(off, n int64) string { return fmt.Sprintf("bytes=%d-%d", off, off+n-1) }

// sizeInRange returns the size of the object in a header like "bytes 0-9/100".
func sizeInRange(text string) (int64, error) {
	_, total, _ := strings.Cut(text, "/")
	size, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the answer has the range %.40q, expected one with the size of the object", text)
	}
	return size, nil
}

func (s s3Store) put(ctx context.Context, key string, body []byte) error {
	_, err := s.client.PutObject(ctx, s.object(key, body))
	return err
}

func (s s3Store) object(key string, body []byte) *s3.PutObjectInput {
	return &s3.PutObjectInput{Bucket: s.name, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String(contentType)}
}

func (s s3Store) create(ctx context.Context, key string, body []byte) error {
	const tries = 3
	for try := 1; ; try++ {
		o := s.object(key, body)
		o.IfNoneMatch = aws.String("*")
		_, err := s.client.PutObject(ctx, o)
		if status(err) != http.StatusConflict || try == tries { // another one is just being written
			return err
		}
	}
}

const contentType = "application/octet-stream"

func (s s3Store) delete(ctx context.Context, key string) error {
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: s.name, Key: &key})
	return err
}

// An s3Upload is a multipart upload.
type s3Upload struct {
	s3Store
	key, id *string
	parts   []types.CompletedPart
}

func (s s3Store) begin(ctx context.Context, key string) (upload, error) {
	in := &s3.CreateMultipartUploadInput{Bucket: s.name, Key: &key, ContentType: aws.String(contentType)}
	if s.client.Options().RequestChecksumCalculation != aws.RequestChecksumCalculationWhenRequired {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32 // what UploadPart computes then
	}
	o, err := s.client.CreateMultipartUpload(ctx, in)
	if err != nil {
		return nil, err
	}
	return &s3Upload{s, &key, o.UploadId, make([]types.CompletedPart, 10_000)}, nil
}

func (u *s3Upload) part(ctx context.Context, i int, body []byte) error {
	if i >= len(u.parts) {
		return errors.New("the upload has too many parts")
	}
	number := int32(i + 1)
	o, err := u.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: u.name, Key: u.key, UploadId: u.id, PartNumber: &number, Body: bytes.NewReader(body),
	})
	if err != nil {
		return err
	}
	u.parts[i] = types.CompletedPart{
		PartNumber: &number, ETag: o.ETag,
		ChecksumCRC32: o.ChecksumCRC32, ChecksumCRC32C: o.ChecksumCRC32C, ChecksumCRC64NVME: o.ChecksumCRC64NVME,
	}
	return nil
}

func (u *s3Upload) complete(ctx context.Context, parts int) error {
	_, err := u.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: u.name, Key: u.key, UploadId: u.id, MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts[:parts]},
	})
	return err
}

func (u *s3Upload) abort(ctx context.Context) error {
	_, err := u.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: u.name, Key: u.key, UploadId: u.id})
	return err
}
