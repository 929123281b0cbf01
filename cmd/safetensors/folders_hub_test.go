package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A folderHub serves a folder as owner/name does on the hub: large files are redirected to another
// port of the same host, which must not get the token.
type folderHub struct {
	*faulty           // the other host
	dir, files string // its URL
	sizes      bool   // are told
}

func startFolderHub(t *testing.T, dir string, sizes bool) *folderHub {
	t.Helper()
	h := &folderHub{&faulty{Handler: http.FileServer(http.Dir(dir)), entry: askedFor}, dir, "", sizes}
	startHub(t, ".") // for the environment
	h.files = serve(t, h.content)
	t.Setenv("HF_ENDPOINT", serve(t, h.hub))
	return h
}

func (h *folderHub) hub(w http.ResponseWriter, r *http.Request) {
	name, file := strings.CutPrefix(strings.Replace(r.URL.Path, "/main/", "/"+commit+"/", 1), "/owner/name/resolve/"+commit+"/")
	switch {
	case r.Header.Get("Authorization") != "Bearer token":
		http.Error(w, "no", http.StatusUnauthorized)
	case strings.HasPrefix(r.URL.Path, "/api/models/owner/name/revision/"):
		listRepository(w, h.dir, commit, h.sizes)
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

// firstBytes are what opening a file asks for.
const firstBytes = "bytes=0-100007"

// wantsRest reports whether a request is for the rest of a file.
func wantsRest(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Range"), "bytes=100008-")
}

// sends answers a request for the rest of a file, of which n bytes come.
func sends(w http.ResponseWriter, file string, n int) {
	w.Header().Set("Content-Range", fmt.Sprintf("bytes 100008-%d/%d", len(file)-1, len(file)))
	w.Header().Set("Content-Length", fmt.Sprint(len(file)-100_008))
	w.WriteHeader(http.StatusPartialContent)
	io.WriteString(w, file[100_008:][:n])
}

// content answers for the host that has the large files.
func (h *folderHub) content(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "the token got out", http.StatusTeapot)
		return
	}
	h.ServeHTTP(w, r)
}

// askedFor returns the path of a request, and the range if that is not the rest of the file.
func askedFor(r *http.Request) string {
	if wantsRest(r) {
		return r.URL.Path
	}
	return r.URL.Path + " " + r.Header.Get("Range")
}

// taken returns which large files were asked for, but for their headers, and sets what breaks.
func (h *folderHub) taken(fault fault) []string {
	h.setFault(fault)
	log := slices.DeleteFunc(h.requests(), func(entry string) bool { return strings.HasSuffix(entry, " "+firstBytes) })
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
	h := startFolderHub(t, "repo", sizes)
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
		if !wantsRest(r) || broken.Swap(true) {
			return false
		}
		sends(w, want[strings.Trim(r.URL.Path, "/")], 50)
		return true
	})
	succeeds(t, "cp", "hf://owner/name", "again")
	require.Equal(t, want, tree(t, "again"))
	log := h.taken(nil)
	require.Len(t, log, 4)
	require.Contains(t, strings.Join(log, "\n"), " bytes=100058-")

	// Other bytes are not what the hub says.
	h.taken(func(w http.ResponseWriter, r *http.Request) bool {
		text := []byte(want[strings.Trim(r.URL.Path, "/")])
		if text[len(text)-1]++; wantsRest(r) {
			sends(w, string(text), len(text)-100_008)
		}
		return wantsRest(r)
	})
	require.Contains(t, fails(t, 1, "cp", "hf://owner/name", "wrong"), "-of-00003.safetensors: it does not have the sum that the hub gives")
	require.Empty(t, list(t, "wrong"))
	h.taken(func(w http.ResponseWriter, r *http.Request) bool {
		if wantsRest(r) {
			sends(w, strings.Repeat("changed", 15_000), 4992)
		}
		return wantsRest(r)
	})
	require.Contains(t, fails(t, 1, "cp", "hf://owner/name", "changed"), fmt.Sprintf("it has 105000 bytes, had %d", len(want["model-00001-of-00003.safetensors"])))
	require.Empty(t, list(t, "changed"))
}

// refuses is the fault that a file cannot be fetched.
func refuses(name string) fault {
	return forbids(func(r *http.Request) bool { return r.URL.Path == name && wantsRest(r) })
}

// TestContinueRepository: the shards of a copy that ended early are not fetched again, unless they
// are no longer what the hub says.
func TestContinueRepository(t *testing.T) {
	t.Chdir(t.TempDir())
	want := writeFolder(t, "repo", 0)
	h := startFolderHub(t, "repo", false)
	const second = "/model-00002-of-00003.safetensors"
	refuse := refuses(second)
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

// TestContinueURL: shards that have no sums are known again by their sizes, while their tags are
// those of the copy that ended early.
func TestContinueURL(t *testing.T) {
	t.Chdir(t.TempDir())
	want := writeFolder(t, "web", 0)
	h := startFolderHub(t, "web", false)
	const second = "/model-00002-of-00003.safetensors"
	args := []string{"cp", h.files + "/model.safetensors.index.json", "copy"}
	begin := func() {
		require.NoError(t, os.RemoveAll("copy"))
		h.taken(refuses(second))
		require.Contains(t, fails(t, 1, args...), "403")
		require.Equal(t, []string{".safetensors-copy.json", "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"}, list(t, "copy"))
		h.taken(nil)
	}
	const replaced = "model-00001-of-00003.safetensors exists; --force replaces it"
	begin() // a shard of something else with the same size is not taken for a copy
	write(t, "copy/model-00001-of-00003.safetensors", want["model-00002-of-00003.safetensors"])
	require.Contains(t, fails(t, 1, args...), replaced)
	begin()
	succeeds(t, args...)
	require.Equal(t, []string{second}, h.taken(nil))
	require.Equal(t, want, tree(t, "copy"), "and the record is gone")
	require.Contains(t, fails(t, 1, args...), "exists; --force replaces it")
	begin()
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes("web/model-00001-of-00003.safetensors", later, later))
	require.Contains(t, fails(t, 1, args...), replaced)

	// Nor are the shards of an earlier checkpoint, which have the same names and sizes.
	require.NoError(t, os.RemoveAll("copy"))
	writeFolder(t, "old", 9)
	succeeds(t, "cp", "old", "copy")
	h.taken(refuses(second))
	require.Contains(t, fails(t, 1, append(args, "--force")...), "403")
	require.Equal(t, "equal\n", succeeds(t, "diff", "old", "copy"))
	h.taken(nil)
	succeeds(t, append(args, "--force")...)
	require.Equal(t, "equal\n", succeeds(t, "diff", "web", "copy"))
}

// TestCopyPipelinePart: a folder of a pipeline on the hub keeps the names of diffusers, and has
// variants. A model in one file is copied as it is.
func TestCopyPipelinePart(t *testing.T) {
	t.Chdir(t.TempDir())
	want := writeFolder(t, "shards", 0)
	one, two := want["model-00001-of-00003.safetensors"], want["model-00002-of-00003.safetensors"]
	write(t, "repo/model_index.json", "{}")
	write(t, "repo/unet/config.json", "{}\n")
	write(t, "repo/unet/diffusion_pytorch_model.safetensors", one)
	write(t, "repo/unet/diffusion_pytorch_model.fp16.safetensors", two)
	h := startFolderHub(t, "repo", false)
	succeeds(t, "cp", "hf://owner/name/unet", "unet", "--with-files")
	require.Len(t, h.taken(nil), 1)
	require.Equal(t, map[string]string{"config.json": "{}\n", "diffusion_pytorch_model.safetensors": one}, tree(t, "unet"))
	succeeds(t, "cp", "hf://owner/name/unet", "half", "--variant", "fp16")
	require.Equal(t, map[string]string{"diffusion_pytorch_model.fp16.safetensors": two}, tree(t, "half"))
	require.Contains(t, fails(t, 1, "ls", "hf://owner/name/unet", "--variant", "bf16"), `no file of the variant "bf16"`)
	require.Contains(t, fails(t, 1, "ls", "hf://owner/name"), "unet")
	write(t, "repo/model.safetensors", two)
	h.taken(nil)
	succeeds(t, "cp", "hf://owner/name", "whole")
	require.Equal(t, map[string]string{"model.safetensors": two}, tree(t, "whole"))
	require.Len(t, h.taken(nil), 1)
}
