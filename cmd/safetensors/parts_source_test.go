package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestPartsOtherFolder: two folders of one commit of a repository are two sources, even if
// the headers in them are the same.
func TestPartsOtherFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	for i, step := range []string{"step-1", "step-2"} {
		mkdir(t, "repo", step)
		tensors := map[string]safetensors.Tensor{"x": floats(t, []int{1}, float32(i))}
		require.NoError(t, safetensors.WriteFile("repo/"+step+"/model.safetensors", tensors, nil))
	}
	startHub(t, "repo")
	part := func(step string) []string {
		return []string{"cp", "-q", "hf://owner/name/" + step, "dst", "--max-shard-size", "1GB", "--part", "1/1"}
	}
	succeeds(t, part("step-1")...)
	succeeds(t, part("step-1")...)
	require.Contains(t, fails(t, 3, part("step-2")...), "it knows no owner/name/step-2 in SRC")
}

// TestPartsOfFolders: shards of an index at a URL may have the same name in two folders. Each
// of them counts.
func TestPartsOfFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a", "b"} {
		mkdir(t, "web", name)
		require.NoError(t, safetensors.WriteFile("web/"+name+"/x.safetensors", map[string]safetensors.Tensor{name: counting(t, 10)}, nil))
	}
	index := `{"metadata":{},"weight_map":{"a":"a/x.safetensors","b":"b/x.safetensors"}}`
	require.NoError(t, os.WriteFile("web/model.safetensors.index.json", []byte(index), 0o666))
	url := serve(t, http.FileServer(http.Dir("web")).ServeHTTP)
	part := []string{"cp", "-q", url + "/model.safetensors.index.json", "dst", "--max-shard-size", "40B", "--part", "1/2"}
	succeeds(t, part...)
	for i, name := range []string{"a/x.safetensors", "b/x.safetensors"} {
		info := must(os.Stat("web/" + name))
		require.NoError(t, os.Chtimes("web/"+name, time.Time{}, time.Unix(int64(i+1), 0)))
		require.Contains(t, fails(t, 3, part...), name+" in SRC has changed")
		require.NoError(t, os.Chtimes("web/"+name, time.Time{}, info.ModTime()))
		succeeds(t, part...)
	}
}

// TestPartsWithoutTags: a server that tells nothing by which a change could be noticed.
func TestPartsWithoutTags(t *testing.T) {
	t.Chdir(t.TempDir())
	writePartsSource(t, "src.safetensors")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open("src.safetensors")
		if err == nil {
			defer f.Close()
			http.ServeContent(w, r, "", time.Time{}, f)
		}
	})
	r := fails(t, 3, "cp", "-q", url+"/x.safetensors", "dst", "--max-shard-size", "1GB", "--part", "1/1")
	require.Contains(t, r, "nothing tells whether x.safetensors changes")
	require.NoDirExists(t, "dst")
}

// TestPartsForceAgain has the store refuse to remove a shard of the job whose plan is taken
// away: the next try removes it.
func TestPartsForceAgain(t *testing.T) {
	c := clouds(t)["s3"]
	writePartsSource(t, "src.safetensors")
	part := func(k int, flags ...string) []string {
		return append([]string{"cp", "-q", "src.safetensors", c.at("dst"), "--part", fmt.Sprintf("%d/2", k), "--max-shard-size"}, flags...)
	}
	succeeds(t, part(1, "200B")...)
	handler := c.faults.Handler
	c.faults.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	fails(t, 1, part(1, "400B", "--force")...)
	c.faults.serve(handler)
	succeeds(t, part(1, "400B", "--force")...)
	succeeds(t, part(2, "400B", "--force")...)
	succeeds(t, "cp", "-q", "src.safetensors", c.at("plain"), "--max-shard-size", "400B")
	plain, dst := 0, 0
	for key := range c.objects() {
		if strings.HasPrefix(key, "plain/") {
			plain++
		} else if key != "dst/"+planFile {
			dst++
		}
	}
	require.Equal(t, plain, dst)
}
