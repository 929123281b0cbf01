package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/oauth2"
)

// An s3Store is a bucket of a store that uses the protocol of S3.
type s3Store struct {
	client *s3.Client
	name   *string
	google bool // whether the store is Google's; otherwise it is Amazon's, or behaves like it
}

const contentType = "application/octet-stream"

func openS3(ctx context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "region", "profile", "endpoint", "use_path_style", "anonymous")
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(o["profile"]), config.WithLogger(logging.Nop{}),
		config.WithHTTPClient(connections()),
		// Here the SDK ignores WithHTTPClient, and its default client would follow redirects with the
		// authorization token.
		config.WithEndpointCredentialOptions(func(c *endpointcreds.Options) { c.HTTPClient = discreet{newClient(connections())} }))
	if err != nil {
		return nil, err
	}
	cfg.Region = cmp.Or(o["region"], cfg.Region, "us-east-1")
	anonymous, reason := o["anonymous"] == "true", ""
	client := s3.NewFromConfig(cfg, func(s *s3.Options) {
		s.HTTPClient = discreet{newClient(cfg.HTTPClient.(*awshttp.BuildableClient))} // uses AWS_CA_BUNDLE
		s.Retryer = retryer()
		s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired // ranges have no checksums
		if o["endpoint"] != "" {
			// At this point, s.BaseEndpoint comes from the environment or the profile.
			if !anonymous {
				reason = anonymousTo(o["endpoint"], "AWS_ENDPOINT_URL_S3", value(s.BaseEndpoint))
			}
			s.BaseEndpoint = aws.String(o["endpoint"])
		}
		s.UsePathStyle = s.BaseEndpoint != nil // stores with an endpoint of their own have no host for each bucket
		if o["use_path_style"] != "" {
			s.UsePathStyle = o["use_path_style"] == "true"
		}
		if anonymous || reason != "" {
			s.Credentials = aws.AnonymousCredentials{}
			s.DisableS3ExpressSessionAuth = aws.Bool(true) // a session needs a key, and the SDK panics without one
		}
	})
	if endpoint := client.Options().BaseEndpoint; endpoint != nil {
		err = checkEndpoint(*endpoint)
	}
	return anonymously(s3Store{client, &name, false}, reason), err
}

// retryer retries requests that Amazon's own retryer would retry, and those that a busy store of
// another kind refuses. It does not limit the rate of retries.
func retryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.RateLimiter = tries, ratelimit.None
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, err error) (time.Duration, error) {
			var header http.Header
			if answer := (*smithyhttp.ResponseError)(nil); errors.As(err, &answer) && answer.Response != nil {
				header = answer.Response.Header
			}
			return pause(attempt, header), nil
		})
		codes := make(map[int]struct{})
		for _, status := range busy {
			codes[status] = struct{}{}
		}
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(refusedToken)}, o.Retryables...)
		o.Retryables = append(o.Retryables, retry.RetryableHTTPStatusCode{Codes: codes},
			retry.RetryableErrorCode{Codes: map[string]struct{}{"ConditionalRequestConflict": {}, "OperationAborted": {}}})
	})
}

// refusedToken reports whether to ask for a token again after a request for it was refused.
func refusedToken(err error) aws.Ternary {
	var token *oauth2.RetrieveError
	if !errors.As(err, &token) {
		return aws.UnknownTernary
	}
	return aws.BoolTernary(slices.Contains(busy, token.Response.StatusCode))
}

func (s s3Store) list(ctx context.Context, prefix, marker string) (page []objectInfo, next *string, err error) {
	in := &s3.ListObjectsV2Input{Bucket: s.name, Prefix: &prefix, Delimiter: aws.String("/")}
	if marker != "" {
		in.ContinuationToken = &marker
	}
	list, err := s.client.ListObjectsV2(ctx, in)
	switch {
	case err != nil:
		return nil, nil, refused(err)
	case list.Name == nil:
		return nil, nil, errNoList
	case aws.ToBool(list.IsTruncated):
		next = aws.String(aws.ToString(list.NextContinuationToken))
	}
	for _, o := range list.Contents {
		page = append(page, objectInfo{value(o.Key), value(o.Size), value(o.LastModified), value(o.ETag), false})
	}
	for _, p := range list.CommonPrefixes {
		page = append(page, objectInfo{name: value(p.Prefix)})
	}
	return page, next, nil
}

func (s s3Store) head(ctx context.Context, key string) (objectInfo, error) {
	o, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: s.name, Key: &key})
	if err != nil {
		return objectInfo{}, refused(err)
	}
	if o.ContentLength == nil {
		return objectInfo{}, errNoSize
	}
	return objectInfo{key, *o.ContentLength, value(o.LastModified), value(o.ETag), false}, nil
}

func (s s3Store) get(ctx context.Context, key string, off, n int64) (io.ReadCloser, string, string, error) {
	o, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: s.name, Key: &key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1))})
	if err != nil {
		return nil, "", "", refused(err)
	}
	return o.Body, aws.ToString(o.ContentRange), aws.ToString(o.ETag), nil
}

// sum returns the CRC-32 of a body in the form of Amazon. It returns nil for Google, which does not
// support it.
func (s s3Store) sum(body []byte) *string {
	if s.google {
		return nil
	}
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body))))
}

func (s s3Store) put(ctx context.Context, key string, body []byte, isNew bool) error {
	in := &s3.PutObjectInput{
		Bucket: s.name, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String(contentType), ChecksumCRC32: s.sum(body),
	}
	if isNew {
		in.IfNoneMatch = aws.String("*")
	}
	o, err := s.client.PutObject(ctx, in)
	if err == nil && o.ETag == nil {
		return errNotDone
	}
	return refused(err)
}

// errNotDone is the error of an upload whose answer has no ETag, so that it does not come from the
// store.
var errNotDone = errors.New("the answer does not confirm that the upload is complete")

func (s s3Store) delete(ctx context.Context, key string) error {
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: s.name, Key: &key})
	return refused(err)
}

type s3Upload struct {
	s3Store
	key, id *string
	parts   []types.CompletedPart
}

func (s s3Store) begin(ctx context.Context, key string) (upload, error) {
	in := &s3.CreateMultipartUploadInput{Bucket: s.name, Key: &key, ContentType: aws.String(contentType)}
	if !s.google {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32
	}
	o, err := s.client.CreateMultipartUpload(ctx, in)
	if err == nil && aws.ToString(o.UploadId) == "" { // without an id, abort would delete the object
		err = errors.New("the answer does not name the upload")
	}
	if err != nil {
		return nil, refused(err)
	}
	return &s3Upload{s, &key, o.UploadId, make([]types.CompletedPart, 10_000)}, nil
}

func (u *s3Upload) part(ctx context.Context, i int, body []byte) error {
	if i >= len(u.parts) {
		return errors.New("the upload has too many parts")
	}
	p := types.CompletedPart{PartNumber: aws.Int32(int32(i + 1)), ChecksumCRC32: u.sum(body)}
	o, err := u.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: u.name, Key: u.key, UploadId: u.id, PartNumber: p.PartNumber, Body: bytes.NewReader(body), ChecksumCRC32: p.ChecksumCRC32,
	})
	if err != nil {
		return refused(err)
	}
	if p.ETag = o.ETag; p.ETag == nil {
		return errNotDone
	}
	u.parts[i] = p
	return nil
}

func (u *s3Upload) complete(ctx context.Context, parts int) error {
	o, err := u.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: u.name, Key: u.key, UploadId: u.id, MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts[:parts]},
	})
	err = refused(err)
	if err == nil && o.ETag == nil {
		err = errNotDone
	}
	if (err == errNotDone || status(err) == http.StatusNotFound) && u.completed(ctx, parts) {
		return nil // an earlier try, whose answer was lost, has completed the upload
	}
	return err
}

// completed reports whether the stored object is the result of the upload. It relies on an ETag
// that is the MD5 sum of the parts' MD5 sums, and returns false for a store that computes ETags in
// another way.
func (u *s3Upload) completed(ctx context.Context, parts int) bool {
	all := md5.New()
	for _, p := range u.parts[:parts] {
		sum, err := hex.DecodeString(strings.Trim(*p.ETag, `"`))
		if err != nil || len(sum) != md5.Size {
			return false
		}
		all.Write(sum)
	}
	now, err := u.head(ctx, *u.key)
	return err == nil && now.tag == fmt.Sprintf(`"%x-%d"`, all.Sum(nil), parts)
}

func (u *s3Upload) abort(ctx context.Context) error {
	_, err := u.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: u.name, Key: u.key, UploadId: u.id})
	return refused(err)
}
