package main

import (
	"crypto/elliptic"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fakeHub publishes the sums of the repository owner/name. Nothing can be downloaded
// from it.
type fakeHub struct {
	mu       sync.Mutex
	entries  []map[string]any
	requests []string
}

func startFakeHub(t *testing.T) *fakeHub {
	t.Helper()
	h := new(fakeHub)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"HF_ENDPOINT": server.URL + "/hub", "HF_HOME": t.TempDir(), "HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": "", "HF_TOKEN": "token",
		"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "", "HTTP_PROXY": "", "http_proxy": "",
	} {
		t.Setenv(name, value)
	}
	return h
}

func (h *fakeHub) add(name, content string, lfs bool) {
	git := func(text string) string {
		return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)))
	}
	e := map[string]any{"rfilename": name, "blobId": git(content), "size": len(content)}
	if lfs {
		e["blobId"] = git("the pointer")
		e["lfs"] = map[string]any{"sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(content))), "size": len(content)}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, e)
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r.URL.EscapedPath())
	if r.Header.Get("Authorization") != "Bearer token" || path.Dir(r.URL.EscapedPath()) != "/hub/api/models/owner/name/revision" {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": h.entries})
}

// commit is what the revisions of a fakeHub stand for.
const commit = "0123456789012345678901234567890123456789"

func (h *fakeHub) taken() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.requests
	h.requests = nil
	return taken
}

// TestVerifyHub compares a folder with the sums of the hub.
func TestVerifyHub(t *testing.T) {
	t.Chdir(t.TempDir())
	h := startFakeHub(t)
	files := map[string]string{"config.json": "{}\n", "model.safetensors": "weights", "sub/x": "small", ".gitattributes": "lfs", "README.md": ""}
	for _, name := range []string{"README.md", "config.json", ".gitattributes", "model.safetensors", "sub/x"} {
		h.add(name, files[name], name == "model.safetensors")
		write(t, "model/"+name, files[name])
	}
	h.add("onnx/model.onnx", "not downloaded", true)
	write(t, "model/.git/config", "")
	write(t, "model/.cache/huggingface/download/x.metadata", "")
	good := ".gitattributes: OK\nREADME.md: OK\nconfig.json: OK\nmodel.safetensors: OK\nsub/x: OK\non the hub, but not here: 1\n"
	require.Equal(t, good, succeeds(t, "verify", "model", "--hub", "owner/name"))
	require.Equal(t, []string{"/hub/api/models/owner/name/revision/main"}, h.taken(), "nothing but sums is downloaded")
	succeeds(t, "verify", "model", "--hub", "owner/name@refs/pr/1")
	require.Equal(t, "/hub/api/models/owner/name/revision/refs%2Fpr%2F1", h.taken()[0])

	write(t, "model/model.safetensors", "weightz")
	write(t, "model/sub/x", "smal")
	write(t, "model/evil.py", "")
	r := runs(t, "verify", "model", "--hub", "owner/name")
	require.Equal(t, result{".gitattributes: OK\nREADME.md: OK\nconfig.json: OK\nevil.py: NOT ON THE HUB\nmodel.safetensors: DIFFERS\nsub/x: DIFFERS\non the hub, but not here: 1\n", "", 1}, r)
	r = runs(t, "verify", "--json", "model", "--hub", "owner/name", "--ignore", ".gitattributes")
	require.Equal(t, result{`{"file":"model","ok":false,"files":[{"name":".gitattributes","result":"ok"},{"name":"README.md","result":"ok"},{"name":"config.json","result":"ok"},` +
		`{"name":"evil.py","result":"uncovered"},{"name":"model.safetensors","result":"different"},{"name":"sub/x","result":"different"}],"absent":1}` + "\n", "", 1}, r)
	write(t, "model/model.safetensors", "weights")
	write(t, "model/sub/x", "small")
	require.Equal(t, good, succeeds(t, "verify", "model", "--hub", "owner/name", "--ignore", "evil.py"))
	require.Contains(t, fails(t, 1, "verify", "model/.git", "--hub", "owner/name"), "")
	write(t, "empty/.git/x", "")
	r = runs(t, "verify", "empty", "--hub", "owner/name", "--json")
	require.Equal(t, result{`{"file":"empty","ok":false,"files":[],"absent":6}` + "\n", "safetensors: empty: none of its files is on the hub\n", 1}, r)

	// What a hub may answer.
	require.Contains(t, fails(t, 1, "verify", "model", "--hub", "owner/other"), "status 401 Unauthorized")
	require.Contains(t, fails(t, 1, "verify", "model", "--hub", "../name"), "does not name a repository")
	h.mu.Lock()
	h.entries[0]["blobId"] = "../x"
	h.mu.Unlock()
	require.Contains(t, fails(t, 1, "verify", "model", "--hub", "owner/name"), `the hub gives "README.md" the sum "../x"`)
	h.taken()
	t.Setenv("HF_HUB_OFFLINE", "1")
	require.Contains(t, fails(t, 1, "verify", "model", "--hub", "owner/name"), "HF_HUB_OFFLINE is set")
	require.Empty(t, h.taken())
	require.Contains(t, fails(t, 2, "verify", "s3://x/y", "--hub", "owner/name"), "--hub compares local files")
	require.Contains(t, fails(t, 2, "verify", "model", "m", "--hub", "owner/name"), "--hub goes with --ignore only")
}

// TestVerifyHubCache finds a corrupted entry of the cache of the Python tools, which
// consists of links.
func TestVerifyHubCache(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege on Windows")
	}
	t.Chdir(t.TempDir())
	h := startFakeHub(t)
	cache := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--owner--name")
	write(t, filepath.Join(cache, "refs", "main"), commit)
	entry := func(name, content, blob string) {
		h.add(name, content, true)
		write(t, filepath.Join(cache, "blobs", blob), content)
		link := filepath.Join(cache, "snapshots", commit, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o777))
		target := must(filepath.Rel(filepath.Dir(link), filepath.Join(cache, "blobs", blob)))
		require.NoError(t, os.Symlink(target, link))
	}
	entry("model.safetensors", "weights", "b10b")
	entry("sub/config.json", "{}", "c0de")
	require.Equal(t, "model.safetensors: OK\nsub/config.json: OK\n", succeeds(t, "verify", "hf://owner/name"))
	require.Equal(t, []string{"/hub/api/models/owner/name/revision/" + commit}, h.taken(), "of the commit that is there")

	write(t, filepath.Join(cache, "blobs", "b10b"), "weightz")
	r := runs(t, "verify", "hf://owner/name@main")
	require.Equal(t, 1, r.code)
	require.Regexp(t, `^model.safetensors: DIFFERS, .*b10b\nsub/config.json: OK\n$`, r.stdout)
	require.NoError(t, os.Remove(filepath.Join(cache, "blobs", "b10b")))
	r = runs(t, "verify", "hf://owner/name")
	require.Equal(t, result{"sub/config.json: OK\nmodel.safetensors: MISSING, the link leads nowhere\n", "", 1}, r)
	require.Contains(t, runs(t, "verify", "hf://owner/name", "--json").stdout, `"files":[{"name":"sub/config.json","result":"ok"},{"name":"model.safetensors","result":"missing"}]`)
	require.Contains(t, fails(t, 1, "verify", "hf://owner/absent"), "in the cache")
	require.Contains(t, fails(t, 1, "verify", "hf://owner/name/sub"), "expected a whole repository")

	// A signature of what is in the cache.
	writeKeys(t, "key", elliptic.P256())
	succeeds(t, "sign", filepath.Join(cache, "snapshots", commit), "--key", "key.pem", "--allow-symlinks", "--ignore", "model.safetensors", "--out", "s.sig")
	require.Contains(t, succeeds(t, "verify", "hf://owner/name", "--signature", "s.sig", "--public-key", "key.pub"), "sub/config.json: OK")
}
