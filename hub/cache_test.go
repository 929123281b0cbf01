package hub

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
)

// writeFile writes a file, and creates the directories that contain it.
func writeFile(t *testing.T, data []byte, elements ...string) {
	name := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
	require.NoError(t, os.WriteFile(name, data, 0o600))
}

// newCache makes a cache with two commits of a repository. If the system has symbolic links, its
// files are links, as in the cache of huggingface_hub.
func newCache(t *testing.T) string {
	cache := t.TempDir()
	repo := filepath.Join(cache, "models--owner--name")
	for i, commit := range []string{commitOne, commitTwo} {
		blob := fmt.Sprintf("%064d", i)
		writeFile(t, craft(100, 10+i), repo, "blobs", blob)
		dir := filepath.Join(repo, "snapshots", commit)
		require.NoError(t, os.MkdirAll(dir, 0o700))
		if testplatform.HasSymlinks(t) {
			require.NoError(t, os.Symlink(filepath.Join("..", "..", "blobs", blob), filepath.Join(dir, modelFile)))
		} else {
			writeFile(t, craft(100, 10+i), dir, modelFile)
		}
	}
	writeFile(t, []byte(commitTwo), repo, "refs", "main")
	writeFile(t, []byte(commitOne), repo, "refs", "refs", "pr", "1")
	writeFile(t, []byte(strings.Repeat("f", 40)), repo, "refs", "gone")
	writeFile(t, []byte(commitOne+"\n"), repo, "refs", "edited")
	writeFile(t, []byte(commitOne+strings.Repeat(" ", 1024-40)), repo, "refs", "padded")
	writeFile(t, []byte(commitOne+strings.Repeat(" ", 1025-40)), repo, "refs", "long")
	for _, ref := range []string{"", ".", "..", "../../../elsewhere", "/elsewhere", "a\x00b"} {
		writeFile(t, []byte(ref), repo, "refs", fmt.Sprintf("bad-%d", len(ref)))
	}
	writeFile(t, craft(100, 10), cache, "models--gpt2", "snapshots", commitOne, modelFile)
	writeFile(t, craft(100, 10), cache, "elsewhere", modelFile)
	return cache
}

// TestCacheDir finds the directory of a revision in the cache of the Python tools. A name or a
// revision that would leave the cache is refused.
func TestCacheDir(t *testing.T) {
	cache := newCache(t)
	setEnvironment(t, t.TempDir(), map[string]string{"HF_HUB_CACHE": cache})
	at := func(elements ...string) string { return filepath.Join(append([]string{cache}, elements...)...) }
	absent := func(repo, revision string) string {
		return fmt.Sprintf("safetensors: %q at revision %q is not in the cache %s", repo, revision, cache)
	}
	const notNamed = "does not name a repository"
	for _, c := range []struct {
		name, repo, revision string
		commit               string // commit to which the directory belongs
		missing              string // text of an error that wraps fs.ErrNotExist
		text                 string // text of any other error
	}{
		{"main by default", "owner/name", "", commitTwo, "", ""},
		{"branch", "owner/name", "main", commitTwo, "", ""},
		{"branch with slashes", "owner/name", "refs/pr/1", commitOne, "", ""},
		{"branch whose file ends in a newline", "owner/name", "edited", commitOne, "", ""},
		{"branch whose file has 1 KiB", "owner/name", "padded", commitOne, "", ""},
		{"commit", "owner/name", commitOne, commitOne, "", ""},
		{"repository without an owner", "gpt2", commitOne, commitOne, "", ""},

		{"repository that is missing", "owner/other", "", "", absent("owner/other", "main"), ""},
		{"revision that is missing", "owner/name", "v1", "", absent("owner/name", "v1"), ""},
		{"commit that is missing", "gpt2", commitTwo, "", absent("gpt2", commitTwo), ""},
		{"commit of a branch that is missing", "owner/name", "gone", "", absent("owner/name", "gone"), ""},
		{"branch whose file has more than 1 KiB", "owner/name", "long", "", "", "it has more than 1024 bytes"},
		{"repository that goes up", "..", "", "", "", notNamed},
		{"revision in the name", "owner/name@v1", "", "", "", `"owner/name@v1" is not the name of a repository, which has the form "owner/name": the revision "v1" is an argument of its own, after "owner/name"`},
		{"URL of a hub", "https://huggingface.co/owner/name", "", "", "", `is a URL, not the name of a repository, which has the form "owner/name": expected "owner/name"`},
		{"URL of the command", "hf://owner/name", "", "", "", `is a URL, not the name of a repository, which has the form "owner/name": expected "owner/name"`},
		{"repository that goes down and up", "a/../..", "", "", "", notNamed},
		{"absolute repository", "/owner/name", "", "", "", notNamed},
		{"no repository", "", "", "", "", notNamed},
		{"revision that goes up", "owner/name", "../../../elsewhere", "", "", notNamed},
		{"absolute revision", "owner/name", "/etc/passwd", "", "", notNamed},
		{"repository with a NUL", "a\x00b", "", "", "", "invalid"},
		{"revision with a NUL", "owner/name", "a\x00b", "", "", "invalid"},
		{"empty commit", "owner/name", "bad-0", "", "", "invalid"},
		{"commit that is the folder itself", "owner/name", "bad-1", "", "", "invalid"},
		{"commit that is the folder above", "owner/name", "bad-2", "", "", "invalid"},
		{"commit elsewhere", "owner/name", "bad-18", "", "", "invalid"},
		{"absolute commit", "owner/name", "bad-10", "", "", "invalid"},
		{"commit with a NUL", "owner/name", "bad-3", "", "", "invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := CacheDir(c.repo, c.revision)
			of, _ := (&Client{Endpoint: "https://mirror.test"}).CacheDir(c.repo, c.revision)
			require.Equal(t, dir, of, "the cache is one for all endpoints")
			if c.commit == "" {
				require.Empty(t, dir)
				require.ErrorContains(t, err, "safetensors: ")
				require.ErrorContains(t, err, cmp.Or(c.text, c.missing))
				require.Equal(t, c.missing != "", errors.Is(err, fs.ErrNotExist))
				require.True(t, c.missing == "" || err.Error() == c.missing, "%v", err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, at("models--"+strings.ReplaceAll(c.repo, "/", "--"), "snapshots", c.commit), dir)
			f := must(safetensors.Open(dir))
			require.NoError(t, f.Close())
		})
	}
}

// TestPipesAreNotWaitedFor puts named pipes in the place of all files of the cache that are read,
// and of the token.
func TestPipesAreNotWaitedFor(t *testing.T) {
	cache := newCache(t)
	repo := filepath.Join(cache, "models--owner--name")
	token := filepath.Join(t.TempDir(), "token")
	setEnvironment(t, t.TempDir(), map[string]string{"HF_HUB_CACHE": cache, "HF_TOKEN_PATH": token, "HF_HUB_OFFLINE": "1"})
	testplatform.MakePipe(t, token)
	testplatform.MakePipe(t, filepath.Join(repo, "refs", "pipe"))
	testplatform.MakePipe(t, filepath.Join(repo, "snapshots", commitOne, "config.json"))
	testplatform.MakePipe(t, filepath.Join(repo, "snapshots", commitOne, "pipe.safetensors"))
	require.ErrorContains(t, errorOf(CacheDir("owner/name", "pipe")), "is a named pipe")
	require.ErrorContains(t, errorOf(new(Client).ReadFile(t.Context(), "owner/name", commitOne, "config.json")), "is a named pipe")
	require.ErrorContains(t, errorOf(new(Client).OpenFile(t.Context(), "owner/name", commitOne, "pipe.safetensors")), "is a named pipe")
	require.Empty(t, cleanToken(""))
}

// TestCacheDirOfPython compares CacheDir with the directory to which huggingface_hub downloads, and
// opens that directory. Its files are symbolic links to files that are named by their hashes.
func TestCacheDirOfPython(t *testing.T) {
	python := os.Getenv("SAFETENSORS_PYTHON")
	if python == "" {
		python = "python3"
	}
	if runtime.GOOS == "windows" {
		t.Skip("huggingface_hub does not expand $HOME on this system")
	}
	if out, err := exec.Command(python, "-c", "import huggingface_hub").CombinedOutput(); err != nil {
		require.NotEqual(t, "1", os.Getenv("SAFETENSORS_REQUIRE_PYTHON"), "%s", out)
		t.Skipf("%s: %v\n%s", python, err, out)
	}
	const script = `
import os, sys
for name, value in list(os.environ.items()):
    if not value: del os.environ[name]
from huggingface_hub import hf_hub_download
_, endpoint, repo, *revisions = sys.argv
for revision in revisions:
    print(os.path.dirname(hf_hub_download(repo, "model.safetensors", revision=revision, endpoint=endpoint)))
`
	file := craft(100, 10)
	s := newServer(t)
	s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Repo-Commit", commitOne)
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
		return true
	}
	for i, c := range cacheEnvironments {
		t.Run(c.name, func(t *testing.T) {
			setEnvironment(t, t.TempDir(), c.env)
			repo := []string{"owner/name", "gpt2", "a-b/c_d.e"}[i%3]
			out, err := exec.Command(python, "-B", "-c", script, s.URL, repo, "main", "refs/pr/1", commitOne).CombinedOutput()
			require.NoError(t, err, "%s", out)
			want := strings.Fields(string(out))
			require.Len(t, want, 3)
			for k, revision := range []string{"", "refs/pr/1", commitOne} {
				dir := must(CacheDir(repo, revision))
				require.Equal(t, want[k], dir)
				require.Contains(t, filepath.ToSlash(must(os.Readlink(filepath.Join(dir, modelFile)))), "../../blobs/")
				f := must(safetensors.Open(dir))
				require.Equal(t, 10, must(f.Tensor("t")).Len())
				require.NoError(t, f.Close())
			}
		})
	}
}
