package remote

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors/internal/osfile"
)

// setEnvironment sets the home folder and the variables that huggingface_hub
// reads, those that env lacks to "".
func setEnvironment(t *testing.T, home string, env map[string]string) {
	for _, name := range []string{
		"HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_DISABLE_IMPLICIT_TOKEN",
		"HF_HOME", "XDG_CACHE_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
	} {
		t.Setenv(name, env[name])
	}
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
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
			setEnvironment(t, home, c.env)
			h, err := c.client.hub()
			require.NoError(t, err)
			require.Equal(t, c.token, h.token)
			if c.url != "" {
				require.Equal(t, c.url, h.url.String())
			}
		})
	}
}

// TestEndpointThatIsNoURL requires that only calls of the hub fail.
func TestEndpointThatIsNoURL(t *testing.T) {
	s := newServer(t)
	addModel(t, s, "/f/", 2)
	setEnvironment(t, t.TempDir(), map[string]string{"HF_ENDPOINT": "huggingface.co", "HF_TOKEN": "secret"})
	client, _ := newClient(t, "")
	for _, c := range []*Client{client, {Endpoint: "ftp://user:secret@hub/?secret"}} {
		const text = "safetensors: endpoint of the hub: "
		_, err := c.OpenRepo(t.Context(), "o/n", "")
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, "is not an absolute http or https URL")
		require.NotContains(t, err.Error(), "secret")
		_, err = c.OpenRepoFile(t.Context(), "o/n", "", osfile.ModelFile)
		require.ErrorContains(t, err, text)
		f, err := c.Open(t.Context(), s.URL+"/f/"+osfile.IndexFile)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	requireNoSecret(t, s)
}

// cacheEnvironments are variables that set the cache, and the cache relative to
// the home folder.
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

func TestHubCache(t *testing.T) {
	home := t.TempDir()
	for _, c := range cacheEnvironments {
		t.Run(c.name, func(t *testing.T) {
			setEnvironment(t, home, c.env)
			require.Equal(t, filepath.Join(home, filepath.FromSlash(c.cache)), filepath.Clean(hubCache()))
		})
	}
}
