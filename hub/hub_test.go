package hub

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// addModel serves a model of several shards at a path. Shard i has an F32 tensor of 1000 elements,
// all of which are i, and an I8 tensor of 10 elements.
func addModel(t testing.TB, s *server, path string, shards int) {
	dir, tensors := t.TempDir(), make(map[string]safetensors.Tensor)
	for i := range shards {
		weight := slices.Repeat([]float32{float32(i)}, 1000)
		tensors[fmt.Sprintf("layer.%02d.weight", i)] = must(safetensors.NewTensor(safetensors.F32, []int{10, 100}, weight))
		tensors[fmt.Sprintf("layer.%02d.bias", i)] = must(safetensors.NewTensor(safetensors.I8, []int{10}, make([]int8, 10)))
	}
	require.NoError(t, safetensors.WriteShards(dir, tensors, nil, 4010))
	for _, file := range must(os.ReadDir(dir)) {
		s.add(path+file.Name(), must(os.ReadFile(filepath.Join(dir, file.Name()))))
	}
}

// TestOpenKeepsToACommit serves the shards of a model, and checks the requests: one for
// model.safetensors, which is missing, one for the index, and one for the header of each shard. If
// the first answer names a commit, all later requests are for files of that commit; otherwise they
// are for files of the branch.
func TestOpenKeepsToACommit(t *testing.T) {
	for name, c := range map[string]struct{ commit, path string }{
		"named":              {commitOne, "/o/n/resolve/" + commitOne + "/"},
		"not named":          {"", "/o/n/resolve/refs/pr/1/"},
		"named as no commit": {"../../x", "/o/n/resolve/refs/pr/1/"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			addModel(t, s, c.path, 72)
			commit := c.commit
			s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if commit != "" {
					w.Header().Set("X-Repo-Commit", commit)
					if commit == commitOne {
						commit = commitTwo // as if somebody pushed to the branch
					}
				}
				require.Equal(t, "Bearer token", r.Header.Get("Authorization"))
				return false
			}
			client := newClient(t, s.URL+"/")
			client.Token = "token"
			f := must(client.Open(t.Context(), "o/n", "refs/pr/1"))
			require.Len(t, s.requests, 1+1+72)
			require.Equal(t, map[safetensors.DType]int64{safetensors.F32: 72_000, safetensors.I8: 720}, f.ParameterCount())
			last := must(f.Tensor("layer.71.weight"))
			require.Equal(t, slices.Repeat([]float32{71}, 1000), must(safetensors.Append[float32](nil, last)))
			require.NoError(t, f.Close())
			require.ErrorIs(t, errorOf(safetensors.Append[float32](nil, last)), fs.ErrClosed)
			require.Equal(t, "/o/n/resolve/refs%2Fpr%2F1/model.safetensors", s.requests[0].URL.EscapedPath())
			for _, r := range s.requests[1:] {
				require.True(t, strings.HasPrefix(r.URL.Path, c.path+"model"), r.URL.Path)
			}
		})
	}
}

// TestSingleFileKeepsToACommit: when the signed URL on another host has expired, the client
// requests the file of the same commit from the hub again. Only the hub receives the token.
func TestSingleFileKeepsToACommit(t *testing.T) {
	hub, cdn := newServer(t), newServer(t)
	file := craft(100_000, 10)
	const mirrored = "/o/n/resolve/main/one" // looks like a path of the hub, but is on another host, and so is requested unchanged
	cdn.add(mirrored, file)
	hub.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Repo-Commit", commitOne)
		http.Redirect(w, r, cdn.URL+mirrored, http.StatusFound)
		return true
	}
	client := newClient(t, hub.URL)
	client.Token = "secret\r\n"
	f := must(client.OpenFile(t.Context(), "o/n", "", "a b%2F/c.safetensors"))
	defer f.Close()
	cdn.fault = statusOf(2, 403) // the second request
	x := must(f.Tensor("t"))
	must(safetensors.Append[byte](nil, x))
	require.Len(t, hub.requests, 2)
	require.Equal(t, "/o/n/resolve/main/a%20b%252F/c.safetensors", hub.requests[0].URL.EscapedPath())
	require.Equal(t, "/o/n/resolve/"+commitOne+"/a%20b%252F/c.safetensors", hub.requests[1].URL.EscapedPath())
	require.Len(t, cdn.requests, 3)
	for _, r := range slices.Concat(hub.requests, cdn.requests) {
		want := []string{"Bearer secret"}
		if r.Host == cdn.Listener.Addr().String() {
			want = nil
			require.Equal(t, mirrored, r.URL.Path)
		}
		require.Equal(t, want, r.Header["Authorization"])
	}
}

// A failing transport sends nothing, and returns err.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// TestTransport: Open returns an error of the client's transport, if that error rules out another
// try. It does not modify the client.
func TestTransport(t *testing.T) {
	sends := failing{http.ErrSchemeMismatch}
	client := newClient(t, "http://hub.test")
	client.HTTP = &http.Client{Transport: sends}
	require.ErrorIs(t, errorOf(client.Open(t.Context(), "o/n", "")), http.ErrSchemeMismatch)
	require.Equal(t, sends, client.HTTP.Transport)
}

// TestRenamedKeepsToACommit: the hub redirects requests for a renamed repository, and package
// remote continues with the new URL, which names the branch. The requests nevertheless keep to one
// commit.
func TestRenamedKeepsToACommit(t *testing.T) {
	for _, endpoint := range []string{"", "/a%20hub/resolve"} {
		hub := newServer(t)
		file := craft(100_000, 10)
		hub.add("/a hub/resolve/new/name/resolve/"+commitOne+"/x.safetensors", file)
		hub.add("/new/name/resolve/"+commitOne+"/x.safetensors", file)
		hub.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
			old, isOld := strings.CutPrefix(r.URL.EscapedPath(), endpoint+"/old/name/")
			switch {
			case isOld:
				http.Redirect(w, r, endpoint+"/new/name/"+old+"?a=b", http.StatusTemporaryRedirect)
			case n == 1: // the request for the file at the branch
				w.Header().Set("X-Repo-Commit", commitOne)
				w.Header().Set("ETag", `"v1"`)
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
			}
			return isOld || n == 1
		}
		client := newClient(t, strings.Replace(hub.URL, "://", "://user:password@", 1)+endpoint)
		f := must(client.OpenFile(t.Context(), "old/name", "", "x.safetensors"))
		defer f.Close()
		must(safetensors.Elements[byte](f, "t"))
		require.Len(t, hub.requests, 3)
		require.Equal(t, endpoint+"/new/name/resolve/main/x.safetensors", hub.requests[1].URL.EscapedPath())
		require.Equal(t, endpoint+"/new/name/resolve/"+commitOne+"/x.safetensors", hub.requests[2].URL.EscapedPath())
		require.Equal(t, "a=b", hub.requests[2].URL.RawQuery)
		for _, r := range hub.requests {
			_, password, _ := r.BasicAuth()
			require.Equal(t, "password", password)
		}
	}
}

// TestOpenRefuses has a row for each error of Open or, if the row has a file, of OpenFile.
func TestOpenRefuses(t *testing.T) {
	index := func(shard string) []byte { return []byte(`{"weight_map":{"t":"` + shard + `"}}`) }
	broken := new(*safetensors.FormatError)
	const noRepository, noFile = `does not name a repository, whose name has the form "owner/name"`, "does not name a file"
	for _, c := range []struct {
		name           string
		repo, revision string // the defaults are o/n and main
		file           string
		index          []byte // served at the name of the file, or as the index that Open requests
		fault          func(int, http.ResponseWriter, *http.Request) bool
		requests       int
		is             any // an error that errors.Is finds, or a target for errors.As
		text           string
	}{
		{name: "neither file", requests: 3, is: fs.ErrNotExist, text: "safetensors: open o/n at revision main: " + withoutToken},
		{name: "revision that is missing", revision: "v1", fault: statusOf(1, 404, "X-Error-Message", "Invalid rev id: v1"), requests: 1, is: fs.ErrNotExist,
			text: `safetensors: open o/n at revision v1: it has no such branch, tag or commit ("Invalid rev id: v1")`},
		{name: "revision that is missing, by its code", revision: "v1", fault: statusOf(1, 404, "X-Error-Code", "RevisionNotFound"), requests: 1, is: fs.ErrNotExist,
			text: "safetensors: open o/n at revision v1: it has no such branch, tag or commit"},
		{name: "repository that is missing, by its code", fault: statusOf(1, 404, "X-Error-Code", "RepoNotFound"), requests: 1, is: fs.ErrNotExist,
			text: "safetensors: open o/n at revision main: " + withoutToken},
		{name: "no permission for the index", fault: func(n int, w http.ResponseWriter, r *http.Request) bool {
			return statusOf(2, []int{404, 403}[n])(n, w, r)
		}, requests: 2, is: fs.ErrPermission, text: "safetensors: open o/n at revision main: " + withoutToken},
		{name: "no permission", fault: statusOf(1, 401, "X-Error-Message", "Repository not found"), requests: 1, is: fs.ErrPermission,
			text: "safetensors: open o/n at revision main: " + withoutToken + ` ("Repository not found")`},
		{name: "not an index", index: []byte("<html>"), requests: 2, is: broken, text: indexFile},
		{name: "shard outside of the repository", index: index("../../../other/repo/resolve/main/model.safetensors"), requests: 2, is: broken, text: "other/repo"},
		{name: "shard at another host", index: index("//127.0.0.1/x.safetensors"), requests: 2, is: broken, text: "127.0.0.1"},
		{name: "shard that is missing", index: index("x.safetensors"), requests: 3, is: fs.ErrNotExist, text: `it has no shard "x.safetensors", which the index "model.safetensors.index.json" names`},
		{name: "repository that goes up", repo: "..", text: noRepository},
		{name: "repository with an empty element", repo: "a//b", text: noRepository},
		{name: "repository, absolute", repo: "/a/b", text: noRepository},
		{name: "no repository", repo: ".", text: noRepository},
		{name: "no repository of a file", repo: "../n", file: modelFile, text: noRepository},
		{name: "revision that goes up", revision: "..", text: noRepository},

		{name: "the folder", file: ".", text: `"." ` + noFile},
		{name: "absolute", file: "/model.safetensors", text: noFile},
		{name: "above", file: "unet/../../x", text: noFile},
		{name: "not clean", file: "unet//x", text: noFile},
		{name: "folder", file: "unet/", text: noFile},
		{name: "missing", file: "a/b", requests: 1, is: fs.ErrNotExist, text: `it has no file "a/b"; or ` + withoutToken},
		{name: "missing index", file: "a/b.index.json", requests: 1, is: fs.ErrNotExist, text: `it has no file "a/b.index.json"; or ` + withoutToken},
		{name: "missing, by its code", file: "a/b", fault: statusOf(1, 404, "X-Error-Code", "EntryNotFound"), requests: 1, is: fs.ErrNotExist, text: `it has no file "a/b"`},
		{name: "no permission for a file", file: "a/b", fault: statusOf(1, 401), requests: 1, is: fs.ErrPermission, text: withoutToken},
		{name: "shard above the index", file: "unet/up.index.json", index: index("../model.safetensors"), requests: 1, is: broken, text: "../model.safetensors"},
		{name: "missing shard", file: "unet/lacks.index.json", index: index("x.safetensors"), requests: 2, is: fs.ErrNotExist, text: `it has no shard "unet/x.safetensors", which the index "unet/lacks.index.json" names`},
		{name: "HTML page", file: "page", index: []byte("<!DOCTYPE html><html></html>"), requests: 1, is: broken, text: "HTML page"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.fault = c.fault
			if c.index != nil {
				s.add("/o/n/resolve/main/"+cmp.Or(c.file, indexFile), c.index)
			}
			client, repo := newClient(t, s.URL), cmp.Or(c.repo, "o/n")
			var err error
			if c.file == "" {
				_, err = client.Open(t.Context(), repo, c.revision)
			} else {
				_, err = client.OpenFile(t.Context(), repo, c.revision, c.file)
			}
			require.ErrorContains(t, err, "safetensors: ")
			require.ErrorContains(t, err, c.text)
			if is, ok := c.is.(error); ok {
				require.ErrorIs(t, err, is)
			} else if c.is != nil {
				require.ErrorAs(t, err, c.is)
			}
			require.Len(t, s.requests, c.requests)
			if c.file != "" && c.requests > 0 {
				require.Regexp(t, "^safetensors: open ("+regexp.QuoteMeta(s.URL+"/o/n/resolve/main/"+c.file)+": |o/n at revision main: (it has no (?:file|shard)|no such repository))", err.Error())
			}
			for _, r := range s.requests {
				require.Regexp(t, "^/(o/n/resolve/(main|v1)/(a/|unet/)?[^/]*|api/models/o/n/revision/main)$", r.URL.Path)
			}
			if !strings.Contains(err.Error(), "shard ") {
				require.NotContains(t, err.Error(), "expected 20", "the errors speak of the repository")
			}
			require.LessOrEqual(t, strings.Count(err.Error(), s.URL), 2)
			require.NotContains(t, err.Error(), "\n", "one error")
		})
	}
	require.ErrorContains(t, errorOf(newClient(t, "").OpenFile(t.Context(), "o/n", "", "")), `"" `+noFile)
}

// TestOpenFile opens files and indexes by their names, with one request for each.
func TestOpenFile(t *testing.T) {
	s := newServer(t)
	const path = "/o/n/resolve/refs%2Fpr%2F1/"
	s.add("/o/n/resolve/refs/pr/1/unet/model.fp16.safetensors", craft(100, 10))
	s.add("/o/n/resolve/refs/pr/1/no suffix?#%2F", craft(100, 20))
	s.add("/o/n/resolve/refs/pr/1/unet/model.safetensors.index.fp16.json", []byte(`{"weight_map":{"t":"model.fp16.safetensors"}}`))
	addModel(t, s, "/o/n/resolve/refs/pr/1/text encoder/deep/", 3)
	client := newClient(t, s.URL)
	client.Token = "t0ken"
	for _, c := range []struct {
		name     string
		requests []string
		count    map[safetensors.DType]int64
	}{
		{"unet/model.fp16.safetensors", []string{"unet/model.fp16.safetensors"}, map[safetensors.DType]int64{safetensors.U8: 10}},
		{"no suffix?#%2F", []string{"no%20suffix%3F%23%252F"}, map[safetensors.DType]int64{safetensors.U8: 20}},
		{"unet/model.safetensors.index.fp16.json", []string{"unet/model.safetensors.index.fp16.json", "unet/model.fp16.safetensors"}, map[safetensors.DType]int64{safetensors.U8: 10}},
		{"text encoder/deep/model.safetensors.index.json", []string{
			"text%20encoder/deep/model.safetensors.index.json",
			"text%20encoder/deep/model-00001-of-00003.safetensors",
			"text%20encoder/deep/model-00002-of-00003.safetensors",
			"text%20encoder/deep/model-00003-of-00003.safetensors",
		}, map[safetensors.DType]int64{safetensors.F32: 3000, safetensors.I8: 30}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.requests = nil
			f := must(client.OpenFile(t.Context(), "o/n", "refs/pr/1", c.name))
			require.Equal(t, c.count, f.ParameterCount())
			var requests []string
			for _, r := range s.requests {
				requests = append(requests, strings.TrimPrefix(r.URL.EscapedPath(), path))
				require.Equal(t, "Bearer t0ken", r.Header.Get("Authorization"))
			}
			require.Equal(t, c.requests[0], requests[0])
			require.ElementsMatch(t, c.requests, requests)
		})
	}
}

// TestErrorsOfFS: if the hub refuses a file that it has listed, the error explains what that means
// for the repository. It advises to set HF_TOKEN only if no token is set.
func TestErrorsOfFS(t *testing.T) {
	for _, c := range []struct {
		status int
		token  string
		is     error
		text   string
	}{
		{403, "", fs.ErrPermission, withoutToken},
		{401, "token", fs.ErrPermission, "the token that is set may not read it"},
		{404, "", fs.ErrNotExist, `it has no file "a/model.safetensors"`},
		{410, "token", fs.ErrNotExist, `it has no file "a/model.safetensors"`},
	} {
		s := newServer(t)
		s.addRepo(t, map[string]string{"a/model.safetensors": string(craft(100, 10))})
		s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/resolve/") && statusOf(100, c.status)(0, w, r)
		}
		client := newClient(t, s.URL)
		client.Token = c.token
		fsys, err := client.FS(t.Context(), "owner/name", "")
		require.NoError(t, err)
		_, err = fsys.Open("a/model.safetensors")
		require.ErrorIs(t, err, c.is)
		require.ErrorContains(t, err, c.text)
		require.NotContains(t, err.Error(), "expected")
		require.Equal(t, c.token == "", strings.Contains(err.Error(), "HF_TOKEN"))
	}
}
