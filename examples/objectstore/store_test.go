package objectstore

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/stretchr/testify/require"
)

// A store is an S3 server on the loopback interface, with a bucket of its own. It
// logs requests. It is gofakes3, or the server at OBJECTSTORE_S3 if that is set.
type store struct {
	http.Handler
	location string                                        // URL of a folder in the bucket
	fault    func(http.ResponseWriter, *http.Request) bool // reports whether it has answered

	mu  sync.Mutex
	log []*http.Request // requests, in the order in which they started
}

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// startStore starts a store, and sets the environment so that S3 URLs refer to it.
func startStore(t *testing.T) (*store, folder) {
	s := new(store)
	if upstream := os.Getenv("OBJECTSTORE_S3"); upstream != "" {
		u := must(url.Parse(upstream))
		s.Handler = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host // the signature contains the host
		}}
	} else {
		s.Handler = gofakes3.New(s3mem.New(),
			gofakes3.WithV4Auth(map[string]string{"key": "secret"}),
			gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID":           "key",
		"AWS_SECRET_ACCESS_KEY":       "secret",
		"AWS_SESSION_TOKEN":           "",
		"AWS_PROFILE":                 "",
		"AWS_CONFIG_FILE":             os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_MAX_ATTEMPTS":            "1",
	} {
		t.Setenv(name, value)
	}
	bucket := fmt.Sprintf("models-%x", time.Now().UnixNano())
	s.location = "s3://" + bucket + "/llama/step-2000?endpoint=" + server.URL + "&region=us-east-1&use_path_style=true"
	d := openedFolder(t, s.location)
	var client *s3.Client
	require.True(t, d.As(&client))
	_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	require.NoError(t, err)
	s.requests()
	return s, d
}

func openedFolder(t *testing.T, location string) folder {
	d := must(openFolder(t.Context(), location))
	t.Cleanup(func() { d.Close() })
	return d
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.log = append(s.log, r.Clone(r.Context()))
	s.mu.Unlock()
	if s.fault == nil || !s.fault(w, r) {
		s.Handler.ServeHTTP(w, r)
	}
}

// requests returns the log and clears it.
func (s *store) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// folders returns an empty folder of each provider to which the tests can write.
func folders(t *testing.T) map[string]folder {
	_, amazon := startStore(t)
	return map[string]folder{
		"s3":   amazon,
		"file": openedFolder(t, "file://"+filepath.ToSlash(t.TempDir())+"?no_tmp_dir=true"),
		"mem":  openedFolder(t, "mem://"),
	}
}

// keys returns the names of the objects in a folder.
func keys(t *testing.T, d folder) (names []string) {
	objects, err := d.List(nil).All(t.Context())
	for o := range objects {
		names = append(names, o.Key)
	}
	require.NoError(t, err())
	return names
}

// served is the object that the fake servers of Google and Azure serve, under every name. There is
// one server for the whole process, because the drivers read its address from the environment only
// once.
var served struct {
	generation int
	data       []byte
}

var serve = sync.OnceFunc(func() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if azure := r.Header.Get("X-Ms-Range"); azure != "" {
			r.Header.Set("Range", azure)
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, served.generation))
		w.Header().Set("X-Goog-Generation", fmt.Sprint(served.generation))
		http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(served.data))
	}))
	host := strings.TrimPrefix(server.URL, "http://")
	os.Setenv("STORAGE_EMULATOR_HOST", host)
	os.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	os.Setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1")
	os.Setenv("AZURE_STORAGE_DOMAIN", host)
	os.Setenv("AZURE_STORAGE_PROTOCOL", "http")
})

// readings returns folders of Google and Azure in which every object has the content data.
func readings(t *testing.T, data []byte) map[string]folder {
	serve()
	served.generation, served.data = 1, data
	return map[string]folder{
		"google": openedFolder(t, "gs://models/llama/step-2000"),
		"azure":  openedFolder(t, "azblob://models/llama/step-2000"),
	}
}
