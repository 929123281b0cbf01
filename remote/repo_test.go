package remote

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// addModel serves a model of some shards, with a tensor of 1000 F32 and one of
// 10 I8 in each, at a path. It returns the values of both in the last shard.
func addModel(t testing.TB, s *server, path string, shards int) (weight []float32, bias []int8) {
	var index []string
	for i := range shards {
		weight, bias = make([]float32, 1000), make([]int8, 10)
		weight[0], bias[0] = float32(i), int8(i)
		w, err := safetensors.NewTensor(safetensors.F32, []int{10, 100}, weight)
		require.NoError(t, err)
		b, err := safetensors.NewTensor(safetensors.I8, []int{10}, bias)
		require.NoError(t, err)
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		wName, bName := fmt.Sprintf("layer.%d.weight", i), fmt.Sprintf("layer.%d.bias", i)
		s.add(path+name, encode(t, map[string]safetensors.Tensor{wName: w, bName: b}))
		index = append(index, fmt.Sprintf("%q:%q,%q:%q", wName, name, bName, name))
	}
	s.add(path+osfile.IndexFile, []byte(`{"metadata":{},"weight_map":{`+strings.Join(index, ",")+`}}`))
	return weight, bias
}

func TestOpenRepoSharded(t *testing.T) {
	const shards = 72
	s := newServer(t)
	weight, _ := addModel(t, s, "/owner/name/resolve/main/", shards)
	client, _ := newClient(t, s.URL+"/")
	f, err := client.OpenRepo(t.Context(), "owner/name", "")
	require.NoError(t, err)
	require.Equal(t, map[safetensors.DType]int64{safetensors.F32: shards * 1000, safetensors.I8: shards * 10}, f.ParameterCount())
	require.Len(t, s.ranges(), 1+1+shards, "no model.safetensors, the index, the header of each shard")

	last, err := f.Tensor("layer.71.weight")
	require.NoError(t, err)
	got, err := safetensors.Append[float32](nil, last)
	require.NoError(t, err)
	require.Equal(t, weight, got)
	require.NoError(t, f.Close())
	_, err = safetensors.Append[float32](nil, last)
	require.ErrorIs(t, err, fs.ErrClosed)
}

func TestOpenRepoSideBySide(t *testing.T) {
	s := newServer(t)
	addModel(t, s, "/o/n/resolve/main/", 2*inFlight)
	waiting := make(chan struct{}, 2*inFlight)
	full := make(chan struct{})
	s.fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n < 2 || n >= 2+inFlight {
			return false
		}
		if waiting <- struct{}{}; len(waiting) == inFlight {
			close(full)
		}
		<-full // which only the last of them opens
		return false
	}
	client, _ := newClient(t, s.URL)
	_, err := client.OpenRepo(t.Context(), "o/n", "")
	require.NoError(t, err)
}

func TestOpenRepoSingle(t *testing.T) {
	s := newServer(t)
	s.add("/owner/name/resolve/refs/pr/1/model.safetensors", craft(100, 10))
	client, _ := newClient(t, s.URL)
	client.Token = "t0ken\r\n"
	f, err := client.OpenRepo(t.Context(), "owner/name", "refs/pr/1")
	require.NoError(t, err)
	require.Equal(t, map[safetensors.DType]int64{safetensors.U8: 10}, f.ParameterCount())
	require.Len(t, s.requests, 1)
	require.Equal(t, "/owner/name/resolve/refs%2Fpr%2F1/model.safetensors", s.requests[0].URL.EscapedPath())
	require.Equal(t, "Bearer t0ken", s.requests[0].Header.Get("Authorization"))
}

func TestOpenRepoKeepsToACommit(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for name, c := range map[string]struct{ commit, path string }{
		"named":               {commit, "/o/n/resolve/" + commit + "/"},
		"not named":           {"", "/o/n/resolve/main/"},
		"named as what is no": {"../../x", "/o/n/resolve/main/"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			addModel(t, s, c.path, 2)
			s.files["/o/n/resolve/main/"+osfile.IndexFile] = s.files[c.path+osfile.IndexFile]
			s.fault = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				if c.commit != "" {
					w.Header().Set("X-Repo-Commit", c.commit)
				}
				return false
			}
			client, _ := newClient(t, s.URL)
			_, err := client.OpenRepo(t.Context(), "o/n", "main")
			require.NoError(t, err)
			for _, r := range s.requests[2:] {
				require.True(t, strings.HasPrefix(r.URL.Path, c.path+"model-"), r.URL.Path)
			}
		})
	}
}

func TestOpenIndexByURL(t *testing.T) {
	s := newServer(t)
	addModel(t, s, "/some/folder/", 3)
	client, _ := newClient(t, "")
	f, err := client.Open(t.Context(), s.URL+"/some/folder/"+osfile.IndexFile+"?download=true")
	require.NoError(t, err)
	require.Equal(t, int64(30), f.ParameterCount()[safetensors.I8])
	require.Len(t, s.ranges(), 4)
}

func TestIndexIsRetried(t *testing.T) {
	s := newServer(t)
	addModel(t, s, "/f/", 1)
	index := s.files["/f/"+osfile.IndexFile]
	client, clock := newClient(t, "")
	s.fault = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		switch n {
		case 0:
			w.WriteHeader(503)
		case 1:
			w.Header().Set("Content-Length", fmt.Sprint(len(index)))
			w.Write(index[:10])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			return false
		}
		return true
	}
	_, err := client.Open(t.Context(), s.URL+"/f/"+osfile.IndexFile)
	require.NoError(t, err)
	require.Len(t, clock.pauses, 2)
}

func TestOpenRepoRefuses(t *testing.T) {
	index := func(shard string) []byte { return []byte(`{"weight_map":{"t":"` + shard + `"}}`) }
	var broken *safetensors.FormatError
	for _, c := range []struct {
		name           string
		repo, revision string
		index          []byte
		fault          func(int, http.ResponseWriter, *http.Request) bool
		is             error
		as             any
		text           string
	}{
		{name: "neither file", is: fs.ErrNotExist, text: osfile.IndexFile + ": status 404 Not Found, expected 200 OK"},
		{name: "neither file, the other", is: fs.ErrNotExist, text: "main/model.safetensors: bytes 0-100007: status 404"},
		{name: "no permission", fault: first(1, statusOf(401, "X-Error-Message", "Repository not found")), is: fs.ErrPermission, text: "Repository not found"},
		{name: "not an index", index: []byte("<html>"), as: &broken, text: osfile.IndexFile},
		{name: "shard outside of the repository", index: index("../../../other/repo/resolve/main/model.safetensors"), as: &broken, text: "other/repo"},
		{name: "shard at another host", index: index("//127.0.0.1/x.safetensors"), as: &broken, text: "127.0.0.1"},
		{name: "shard that is missing", index: index("x.safetensors"), is: fs.ErrNotExist, text: `shard "x.safetensors"`},
		{name: "repository above", repo: "..", text: "does not name a repository"},
		{name: "repository with a hole", repo: "a//b", text: "does not name a repository"},
		{name: "repository, absolute", repo: "/a/b", text: "does not name a repository"},
		{name: "no repository", repo: ".", text: "does not name a repository"},
		{name: "revision above", revision: "..", text: "does not name a repository"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.fault = c.fault
			if c.index != nil {
				s.add("/o/n/resolve/main/"+osfile.IndexFile, c.index)
			}
			if c.repo == "" {
				c.repo = "o/n"
			}
			client, _ := newClient(t, s.URL)
			_, err := client.OpenRepo(t.Context(), c.repo, c.revision)
			require.ErrorContains(t, err, c.text)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			if c.as != nil {
				require.ErrorAs(t, err, c.as)
			}
			for _, r := range s.requests {
				require.True(t, strings.HasPrefix(r.URL.Path, "/o/n/resolve/main/"), r.URL.Path)
			}
		})
	}
}

func TestTokenGoesToTheHubOnly(t *testing.T) {
	hub, other := newServer(t), newServer(t)
	hub.add("/m", craft(100, 10))
	other.add("/m", craft(100, 10))
	client, _ := newClient(t, hub.URL)
	client.Token = "secret"
	openTensor(t, client, hub.URL+"/m")
	openTensor(t, client, other.URL+"/m")
	require.Equal(t, "Bearer secret", hub.requests[0].Header.Get("Authorization"))
	require.Empty(t, other.requests[0].Header.Get("Authorization"))

	client.Header = http.Header{"Authorization": {"Basic x"}}
	openTensor(t, client, hub.URL+"/m")
	require.Equal(t, "Basic x", hub.requests[1].Header.Get("Authorization"))
}

func TestHubOfTheEnvironment(t *testing.T) {
	home := t.TempDir()
	file := func(path, token string) string {
		path = filepath.Join(home, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
		return path
	}
	file(".cache/huggingface/token", "default\n")
	file("xdg/huggingface/token", "xdg")
	file("hf/token", "hf")
	path := file("elsewhere", " path \r\n")
	for _, c := range []struct {
		name   string
		env    map[string]string
		client Client
		token  string
		url    string
	}{
		{name: "nothing set", token: "default", url: "https://huggingface.co"},
		{name: "endpoint", env: map[string]string{"HF_ENDPOINT": "https://mirror/hf/"}, token: "default", url: "https://mirror/hf/"},
		{name: "token", env: map[string]string{"HF_TOKEN": " env\n", "HF_TOKEN_PATH": path}, token: "env"},
		{name: "token, old name", env: map[string]string{"HUGGING_FACE_HUB_TOKEN": "old"}, token: "old"},
		{name: "path of the token", env: map[string]string{"HF_TOKEN_PATH": path, "HF_HOME": home + "/hf"}, token: "path"},
		{name: "path of the token below ~", env: map[string]string{"HF_TOKEN_PATH": "~/elsewhere"}, token: "path"},
		{name: "no file there", env: map[string]string{"HF_TOKEN_PATH": path + "x"}},
		{name: "home", env: map[string]string{"HF_HOME": "$HOME/hf", "XDG_CACHE_HOME": home + "/xdg"}, token: "hf"},
		{name: "cache", env: map[string]string{"XDG_CACHE_HOME": home + "/xdg"}, token: "xdg"},
		{name: "implicit token disabled", env: map[string]string{"HF_TOKEN": "env", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "yes"}},
		{name: "implicit token not disabled", env: map[string]string{"HF_TOKEN": "env", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0"}, token: "env"},
		{name: "client", env: map[string]string{"HF_TOKEN": "env", "HF_ENDPOINT": "https://env", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"},
			client: Client{Token: "mine", Endpoint: "http://mine"}, token: "mine", url: "http://mine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range []string{"HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME", "HF_HUB_DISABLE_IMPLICIT_TOKEN"} {
				t.Setenv(name, c.env[name])
			}
			t.Setenv("HOME", home)
			t.Setenv("USERPROFILE", home)
			h, err := c.client.hub()
			require.NoError(t, err)
			require.Equal(t, c.token, h.token)
			if c.url != "" {
				require.Equal(t, c.url, h.url.String())
			}
		})
	}
	t.Setenv("HF_ENDPOINT", "huggingface.co")
	_, err := OpenRepo(t.Context(), "o/n", "")
	require.ErrorContains(t, err, "not an absolute http or https URL")
}
