package bucket

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// An s3Store is a bucket of a store that speaks the protocol of S3.
type s3Store struct {
	*rest
	google bool // else it is Amazon's, or speaks as that does
}

const contentType = "application/octet-stream"

func (s s3Store) list(ctx context.Context, prefix string) (entries []listed, err error) {
	query := url.Values{"list-type": {"2"}, "prefix": {prefix}, "delimiter": {"/"}}
	for pages := 1; ; pages++ {
		var page struct {
			Contents []struct {
				Key          string
				Size         int64
				LastModified time.Time
				ETag         string
			}
			CommonPrefixes        []struct{ Prefix string }
			IsTruncated           bool
			NextContinuationToken string
		}
		if _, err := s.send(ctx, request{method: http.MethodGet, query: query, answer: &page}); err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			entries = append(entries, listed{o.Key, attributes{o.Size, o.LastModified, o.ETag}})
		}
		for _, p := range page.CommonPrefixes {
			entries = append(entries, listed{key: p.Prefix})
		}
		if !page.IsTruncated {
			return entries, nil
		}
		if err := next(query, "continuation-token", page.NextContinuationToken, pages, len(entries)); err != nil {
			return nil, err
		}
	}
}

// sum returns the CRC-32 of a body as Amazon writes it; Google has none.
func (s s3Store) sum(body []byte) string {
	if s.google {
		return ""
	}
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body)))
}

// header returns the header of an upload, with a field that only Amazon knows.
func (s s3Store) header(name, value string) map[string]string {
	header := map[string]string{"Content-Type": contentType}
	if !s.google {
		header[name] = value
	}
	return header
}

func (s s3Store) put(ctx context.Context, key string, body []byte) error {
	return s.done(ctx, s.putObject(key, body))
}

func (s s3Store) putObject(key string, body []byte) request {
	return request{method: http.MethodPut, key: key, header: s.header("X-Amz-Checksum-Crc32", s.sum(body)), body: body}
}

func (s s3Store) create(ctx context.Context, key string, body []byte) error {
	r := s.putObject(key, body)
	if s.google {
		r.header["X-Goog-If-Generation-Match"] = "0"
	} else {
		r.header["If-None-Match"] = "*"
	}
	return s.done(ctx, r)
}

// An s3Upload is a multipart upload.
type s3Upload struct {
	s3Store
	key, id string
	parts   []s3Part
}

// An s3Part is what completes an upload.
type s3Part struct {
	PartNumber    int
	ETag          string
	ChecksumCRC32 string `xml:",omitempty"`
}

func (s s3Store) begin(ctx context.Context, key string) (upload, error) {
	var begun struct{ UploadId string }
	_, err := s.send(ctx, request{
		method: http.MethodPost, key: key, query: url.Values{"uploads": {""}}, answer: &begun,
		header: s.header("X-Amz-Checksum-Algorithm", "CRC32"),
	})
	if err == nil && begun.UploadId == "" { // without it, abort would delete the object
		err = errors.New("the answer names no upload")
	}
	if err != nil {
		return nil, err
	}
	return &s3Upload{s, key, begun.UploadId, make([]s3Part, 10_000)}, nil
}

func (u *s3Upload) part(ctx context.Context, i int, body []byte) error {
	if i >= len(u.parts) {
		return errors.New("the upload has too many parts")
	}
	sum := u.sum(body)
	resp, err := u.send(ctx, request{
		method: http.MethodPut, key: u.key, query: url.Values{"partNumber": {strconv.Itoa(i + 1)}, "uploadId": {u.id}},
		header: u.header("X-Amz-Checksum-Crc32", sum), body: body,
	})
	if err != nil {
		return err
	}
	drain(resp)
	u.parts[i] = s3Part{i + 1, resp.Header.Get("ETag"), sum}
	return nil
}

func (u *s3Upload) complete(ctx context.Context, parts int) error {
	body, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUpload"`
		Part    []s3Part
	}{Part: u.parts[:parts]})
	if err != nil {
		return err
	}
	var completed struct{ Key string }
	_, err = u.send(ctx, request{
		method: http.MethodPost, key: u.key, query: url.Values{"uploadId": {u.id}}, body: body, answer: &completed,
		header: map[string]string{"Content-Type": "application/xml"},
	})
	if status(err) == http.StatusNotFound && u.completed(ctx, parts) {
		return nil // by a try whose answer got lost
	}
	return err
}

// completed reports whether the object is that of the upload: the ETag is the MD5 sum of those
// of the parts, where the store computes them so.
func (u *s3Upload) completed(ctx context.Context, parts int) bool {
	all := md5.New()
	for _, p := range u.parts[:parts] {
		sum, err := hex.DecodeString(strings.Trim(p.ETag, `"`))
		if err != nil || len(sum) != md5.Size {
			return false
		}
		all.Write(sum)
	}
	now, err := u.head(ctx, u.key)
	return err == nil && now.tag == fmt.Sprintf(`"%x-%d"`, all.Sum(nil), parts)
}

func (u *s3Upload) abort(ctx context.Context) error {
	return u.done(ctx, request{method: http.MethodDelete, key: u.key, query: url.Values{"uploadId": {u.id}}})
}
