package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/stretchr/testify/require"
)

const location = "s3://models/llama/step-2000"

// A store is an S3 server on the loopback interface, with an empty bucket named
// models. It checks signatures and logs requests.
type store struct {
	http.Handler
	fault func(http.ResponseWriter, *http.Request) bool // reports whether it has answered

	mu  sync.Mutex
	log []*exchange // in the order of their start
}

// An exchange is a request without its body, and the number of bytes sent back.
type exchange struct {
	method, key, query, byteRange string
	sent                          int64
}

// startStore starts a store and makes it that of the environment.
func startStore(t *testing.T) (*store, folder) {
	s := &store{Handler: gofakes3.New(s3mem.New(),
		gofakes3.WithV4Auth(map[string]string{"key": "secret"}),
		gofakes3.WithLogger(gofakes3.DiscardLog())).Server()}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3":         server.URL,
		"AWS_ACCESS_KEY_ID":           "key",
		"AWS_SECRET_ACCESS_KEY":       "secret",
		"AWS_SESSION_TOKEN":           "",
		"AWS_REGION":                  "us-east-1",
		"AWS_PROFILE":                 "",
		"AWS_CONFIG_FILE":             os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_MAX_ATTEMPTS":            "1",
	} {
		t.Setenv(name, value)
	}
	d, err := openFolder(t.Context(), location)
	require.NoError(t, err)
	_, err = d.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &d.bucket})
	require.NoError(t, err)
	s.exchanges()
	return s, d
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &countingWriter{w, s, &exchange{
		method:    r.Method,
		key:       strings.TrimPrefix(r.URL.Path, "/models/llama/step-2000/"),
		query:     r.URL.RawQuery,
		byteRange: r.Header.Get("Range"),
	}}
	s.mu.Lock()
	s.log = append(s.log, c.exchange)
	s.mu.Unlock()
	if s.fault == nil || !s.fault(c, r) {
		s.Handler.ServeHTTP(c, r)
	}
}

// exchanges returns the log and clears it.
func (s *store) exchanges() []*exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// A countingWriter counts before it writes, so that all bytes that a client has
// received are counted.
type countingWriter struct {
	http.ResponseWriter
	store    *store
	exchange *exchange
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.store.mu.Lock()
	w.exchange.sent += int64(len(b))
	w.store.mu.Unlock()
	return w.ResponseWriter.Write(b)
}

// objects returns the keys in the bucket and requires that no upload is left over.
func objects(t *testing.T, d folder) []string {
	listed, err := d.client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &d.bucket})
	require.NoError(t, err)
	var keys []string
	for _, o := range listed.Contents {
		keys = append(keys, strings.TrimPrefix(*o.Key, d.prefix+"/"))
	}
	uploads, err := d.client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &d.bucket})
	if err != nil { // the server has never seen one
		require.ErrorContains(t, err, "NoSuchUpload")
		return keys
	}
	require.Empty(t, uploads.Uploads)
	return keys
}

func headerSize(t *testing.T, d folder, name string) int64 {
	o, err := d.open(name)
	require.NoError(t, err)
	h, err := safetensors.ReadHeader(io.NewSectionReader(o, 0, o.size))
	require.NoError(t, err)
	return h.Size
}

func bucketSize(t *testing.T, d folder) (size int64) {
	listed, err := d.client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &d.bucket})
	require.NoError(t, err)
	for _, o := range listed.Contents {
		size += *o.Size
	}
	return size
}
