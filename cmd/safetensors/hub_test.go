package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
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

func gitSum(text string) string {
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)))
}

func (h *fakeHub) add(name, content string, lfs bool) {
	e := map[string]any{"rfilename": name, "blobId": gitSum(content), "size": len(content)}
	if lfs {
		e["blobId"] = gitSum("the pointer")
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

// prepareHub writes the folder model that a hub has too, and the cache of the Python tools,
// which consists of links, with another revision of it.
func prepareHub(t *testing.T, dir string) []string {
	h := startFakeHub(t)
	files := map[string]string{"config.json": "{}\n", "model.safetensors": "weights", "sub/x": "small", ".gitattributes": "lfs", "README.md": ""}
	for _, name := range []string{"README.md", "config.json", ".gitattributes", "model.safetensors", "sub/x"} {
		h.add(name, files[name], name == "model.safetensors")
		write(t, filepath.Join(dir, "model", name), files[name])
	}
	h.add("onnx/model.onnx", "not downloaded", true)
	write(t, filepath.Join(dir, "model/.git/config"), "")
	write(t, filepath.Join(dir, "model/.cache/huggingface/download/x.metadata"), "")

	cache := filepath.Join(dir, "hf/hub/models--owner--name")
	write(t, filepath.Join(cache, "refs/main"), commit)
	for blob, name := range map[string]string{"b10b": "model.safetensors", "c0de": "sub/x"} {
		write(t, filepath.Join(cache, "blobs", blob), files[name])
		link := filepath.Join(cache, "snapshots", commit, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o777))
		require.NoError(t, os.Symlink(strings.Repeat("../", 2+strings.Count(name, "/"))+"blobs/"+blob, link))
	}
	return []string{"HF_ENDPOINT=" + os.Getenv("HF_ENDPOINT"), "HF_TOKEN=token", "HF_HOME=" + filepath.Join(dir, "hf")}
}

// TestVerifyHub downloads nothing but sums, and shows it if these are strange.
func TestVerifyHub(t *testing.T) {
	t.Chdir(t.TempDir())
	h := startFakeHub(t)
	h.add("README.md", "", false)
	write(t, "model/README.md", "")
	for revision, request := range map[string]string{"": "main", "@refs/pr/1": "refs%2Fpr%2F1", "@" + commit: commit} {
		require.Equal(t, "README.md: OK\n", succeeds(t, "verify", "model", "--hub", "owner/name"+revision))
		require.Equal(t, []string{"/hub/api/models/owner/name/revision/" + request}, h.taken())
	}
	h.mu.Lock()
	h.entries[0]["blobId"] = "../x"
	h.mu.Unlock()
	require.Contains(t, fails(t, 1, "verify", "model", "--hub", "owner/name"), `the hub gives "README.md" the sum "../x"`)
	h.taken()
	t.Setenv("HF_HUB_OFFLINE", "1")
	require.Contains(t, fails(t, 1, "verify", "model", "--hub", "owner/name"), "HF_HUB_OFFLINE is set")
	require.Empty(t, h.taken())
}

// listRepository answers with the list of a folder, as the hub does of a repository.
func listRepository(w io.Writer, dir, commit string, sizes bool) {
	entries := []map[string]any{}
	fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if size := must(e.Info()).Size(); size > 1<<20 { // without sums
			entries = append(entries, map[string]any{"rfilename": name, "size": size})
			return nil
		}
		text := must(os.ReadFile(filepath.Join(dir, name)))
		entry := map[string]any{"rfilename": name, "blobId": gitSum(string(text))}
		if strings.HasSuffix(name, ".safetensors") {
			entry["lfs"] = map[string]any{"sha256": fmt.Sprintf("%x", sha256.Sum256(text))}
		}
		if sizes {
			entry["size"] = len(text)
		}
		entries = append(entries, entry)
		return nil
	})
	json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": entries})
}
