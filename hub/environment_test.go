package hub

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// setEnvironment sets the home directory and the variables that huggingface_hub reads. Variables
// that env lacks become "".
func setEnvironment(t *testing.T, home string, env map[string]string) {
	for _, name := range []string{
		"HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_DISABLE_IMPLICIT_TOKEN",
		"HF_HOME", "XDG_CACHE_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
	} {
		t.Setenv(name, env[name])
	}
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
}

// TestHubOfTheEnvironment: endpoint and token come from the variables and files that
// huggingface_hub reads, in its order.
func TestHubOfTheEnvironment(t *testing.T) {
	home := t.TempDir()
	file := func(path, token string) string {
		writeFile(t, []byte(token), home, path)
		return filepath.Join(home, path)
	}
	file(".cache/huggingface/token", "default\n")
	file("xdg/huggingface/token", "xdg")
	file("hf/token", "hf")
	path := file("elsewhere", " path \r\n")
	long := file("long", strings.Repeat("x", 64<<10+1))
	edge := file("edge", "edge"+strings.Repeat(" ", 64<<10-len("edge")))
	for _, c := range []struct {
		name   string
		env    map[string]string
		client Client
		token  string
		url    string
	}{
		{name: "nothing set", token: "default", url: "https://huggingface.co/"},
		{name: "endpoint", env: map[string]string{"HF_ENDPOINT": "https://mirror/hf/"}, token: "default", url: "https://mirror/hf/"},
		{name: "token", env: map[string]string{"HF_TOKEN": " e\r\nnv\n", "HF_TOKEN_PATH": path}, token: "env"},
		{name: "token, old name", env: map[string]string{"HUGGING_FACE_HUB_TOKEN": "old"}, token: "old"},
		{name: "path of the token", env: map[string]string{"HF_TOKEN_PATH": path, "HF_HOME": home + "/hf"}, token: "path"},
		{name: "path of the token below ~", env: map[string]string{"HF_TOKEN_PATH": "~/elsewhere"}, token: "path"},
		{name: "file of 64 KiB", env: map[string]string{"HF_TOKEN_PATH": edge}, token: "edge"},
		{name: "file that is no token", env: map[string]string{"HF_TOKEN_PATH": long}},
		{name: "no file there", env: map[string]string{"HF_TOKEN_PATH": path + "x"}},
		{name: "home", env: map[string]string{"HF_HOME": "$HOME/hf", "XDG_CACHE_HOME": home + "/xdg"}, token: "hf"},
		{name: "cache", env: map[string]string{"XDG_CACHE_HOME": home + "/xdg"}, token: "xdg"},
		{name: "implicit token disabled", env: map[string]string{"HF_TOKEN": "env", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "yes"}},
		{name: "implicit token not disabled", env: map[string]string{"HF_TOKEN": "env", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0"}, token: "env"},
		{name: "client", env: map[string]string{"HF_TOKEN": "env", "HF_ENDPOINT": "https://env", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"},
			client: Client{Token: "mine", Endpoint: "http://mine"}, token: "mine", url: "http://mine/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			setEnvironment(t, home, c.env)
			require.Equal(t, c.token, cleanToken(c.client.Token))
			endpoint := must(parseEndpoint(c.client.Endpoint))
			if c.url != "" {
				require.Equal(t, c.url, endpoint.String())
			}
		})
	}
}

// TestEndpointThatIsNoURL: an invalid endpoint is an error that does not show secrets in it.
func TestEndpointThatIsNoURL(t *testing.T) {
	setEnvironment(t, t.TempDir(), map[string]string{"HF_ENDPOINT": "huggingface.co", "HF_TOKEN": "secret"})
	for _, endpoint := range []string{"", "localhost:80/secret", "ftp://user:secret@hub/?secret", "https://host/%zz?secret", "https:///x?secret"} {
		const text = "safetensors: the endpoint of the hub is not an absolute URL, which begins with http:// or https://"
		c := &Client{Endpoint: endpoint}
		require.EqualError(t, errorOf(c.Open(t.Context(), "o/n", "")), text)
		require.EqualError(t, errorOf(c.OpenFile(t.Context(), "o/n", "", modelFile)), text)
	}
}

// TestOffline opens files that are in the cache, and sends no request for other files. If the cache
// has only some of the shards of a model, the error ends with the names of the missing ones.
func TestOffline(t *testing.T) {
	s := newServer(t)
	s.add("/owner/name/resolve/main/other.safetensors", craft(100, 99))
	s.add("/owner/other/resolve/main/model.safetensors", craft(100, 99))
	cache := newCache(t)
	folder := filepath.Join(cache, "models--owner--name", "snapshots", commitTwo, "unet")
	require.NoError(t, safetensors.WriteShards(folder, map[string]safetensors.Tensor{"a": ones(t, 4), "b": ones(t, 4)}, nil, 4))
	writeFile(t, craft(100, 10), cache, "models--owner--part", "snapshots", commitOne, "model-00001-of-00002.safetensors")
	for _, variable := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		setEnvironment(t, t.TempDir(), map[string]string{"HF_HUB_CACHE": cache, variable: "1", "HF_ENDPOINT": s.URL})
		for _, c := range []struct {
			repo, revision, file string
			elements             int64
			text, absent         string
		}{
			{repo: "owner/name", elements: 11},
			{repo: "owner/name", revision: commitOne, elements: 10},
			{repo: "owner/name", file: modelFile, elements: 11},
			{repo: "owner/name", file: "unet/" + indexFile, elements: 8},
			{repo: "owner/name", file: "other.safetensors", text: `"other.safetensors" of owner/name at revision main is not in the cache `},
			{repo: "owner/name", revision: "v1", text: `"owner/name" at revision "v1" is not in the cache `},
			{repo: "owner/other", text: `"owner/other" at revision "main" is not in the cache `},
			{repo: "owner/other", file: modelFile, text: `"model.safetensors" of "owner/other" at revision "main" is not in the cache `},
			{repo: "owner/part", revision: commitOne, text: "the model of owner/part at revision " + commitOne + " is not in the cache ",
				absent: ": 1 of 2 shards is missing: model-00002-of-00002.safetensors"},
		} {
			open := func() (*safetensors.File, error) { return Open(t.Context(), c.repo, c.revision) }
			if c.file != "" {
				open = func() (*safetensors.File, error) { return OpenFile(t.Context(), c.repo, c.revision, c.file) }
			}
			f, err := open()
			if c.text == "" {
				require.NoError(t, err)
				require.Equal(t, c.elements, f.ParameterCount()[safetensors.U8])
				require.NoError(t, f.Close())
				continue
			}
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorContains(t, err, "safetensors: HF_HUB_OFFLINE is set: ")
			require.ErrorContains(t, err, c.text+cache)
			require.True(t, strings.HasSuffix(err.Error(), c.absent), "%v", err)
			require.NotContains(t, err.Error(), "no such file")
		}
	}
	require.Empty(t, s.requests)
	t.Setenv("TRANSFORMERS_OFFLINE", "0")
	f := must(OpenFile(t.Context(), "owner/name", "", "other.safetensors"))
	require.NoError(t, f.Close())
	require.NotEmpty(t, s.requests)
}

// ones returns a U8 tensor of n elements.
func ones(t *testing.T, n int) safetensors.Tensor {
	x := must(safetensors.NewTensor(safetensors.U8, []int{n}, bytes.Repeat([]byte{1}, n)))
	return x
}

// cacheEnvironments pairs the variables that set the cache with the expected path of the cache,
// relative to the home directory.
var cacheEnvironments = []struct {
	name  string
	env   map[string]string
	cache string
}{
	{"nothing set", nil, ".cache/huggingface/hub"},
	{"XDG_CACHE_HOME", map[string]string{"XDG_CACHE_HOME": "$HOME/xdg"}, "xdg/huggingface/hub"},
	{"HF_HOME", map[string]string{"HF_HOME": "~/hf", "XDG_CACHE_HOME": "$HOME/xdg"}, "hf/hub"},
	{"HUGGINGFACE_HUB_CACHE", map[string]string{"HUGGINGFACE_HUB_CACHE": "~/old", "HF_HOME": "~/hf"}, "old"},
	{"HF_HUB_CACHE", map[string]string{"HF_HUB_CACHE": "$HOME/new", "HUGGINGFACE_HUB_CACHE": "~/old", "HF_HOME": "~/hf"}, "new"},
}

// TestHubCache finds the cache by the variables that huggingface_hub reads.
func TestHubCache(t *testing.T) {
	home := t.TempDir()
	for _, c := range cacheEnvironments {
		t.Run(c.name, func(t *testing.T) {
			setEnvironment(t, home, c.env)
			require.Equal(t, filepath.Join(home, filepath.FromSlash(c.cache)), filepath.Clean(hubCache()))
		})
	}
}
