package hub

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/gosafetensors/safetensors/remote"
)

// A Client opens files of repositories. The zero value is ready to use. Methods may
// be called concurrently, but not while a field is being changed.
type Client struct {
	// HTTP sends the requests; nil stands for the client that a zero remote.Client uses. It is not modified.
	HTTP *http.Client

	// Endpoint is the base URL of the hub. It defaults to the environment variable
	// HF_ENDPOINT, or https://huggingface.co if that is not set.
	Endpoint string

	// Token authorizes the requests to Endpoint, and is sent nowhere else. It defaults to
	// HF_TOKEN or, if that is not set, to the content of the file HF_TOKEN_PATH. That
	// path defaults to token in HF_HOME, which defaults to ~/.cache/huggingface. If
	// HF_HUB_DISABLE_IMPLICIT_TOKEN is 1, there is no default.
	Token string
}

// connect returns the base URL of the hub, and a client for requests to it.
func (c *Client) connect() (client *remote.Client, endpoint *url.URL, err error) {
	client = &remote.Client{HTTP: c.HTTP}
	if token := cleanToken(c.Token); token != "" {
		client.Header = http.Header{"Authorization": {"Bearer " + token}}
	}
	endpoint, err = parseEndpoint(c.Endpoint)
	return client, endpoint, err
}

// checkName checks that the name of a file does not lead out of its repository.
func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%.200q does not name a file in a repository", name)
	}
	return nil
}

// escapePath escapes each element of a path.
func escapePath(path string) string { return strings.ReplaceAll(url.PathEscape(path), "%2F", "/") }
