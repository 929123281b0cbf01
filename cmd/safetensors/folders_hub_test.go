package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A folderHub serves a folder as owner/name does on the hub: large files are redirected to another
// port of the same host, which must not get the token.
type folderHub struct {
	dir, files string // the URL of the other host
	sizes      bool   // are told
	mu         sync.Mutex
	log        []string
	fault      func(http.ResponseWriter, *http.Request) bool // reports whether it has answered; of the other host
}

func startFolderHub(t *testing.T, dir string) *folderHub {
	t.Helper()
	h := &folderHub{dir: dir}
	startFakeHub(t) // for the environment
	serve := func(handler http.HandlerFunc) string {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return server.URL
	}
	t.Setenv("HF_ENDPOINT", serve(h.hub))
	h.files = serve(h.content)
	return h
}

func (h *folderHub) hub(w http.ResponseWriter, r *http.Request) {
	name, file := strings.CutPrefix(strings.Replace(r.URL.Path, "/main/", "/"+commit+"/", 1), "/owner/name/resolve/"+commit+"/")
	switch {
	case r.Header.Get("Authorization") != "Bearer token":
		http.Error(w, "no", http.StatusUnauthorized)
	case strings.HasPrefix(r.URL.Path, "/api/models/owner/name/revision/"):
		h.list(w)
	case !file:
		http.NotFound(w, r)
	case strings.HasSuffix(name, ".safetensors"):
		if _, err := os.Stat(filepath.Join(h.dir, name)); err != nil {
			http.NotFound(w, r)
			return
		}
		http.Redirect(w, r, h.files+"/"+name+"?signature=secret", http.StatusFound)
	default:
		http.ServeFile(w, r, filepath.Join(h.dir, name))
	}
}

func (h *folderHub) list(w http.ResponseWriter) {
	var entries []map[string]any
	fs.WalkDir(os.DirFS(h.dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text := must(os.ReadFile(filepath.Join(h.dir, name)))
		entry := map[string]any{"rfilename": name, "blobId": gitSum(string(text))}
		if strings.HasSuffix(name, ".safetensors") {
			entry["lfs"] = map[string]any{"sha256": fmt.Sprintf("%x", sha256.Sum256(text))}
		}
		if h.sizes {
			entry["size"] = len(text)
		}
		entries = append(entries, entry)
		return nil
	})
	json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": entries})
}

// content answers for the host that has the large files.
func (h *folderHub) content(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "the token got out", http.StatusTeapot)
		return
	}
	h.mu.Lock()
	fault := h.fault
	if !strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") { // a header
		h.log = append(h.log, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
	}
	h.mu.Unlock()
	if fault == nil || !fault(w, r) {
		http.ServeFile(w, r, filepath.Join(h.dir, filepath.FromSlash(strings.Trim(r.URL.Path, "/"))))
	}
}

// taken returns which large files were asked for, but for their headers, and sets what breaks.
func (h *folderHub) taken(fault func(http.ResponseWriter, *http.Request) bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	log := h.log
	h.log, h.fault = nil, fault
	slices.Sort(log)
	return log
}

// TestCopyRepository: a file is one request and a header, the copy is what the hub says, and the
// token stays with the hub.
func TestCopyRepository(t *testing.T) {
	for _, sizes := range []bool{false, true} {
		t.Run(fmt.Sprintf("sizes %t", sizes), func(t *testing.T) { testCopyRepository(t, sizes) })
	}
}

func testCopyRepository(t *testing.T, sizes bool) {
	t.Chdir(t.TempDir())
	want := writeFolder(t, "repo", 0)
	for name, text := range map[string]string{"1_Pooling/config.json": "{}\n", "tokenizer.json": `{"a":1}`, ".gitattributes": "*", "onnx/model.onnx": "x"} {
		write(t, "repo/"+name, text)
	}
	h := startFolderHub(t, "repo")
	h.sizes = sizes
	files := []string{"/model-00001-of-00003.safetensors", "/model-00002-of-00003.safetensors", "/model-00003-of-00003.safetensors"}
	for _, src := range []string{"hf://owner/name", "hf://owner/name/model.safetensors.index.json"} {
		dst := filepath.Base(src) + "-copy"
		succeeds(t, "cp", src, dst)
		require.Equal(t, want, tree(t, dst), src)
		require.Equal(t, files, h.taken(nil), src)
		require.Contains(t, succeeds(t, "verify", dst, "--hub", "owner/name"), "model.safetensors.index.json: OK\n")
	}
	succeeds(t, "cp", "hf://owner/name", "files", "--with-files")
	verdicts := succeeds(t, "verify", "files", "--hub", "owner/name")
	require.Contains(t, verdicts, "1_Pooling/config.json: OK\n")
	require.Contains(t, verdicts, "tokenizer.json: OK\n")
	require.NotContains(t, verdicts, "onnx")

	// A conversion keeps the shards.
	succeeds(t, "cp", "hf://owner/name", "converted", "--dtype", "bf16")
	require.Equal(t, keysOf(want), list(t, "converted"))

	// An answer that breaks off goes on where it ended.
	var broken atomic.Bool
	h.taken(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" || broken.Swap(true) {
			return false
		}
		text := want[strings.Trim(r.URL.Path, "/")]
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		fmt.Fprint(w, text[:50])
		return true
	})
	succeeds(t, "cp", "hf://owner/name", "again")
	require.Equal(t, want, tree(t, "again"))
	log := h.taken(nil)
	require.Len(t, log, 4)
	require.Contains(t, strings.Join(log, "\n"), " bytes=50-")

	// Other bytes are not what the hub says.
	h.taken(func(w http.ResponseWriter, r *http.Request) bool {
		text := []byte(want[strings.Trim(r.URL.Path, "/")])
		if text[len(text)-1]++; r.Header.Get("Range") == "" {
			w.Write(text)
		}
		return r.Header.Get("Range") == ""
	})
	require.Contains(t, fails(t, 1, "cp", "hf://owner/name", "wrong"), "does not have the sum that the hub gives")
	require.Empty(t, list(t, "wrong"))
	h.taken(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") == "" {
			fmt.Fprint(w, "changed")
		}
		return r.Header.Get("Range") == ""
	})
	text := "does not have the sum that the hub gives"
	if sizes {
		text = fmt.Sprintf("the answer has 7 bytes, expected %d", len(want["model-00001-of-00003.safetensors"]))
	}
	require.Contains(t, fails(t, 1, "cp", "hf://owner/name", "changed"), text)
	require.Empty(t, list(t, "changed"))
}

// TestCopyOneFileRepository: a model in one file is copied as it is, from a folder too.
func TestCopyOneFileRepository(t *testing.T) {
	t.Chdir(t.TempDir())
	want := writeFolder(t, "shards", 0)
	mkdir(t, "repo/sub")
	for _, name := range []string{"repo/model.safetensors", "repo/sub/model.safetensors"} {
		write(t, name, want["model-00001-of-00003.safetensors"])
	}
	h := startFolderHub(t, "repo")
	for _, src := range []string{"hf://owner/name", "hf://owner/name/sub"} {
		dst := filepath.Base(src) + "-copy"
		succeeds(t, "cp", src, dst)
		require.Equal(t, map[string]string{"model.safetensors": want["model-00001-of-00003.safetensors"]}, tree(t, dst))
		require.Len(t, h.taken(nil), 1)
	}
}

// TestContinueRepository: the shards of a copy that ended early are not fetched again, unless they
// are no longer what the hub says.
func TestContinueRepository(t *testing.T) {
	t.Chdir(t.TempDir())
	want := writeFolder(t, "repo", 0)
	h := startFolderHub(t, "repo")
	const second = "/model-00002-of-00003.safetensors"
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == second && r.Header.Get("Range") == "" {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	for _, damaged := range []bool{false, true} {
		h.taken(refuse)
		require.Contains(t, fails(t, 1, "cp", "hf://owner/name", "copy"), "403")
		require.Equal(t, []string{"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"}, list(t, "copy"))
		again, args := []string{second}, []string{"cp", "hf://owner/name", "copy"}
		if damaged {
			text := []byte(want["model-00003-of-00003.safetensors"])
			text[len(text)-1]++
			write(t, "copy/model-00003-of-00003.safetensors", string(text))
			require.Contains(t, fails(t, 1, args...), "model-00003-of-00003.safetensors exists; --force replaces it")
			again, args = append(again, "/model-00003-of-00003.safetensors"), append(args, "--force")
		}
		h.taken(nil)
		succeeds(t, args...)
		require.Equal(t, again, h.taken(refuse))
		require.Equal(t, want, tree(t, "copy"))
		require.NoError(t, os.RemoveAll("copy"))
	}
}

// TestCopyURL: shards of a web server, which gives no sums, stay shards.
func TestCopyURL(t *testing.T) {
	t.Chdir(t.TempDir())
	want := writeFolder(t, "web", 0)
	server := httptest.NewServer(http.FileServer(http.Dir("web")))
	t.Cleanup(server.Close)
	succeeds(t, "cp", server.URL+"/model.safetensors.index.json", "copy")
	require.Equal(t, keysOf(want), list(t, "copy"))
	require.Equal(t, "equal\n", succeeds(t, "diff", "web", "copy"))
}
