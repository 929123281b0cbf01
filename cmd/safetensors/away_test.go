package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/stretchr/testify/require"
)

// writeShards writes three shards into a folder and returns their tensors.
func writeShards(t *testing.T, dir string) map[string]safetensors.Tensor {
	t.Helper()
	tensors := map[string]safetensors.Tensor{"x": counting(t, 8), "y": counting(t, 8), "z": counting(t, 8)}
	require.NoError(t, safetensors.WriteShards(dir, tensors, map[string]string{"format": "pt"}, 32))
	return tensors
}

// serve serves until the test ends.
func serve(t *testing.T, handler http.HandlerFunc) (url string) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// startHub serves a folder as a web server, and as the repository owner/name of a hub
// at the revisions main, v2 and refs/pr/1.
func startHub(t *testing.T, dir string) (url string, requests func() []string) {
	return startHubAt(t, dir, commit)
}

func startHubAt(t *testing.T, dir, commit string) (url string, requests func() []string) {
	files := http.FileServer(http.Dir(dir))
	s := &faulty{entry: func(r *http.Request) string { return r.URL.EscapedPath() }}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/hub") // HF_ENDPOINT may have a path
		switch strings.TrimPrefix(r.URL.Path, "/api/models/owner/name/revision/") {
		case "main", "v2", "refs/pr/1", commit:
			if r.Header.Get("Authorization") != "Bearer token" {
				http.Error(w, "no", http.StatusUnauthorized)
				return
			}
			listRepository(w, dir, commit, true)
			return
		}
		r.URL.Path = strings.Replace(r.URL.Path, "/owner/name/resolve/"+commit+"/", "/", 1)
		files.ServeHTTP(w, r)
	})
	url = serve(t, s.ServeHTTP)
	for name, value := range map[string]string{
		"HF_ENDPOINT": url, "HF_HOME": t.TempDir(), "HF_HUB_CACHE": "", "HF_TOKEN": "token", "HUGGINGFACE_HUB_CACHE": "",
		"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "",
		"HTTP_PROXY": "", "HTTPS_PROXY": "", "http_proxy": "", "https_proxy": "",
	} {
		t.Setenv(name, value)
	}
	return url, s.requests
}

// A fault answers a request in place of a server, or reports that it does not.
type fault = func(http.ResponseWriter, *http.Request) bool

// A faulty server has a log of the requests that it gets, and can be told to fail.
type faulty struct {
	http.Handler
	entry func(r *http.Request) string // of the log; nil for METHOD PATH

	mu    sync.Mutex
	log   []string
	fault fault
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	entry := r.Method + " " + r.URL.Path
	if f.entry != nil {
		entry = f.entry(r)
	}
	f.mu.Lock()
	f.log = append(f.log, entry)
	fault := f.fault
	f.mu.Unlock()
	if fault == nil || !fault(w, r) {
		f.Handler.ServeHTTP(w, r)
	}
}

// requests returns the log and clears it.
func (f *faulty) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

// setFault sets what breaks.
func (f *faulty) setFault(fault fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// swallow reads a request that gets no answer, and has the server do what it asks for, unless it
// fails before that.
func (f *faulty) swallow(r *http.Request, before bool) {
	body, _ := io.ReadAll(r.Body)
	if !before {
		r.Body = io.NopCloser(bytes.NewReader(body))
		f.Handler.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// forbids is the fault that refuses some requests.
func forbids(which func(r *http.Request) bool) fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !which(r) {
			return false
		}
		io.Copy(io.Discard, r.Body) // or the connection is reset before the answer is read
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>AccessDenied</Code></Error>")
		return true
	}
}

// TestHub reads a repository of a hub under every name that a user may give it, and requires that
// it is the same as the local folder; files in the cache of the Python tools come first.
func TestHub(t *testing.T) {
	t.Chdir(t.TempDir())
	writeShards(t, "repo")
	writeShards(t, "repo/folder")
	require.NoError(t, safetensors.WriteFile("repo/other.safetensors", map[string]safetensors.Tensor{"o": counting(t, 2)}, nil))
	require.NoError(t, os.WriteFile("repo/x.safetensors.index.fp16.json", must(os.ReadFile("repo/model.safetensors.index.json")), 0o666))
	url, requests := startHub(t, "repo")
	for _, name := range []string{
		"hf://owner/name/x.safetensors.index.fp16.json", url + "/x.safetensors.index.fp16.json",
		"hf://owner/name", "hf://owner/name@v2", "hf://owner/name@refs/pr/1", "hf://owner/name@refs%2Fpr%2F1/model.safetensors.index.json",
		"hf://owner/name/folder", url + "/model.safetensors.index.json", url + "/folder/model.safetensors.index.json",
	} {
		require.Equal(t, "equal\n", succeeds(t, "diff", "repo", name), name)
	}
	require.Contains(t, succeeds(t, "ls", "hf://owner/name/other.safetensors", url+"/other.safetensors"), "o     F32    [2]")
	require.NotEmpty(t, requests())

	// Its files are files.
	require.Equal(t, succeeds(t, "hash", "repo"), succeeds(t, "hash", "hf://owner/name"))
	manifest := succeeds(t, "hash", "--tensors", url+"/model.safetensors.index.json")
	require.NoError(t, os.WriteFile("m", []byte(manifest), 0o666))
	require.Equal(t, "tensor x: OK\ntensor y: OK\ntensor z: OK\n", succeeds(t, "verify", "repo", "m", "--tensors"))
	succeeds(t, "cp", "hf://owner/name", "download", "--max-shard-size", "70B")
	require.Equal(t, "equal\n", succeeds(t, "diff", "repo", "download", "--meta"))

	require.Contains(t, fails(t, 1, "ls", "hf://owner/absent"), "no such repository, or it is private or gated, and the token that is set may not read it")
	require.Contains(t, fails(t, 1, "ls", url+"/absent.safetensors"), "404")
	require.Contains(t, fails(t, 1, "cp", "hf://owner/name", "x.safetensors", "--only", "w"), "no tensor matches")
	require.Contains(t, fails(t, 1, "meta", "hf://owner/name", "a=b", "--in-place"), "cannot be changed in place")
	require.NoFileExists(t, "x.safetensors")
	requests()

	// The cache of the Python tools comes first, as far as it has the files.
	cache := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--owner--name")
	write(t, filepath.Join(cache, "refs", "main"), commit)
	snapshot := mkdir(t, cache, "snapshots", commit)
	plain, half := filepath.Join(snapshot, "model.safetensors"), filepath.Join(snapshot, "model.fp16.safetensors")
	require.NoError(t, safetensors.WriteFile(plain, map[string]safetensors.Tensor{"cached": counting(t, 1)}, nil))
	require.Contains(t, succeeds(t, "ls", "hf://owner/name"), "cached")
	require.Empty(t, requests(), "nothing is sent")
	require.Contains(t, succeeds(t, "ls", "hf://owner/name/other.safetensors"), "o     F32    [2]")
	require.NotEmpty(t, requests())
	require.NotContains(t, succeeds(t, "ls", "hf://owner/name@v2"), "cached")
	requests()

	// What is next to the weights comes from the hub where the cache does not have it.
	config := `{"torch_dtype": "float32"}`
	write(t, "repo/config.json", config)
	write(t, "repo/tokenizer.json", "{}")
	write(t, "repo/1_Pooling/config.json", "{}")
	succeeds(t, "cp", "hf://owner/name", "completed", "--with-files")
	require.Subset(t, tree(t, "completed"), map[string]string{"config.json": config, "tokenizer.json": "{}", "1_Pooling/config.json": "{}"})
	require.Contains(t, succeeds(t, "ls", "completed"), "cached")
	for i, name := range []string{"hf://owner/name", "hf://owner/name/model.safetensors"} {
		dst := fmt.Sprint("converted", i)
		requests()
		succeeds(t, "cp", name, dst, "--dtype", "f16")
		require.Len(t, requests(), 2, "for config.json, and hf_quant_config.json")
		require.Contains(t, string(must(os.ReadFile(dst+"/config.json"))), "float16")
	}
	write(t, filepath.Join(snapshot, "config.json"), "{}")
	requests()
	succeeds(t, "cp", "hf://owner/name", "x.safetensors", "--dtype", "f16")
	require.Empty(t, requests())
	require.NoError(t, os.Remove("x.safetensors"))

	t.Setenv("HF_HUB_OFFLINE", "1")
	require.Contains(t, succeeds(t, "ls", "hf://owner/name"), "cached")
	require.NoError(t, os.Rename(plain, half)) // which diffusers may have downloaded alone
	require.Equal(t, "safetensors: note: hf://owner/name: the cache has only model.fp16.safetensors\n", runs(t, "ls", "hf://owner/name").stderr)
	require.Empty(t, runs(t, "ls", "hf://owner/name", "--variant", "fp16").stderr)
	require.NoError(t, os.Rename(half, plain))
	require.Empty(t, runs(t, "ls", "hf://owner/name").stderr)
	for _, name := range []string{"hf://owner/name@v2", "hf://owner/name/other.safetensors", "hf://owner/name/folder", "hf://owner/other"} {
		require.Contains(t, fails(t, 1, "ls", name), "HF_HUB_OFFLINE is set", name)
	}
	succeeds(t, "cp", "hf://owner/name", "from-cache", "--with-files")
	require.Contains(t, fails(t, 1, "cp", "hf://owner/other", "to", "--with-files"), "HF_HUB_OFFLINE is set")
	require.Contains(t, fails(t, 1, "merge", "hf://owner/other", "repo", "x.safetensors"), "HF_HUB_OFFLINE is set")
	require.NoFileExists(t, "x.safetensors")
	require.Empty(t, requests())
}

func mkdir(t *testing.T, parts ...string) string {
	dir := filepath.Join(parts...)
	require.NoError(t, os.MkdirAll(dir, 0o777))
	return dir
}

// A store is an S3 server on the loopback interface, with an empty bucket named
// models. It checks signatures.
type store struct {
	*faulty
	client *s3.Client
}

// fakeS3 is an S3 server in memory.
func fakeS3(options ...gofakes3.Option) http.Handler {
	server := gofakes3.New(s3mem.New(), append(options, gofakes3.WithLogger(gofakes3.DiscardLog()))...).Server()
	var creating sync.Mutex // gofakes3 looks for the object, and then writes it: two that create it would both succeed
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			creating.Lock()
			defer creating.Unlock()
		}
		server.ServeHTTP(w, r)
	})
}

// eachStore runs a test with gofakes3 and, where SAFETENSORS_S3_SERVER names the
// program versitygw, with that, a real server that .ci/run installs.
func eachStore(t *testing.T, test func(t *testing.T, s *store)) {
	t.Run("gofakes3", func(t *testing.T) {
		test(t, startStore(t, fakeS3(gofakes3.WithV4Auth(map[string]string{"key": "secret"}))))
	})
	if server := os.Getenv("SAFETENSORS_S3_SERVER"); server != "" {
		t.Run("versitygw", func(t *testing.T) { test(t, startStore(t, startVersity(t, server))) })
	}
}

// startVersity starts a server and returns a handler that passes requests on to it,
// under the name that they are signed for.
func startVersity(t *testing.T, server string) http.Handler {
	address, started := "", false
	for range 5 { // another program may get the port first
		if address, started = tryVersity(t, server); started {
			break
		}
	}
	require.True(t, started, "versitygw ends, or does not listen")
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: address})
		r.Out.Host = r.In.Host
	}}
}

func tryVersity(t *testing.T, server string) (address string, started bool) {
	free := must(net.Listen("tcp", "127.0.0.1:0"))
	address = free.Addr().String()
	require.NoError(t, free.Close())
	dir := t.TempDir()
	cmd := exec.Command(server, "-q", "--access", "key", "--secret", "secret", "--port", address,
		"posix", "--sidecar", mkdir(t, dir, "attributes"), mkdir(t, dir, "objects"))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		select {
		case <-ended:
			return address, false
		case <-time.After(10 * time.Millisecond):
		}
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return address, true
		}
	}
	return address, false
}

func startStore(t *testing.T, handler http.Handler) *store {
	t.Chdir(t.TempDir())
	s := &store{faulty: &faulty{Handler: handler}}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3":         serve(t, s.ServeHTTP),
		"AWS_ENDPOINT_URL":            "",
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
	s.client = s3.NewFromConfig(must(config.LoadDefaultConfig(t.Context())), func(o *s3.Options) { o.UsePathStyle = true })
	must(s.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("models")}))
	s.requests()
	return s
}

// TestRequestsOfFolder: a folder of a bucket is described and listed for its models and for the one that is opened, but not
// again for each question whether it is a folder, and which files are no part of the model.
func TestRequestsOfFolder(t *testing.T) {
	s := startStore(t, fakeS3())
	writeShards(t, "local")
	succeeds(t, "cp", "local", "s3://models/llama", "--max-shard-size", "32B")
	s.requests()
	succeeds(t, "ls", "s3://models/llama")
	counts := make(map[string]int)
	for _, request := range s.requests() {
		counts[request]++
	}
	require.LessOrEqual(t, counts["HEAD /models/llama"], 2)
	require.LessOrEqual(t, counts["GET /models"], 5) // a list
	require.Len(t, counts, 6)
	for name := range s.contents(t, "llama/") {
		require.Equal(t, 1, counts["GET /models/"+name], name)
	}
}

// puts is requests, without those that write nothing.
func (s *store) puts() []string {
	return slices.DeleteFunc(s.requests(), func(request string) bool { return !strings.HasPrefix(request, "PUT ") })
}

// objects returns the keys in the bucket and requires that no upload is left over.
func (s *store) objects(t *testing.T) (keys []string) {
	t.Helper()
	listed := must(s.client.ListObjectsV2(context.Background(), &s3.ListObjectsV2Input{Bucket: aws.String("models")}))
	for _, o := range listed.Contents {
		keys = append(keys, *o.Key)
	}
	uploads, err := s.client.ListMultipartUploads(context.Background(), &s3.ListMultipartUploadsInput{Bucket: aws.String("models")})
	if err != nil { // the server has never seen one
		require.ErrorContains(t, err, "NoSuchUpload")
		return keys
	}
	require.Empty(t, uploads.Uploads, "an upload is left over")
	return keys
}

// TestS3 copies to a bucket and from it, replaces a checkpoint there, and refuses what is absent.
func TestS3(t *testing.T) { eachStore(t, testS3) }

func testS3(t *testing.T, s *store) {
	writeShards(t, "local")
	succeeds(t, "cp", "local", "s3://models/llama", "--max-shard-size", "32B")
	require.Equal(t, []string{
		"PUT /models/llama/model-00001-of-00003.safetensors", "PUT /models/llama/model-00002-of-00003.safetensors",
		"PUT /models/llama/model-00003-of-00003.safetensors", "PUT /models/llama/model.safetensors.index.json",
	}, s.puts(), "the index is last")
	for _, name := range []string{"s3://models/llama", "s3://models/llama/", "s3://models/llama/model.safetensors.index.json", "s3://models/llama?region=us-east-1"} {
		require.Equal(t, "equal\n", succeeds(t, "diff", "local", name, "--meta"), name)
	}
	require.Contains(t, succeeds(t, "ls", "s3://models/llama/model-00002-of-00003.safetensors"), "y     F32    [8]")
	require.Contains(t, succeeds(t, "check", "s3://models/llama"), "ok       s3://models/llama: 3 tensors, 96 B")
	manifest := succeeds(t, "hash", "s3://models/llama", "--tensors")
	require.Equal(t, succeeds(t, "hash", "local", "--tensors"), manifest)

	require.Contains(t, fails(t, 1, "cp", "local", "s3://models/llama"), "s3://models/llama/model-00001-of-00003.safetensors exists; --force replaces it")
	succeeds(t, "cp", "s3://models/llama", "s3://models/llama", "--max-shard-size", "64B", "--force")
	require.Regexp(t, `^llama/model\.(\d{9})-00001-of-00002\.safetensors llama/model\.\d{9}-00002-of-00002\.safetensors llama/model\.safetensors\.index\.json$`,
		strings.Join(s.objects(t), " "))
	require.Equal(t, "equal\n", succeeds(t, "diff", "local", "s3://models/llama"))
	succeeds(t, "cp", "s3://models/llama", "s3://models/one.safetensors")
	require.Equal(t, "equal\n", succeeds(t, "diff", "local", "s3://models/one.safetensors"))

	require.Contains(t, fails(t, 1, "ls", "s3://models/absent"), "s3://models/absent: file does not exist")
	require.Contains(t, fails(t, 1, "ls", "s3://models/absent.safetensors"), "absent.safetensors")
	require.Contains(t, fails(t, 1, "ls", "s3://none/x"), "s3://none/x")
	require.NotContains(t, fails(t, 1, "ls", "s3://none/x?nonsense=secret"), "secret")
}

// TestS3Multipart copies a tensor up and down in several parts.
func TestS3Multipart(t *testing.T) { eachStore(t, testS3Multipart) }

func testS3Multipart(t *testing.T, s *store) {
	require.NoError(t, safetensors.WriteFile("big.safetensors", map[string]safetensors.Tensor{"big": counting(t, 5<<20), "small": counting(t, 3)}, nil))
	succeeds(t, "cp", "big.safetensors", "s3://models/big.safetensors")
	require.Equal(t, slices.Repeat([]string{"PUT /models/big.safetensors"}, 3), s.puts())
	succeeds(t, "cp", "s3://models/big.safetensors", "back.safetensors")
	want := must(os.ReadFile("big.safetensors"))
	require.True(t, string(want) == string(must(os.ReadFile("back.safetensors"))), "the files are the same")

	// A part that fails leaves no object and no upload.
	s.setFault(forbids(func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" }))
	require.Contains(t, fails(t, 1, "cp", "big.safetensors", "s3://models/again.safetensors"), "AccessDenied")
	s.setFault(nil)
	require.Equal(t, []string{"big.safetensors"}, s.objects(t))
}
