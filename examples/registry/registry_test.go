package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A server is a registry in memory on the loopback interface, which serves ranges
// and logs requests.
type server struct {
	http.Handler
	reference string                                        // in it
	answer    func(http.ResponseWriter, *http.Request) bool // reports whether it has answered

	mu  sync.Mutex
	log []string
}

func startServer(t *testing.T) *server {
	s := &server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	httpServer := httptest.NewServer(s)
	t.Cleanup(httpServer.Close)
	s.reference = strings.TrimPrefix(httpServer.URL, "http://") + "/models/llama:step-2000"
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("REGISTRY_AUTH_FILE", os.DevNull)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.log = append(s.log, r.Method+" "+r.URL.Path+" "+r.Header.Get("Range"))
	s.mu.Unlock()
	if s.answer == nil || !s.answer(w, r) {
		s.Handler.ServeHTTP(w, r)
	}
}

// requests returns those that contain a text, and forgets all.
func (s *server) requests(text string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return slices.DeleteFunc(log, func(r string) bool { return !strings.Contains(r, text) })
}

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// writeModel writes three matrices of 1 MiB in as many shards, and a config.json.
func writeModel(t *testing.T) (dir string) {
	tensors := make(map[string]safetensors.Tensor)
	for k := range 3 {
		values := make([]float32, 512*512)
		for i := range values {
			values[i] = float32(k*len(values) + i)
		}
		tensors[fmt.Sprintf("layers.%d.weight", k)] = must(safetensors.NewTensor(safetensors.F32, []int{512, 512}, values))
	}
	dir = t.TempDir()
	require.NoError(t, safetensors.WriteShards(dir, tensors, nil, 1<<20))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o666))
	return dir
}

func runs(t *testing.T, args ...string) string {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), args, &out))
	return out.String()
}

func fails(t *testing.T, want string, args ...string) {
	require.ErrorContains(t, run(t.Context(), args, io.Discard), want)
}

func TestPushListSlicePull(t *testing.T) {
	s, dir := startServer(t), writeModel(t)
	require.Equal(t, s.reference+": 5 layers\n", runs(t, "push", s.reference, dir))

	require.Equal(t, `"layers.0.weight"  F32 [512,512]
"layers.1.weight"  F32 [512,512]
"layers.2.weight"  F32 [512,512]
`, runs(t, "list", s.reference))

	// One rank's rows take the index, each header and the rows.
	local := must(safetensors.Open(dir))
	defer local.Close()
	want := must(must(local.Tensor("layers.1.weight")).Part(0, 3, 8))
	s.requests("")
	file := filepath.Join(t.TempDir(), "part.safetensors")
	printed := runs(t, "slice", "-rank", "3", "-of", "8", s.reference, "layers.1.weight", file)
	require.Equal(t, file+": \"layers.1.weight\" F32 [64,512]\n", printed)
	ranges := s.requests("bytes=")
	require.Len(t, ranges, 4)
	start := must(os.Stat(filepath.Join(dir, "model-00002-of-00003.safetensors"))).Size() - 512*512*4 + 3*want.Size()
	require.Contains(t, ranges[3], fmt.Sprintf(" bytes=%d-%d", start, start+want.Size()-1))
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{"layers.1.weight": want}, nil))
	require.True(t, bytes.Equal(b.Bytes(), must(os.ReadFile(file))))

	copied := filepath.Join(t.TempDir(), "copy")
	require.Equal(t, copied+": 5 files\n", runs(t, "pull", s.reference, copied))
	files := must(os.ReadDir(copied))
	require.Len(t, files, 5)
	for _, f := range files {
		want := must(os.ReadFile(filepath.Join(dir, f.Name())))
		require.True(t, bytes.Equal(want, must(os.ReadFile(filepath.Join(copied, f.Name())))), f.Name())
	}

	// What is there is not uploaded again.
	s.requests("")
	runs(t, "push", s.reference, dir)
	require.Empty(t, s.requests("POST"))
}

// TestManifest checks that the manifest and the config are those of ModelPack.
func TestManifest(t *testing.T) {
	s, dir := startServer(t), writeModel(t)
	runs(t, "push", s.reference, dir)
	ref := must(name.ParseReference(s.reference))
	got := must(remote.Get(ref))
	require.Equal(t, types.OCIManifestSchema1, got.MediaType)
	var m v1.Manifest
	require.NoError(t, json.Unmarshal(got.Manifest, &m))
	require.Equal(t, "application/vnd.cncf.model.manifest.v1+json", m.ArtifactType)
	require.EqualValues(t, "application/vnd.cncf.model.config.v1+json", m.Config.MediaType)
	var layers []string
	var digests []string
	for _, l := range m.Layers {
		layers = append(layers, fmt.Sprint(l.Annotations["org.cncf.model.filepath"], " ", l.MediaType))
		digests = append(digests, fmt.Sprintf("%q", l.Digest))
	}
	require.Equal(t, []string{
		"config.json application/vnd.cncf.model.weight.config.v1.raw",
		"model-00001-of-00003.safetensors application/vnd.cncf.model.weight.v1.raw",
		"model-00002-of-00003.safetensors application/vnd.cncf.model.weight.v1.raw",
		"model-00003-of-00003.safetensors application/vnd.cncf.model.weight.v1.raw",
		"model.safetensors.index.json application/vnd.cncf.model.weight.config.v1.raw",
	}, layers)
	layer := must(remote.Layer(ref.Context().Digest(m.Config.Digest.String())))
	description := must(io.ReadAll(must(layer.Compressed())))
	require.JSONEq(t, `{"descriptor": {}, "config": {"format": "safetensors"},
		"modelfs": {"type": "layers", "diffIds": [`+strings.Join(digests, ",")+`]}}`, string(description))
}

// pushLayers pushes an artifact of layers with these contents.
func pushLayers(t *testing.T, reference string, layers []v1.Descriptor, contents ...[]byte) {
	ref := must(name.ParseReference(reference))
	for i := range layers {
		l := static.NewLayer(contents[i], layers[i].MediaType)
		require.NoError(t, remote.WriteLayer(ref.Context(), l))
		layers[i].Digest = must(l.Digest())
		layers[i].Size = int64(len(contents[i]))
	}
	require.NoError(t, remote.Put(ref, &artifact{Manifest: v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		Config:        layers[0],
		Layers:        layers,
	}}))
}

func shard(t *testing.T, tensor string) []byte {
	x := must(safetensors.NewTensor(safetensors.U8, []int{3}, []uint8{1, 2, 3}))
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{tensor: x}, nil))
	return b.Bytes()
}

// TestDocker checks that shards packaged by Docker's model runner are one model.
func TestDocker(t *testing.T) {
	s := startServer(t)
	pushLayers(t, s.reference, []v1.Descriptor{
		{MediaType: "application/vnd.docker.ai.safetensors"},
		{MediaType: "application/vnd.docker.ai.vllm.config.tar"},
		{MediaType: "application/vnd.docker.ai.safetensors"},
		{MediaType: "application/vnd.docker.ai.license"},
	}, shard(t, "b"), []byte("tar"), shard(t, "a"), []byte("license"))
	require.Equal(t, "\"b\"  U8 [3]\n\"a\"  U8 [3]\n", runs(t, "list", s.reference))
	dir := t.TempDir()
	runs(t, "pull", s.reference, dir)
	f := must(safetensors.Open(filepath.Join(dir, "layer-00002.safetensors")))
	require.EqualValues(t, 3, f.ParameterCount()[safetensors.U8])
	require.NoError(t, f.Close())
}

// TestDigest checks that a whole layer is not taken with a wrong byte.
func TestDigest(t *testing.T) {
	s, dir := startServer(t), writeModel(t)
	runs(t, "push", s.reference, dir)
	s.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") || r.Header.Get("Range") != "" {
			return false
		}
		whole := httptest.NewRecorder()
		s.Handler.ServeHTTP(whole, r)
		body := whole.Body.Bytes()
		body[len(body)/2] ^= 1
		w.Write(body)
		return true
	}
	fails(t, "sha256", "list", s.reference) // of the index
	copied := t.TempDir()
	fails(t, "sha256", "pull", s.reference, copied)
	files := must(os.ReadDir(copied))
	require.Empty(t, files)
}

// TestCredentials checks that ranges are requested with the credentials of the
// registry, and that the bucket it redirects to does not get them.
func TestCredentials(t *testing.T) {
	s, dir := startServer(t), writeModel(t)
	runs(t, "push", s.reference, dir)
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Empty(t, r.Header.Get("Authorization"))
		s.Handler.ServeHTTP(w, r)
	}))
	defer bucket.Close()
	redirected := 0
	s.answer = func(w http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		switch {
		case user != "user" || password != "secret":
			w.Header().Set("WWW-Authenticate", `Basic realm="models"`)
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/"):
			redirected++
			http.Redirect(w, r, bucket.URL+r.URL.Path, http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	}
	fails(t, "401", "list", s.reference)
	host, _, _ := strings.Cut(s.reference, "/")
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"),
		fmt.Appendf(nil, `{"auths": {%q: {"username": "user", "password": "secret"}}}`, host), 0o600))
	require.Contains(t, runs(t, "list", s.reference), "layers.2.weight")
	require.Positive(t, redirected)
}

func TestErrors(t *testing.T) {
	s, dir := startServer(t), writeModel(t)
	fails(t, "usage:")
	fails(t, "usage:", "list", s.reference, "more")
	fails(t, "usage:", "remove", s.reference)
	fails(t, "NAME_UNKNOWN", "list", s.reference)
	fails(t, "NAME_UNKNOWN", "pull", s.reference, "copy")
	fails(t, "no such file", "push", s.reference, filepath.Join(dir, "none"))
	runs(t, "push", s.reference, dir)
	fails(t, "layers.9.weight", "slice", s.reference, "layers.9.weight", "file")
	fails(t, "no such file", "slice", s.reference, "layers.1.weight", filepath.Join(dir, "none", "file"))
	fails(t, "7 does not divide the size 512", "slice", "-of", "7", s.reference, "layers.1.weight", "file")

	named := func(kind types.MediaType, file string) v1.Descriptor {
		return v1.Descriptor{MediaType: kind, Annotations: map[string]string{filePath: file}}
	}
	listFails := func(want string, content []byte, layers ...v1.Descriptor) {
		pushLayers(t, s.reference, layers, content, content)
		fails(t, want, "list", s.reference)
	}
	weight := named(typeWeight, "m.safetensors")
	listFails("its tensors cannot be read by ranges", nil, named("application/vnd.cncf.model.weight.v1.tar+gzip", "model.safetensors"), weight)
	listFails(`no layer is the file "x/model-00001-of-00002.safetensors"`, []byte(`{"weight_map": {"a": "model-00001-of-00002.safetensors"}}`),
		named(typeConfigFile, "x/model.safetensors.index.json"), weight)
	listFails("is a safetensors file", []byte("{}"), named(typeConfigFile, "config.json"))
	listFails(`duplicate file "m.safetensors"`, nil, weight, weight)

	outside := t.TempDir()
	inside := filepath.Join(outside, "model")
	for _, file := range []string{"../model.safetensors", filepath.Join(outside, "model.safetensors"), "a/../../model.safetensors"} {
		pushLayers(t, s.reference, []v1.Descriptor{named(typeWeight, file)}, shard(t, "a"))
		fails(t, "escapes", "pull", s.reference, inside)
	}
	files := must(os.ReadDir(outside))
	require.Len(t, files, 1)
}
