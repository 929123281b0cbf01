package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func gitSum(text string) string {
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)))
}

// commit is what the revisions of a hub stand for.
const commit = "0123456789012345678901234567890123456789"

// prepareHub writes the folder model that a hub has too, and the cache of the Python tools,
// which consists of links, with another revision of it.
func prepareHub(t *testing.T, dir string) []string {
	files := map[string]string{"config.json": "{}\n", "model.safetensors": "weights", "sub/x": "small", ".gitattributes": "lfs", "README.md": ""}
	published := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(published, name), text)
		write(t, filepath.Join(dir, "model", name), text)
	}
	write(t, filepath.Join(published, "onnx/model.onnx"), "not downloaded")
	url, _ := startHub(t, published)
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
	return []string{"HF_ENDPOINT=" + url + "/hub", "HF_TOKEN=token", "HF_HOME=" + filepath.Join(dir, "hf")}
}

// TestVerifyHub downloads nothing but sums, and shows it if these are strange.
func TestVerifyHub(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "repo/README.md", "")
	write(t, "model/README.md", "")
	url, requests := startHub(t, "repo")
	t.Setenv("HF_ENDPOINT", url+"/hub")
	for revision, request := range map[string]string{"": "main", "@refs/pr/1": "refs%2Fpr%2F1", "@" + commit: commit} {
		require.Equal(t, "README.md: OK\n", succeeds(t, "verify", "model", "--hub", "owner/name"+revision))
		require.Equal(t, []string{"/hub/api/models/owner/name/revision/" + request}, requests())
	}
	for at := int64(1); ; at++ { // in each round, another operation that reads the model fails
		f := &readFault{at: at}
		got := runsThrough(f, []string{"verify", "model", "--hub", "owner/name"})
		if f.failed.Load() == nil {
			require.Greater(t, at, int64(2))
			break
		}
		require.Equal(t, exitFailed, got.code, *f.failed.Load())
		require.Contains(t, got.stdout+got.stderr, errInjected.Error(), *f.failed.Load())
	}
	requests()
	t.Setenv("HF_ENDPOINT", serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"sha":%q,"siblings":[{"rfilename":"README.md","blobId":"../x","size":0}]}`, commit)
	}))
	require.Contains(t, fails(t, 1, "verify", "model", "--hub", "owner/name"), `the hub gives "README.md" the sum "../x"`)
	t.Setenv("HF_ENDPOINT", url)
	t.Setenv("HF_HUB_OFFLINE", "1")
	require.Contains(t, fails(t, 1, "verify", "model", "--hub", "owner/name"), "HF_HUB_OFFLINE is set")
	require.Empty(t, requests())
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
			entry["blobId"] = gitSum("the pointer")
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
