package remote

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// A hub serves files at {url}/{repo}/resolve/{revision}/{file}.
type hub struct {
	url   *url.URL
	token string
}

func (c *Client) hub() (hub, error) {
	endpoint := c.Endpoint
	if endpoint == "" {
		endpoint = environ("HF_ENDPOINT")
	}
	if endpoint == "" {
		endpoint = "https://huggingface.co"
	}
	u, err := parseURL(endpoint)
	if err != nil {
		return hub{}, fmt.Errorf("endpoint of the hub: %w", err)
	}
	token := c.Token
	if token == "" && !isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		token = implicitToken()
	}
	return hub{u, cleanToken(token)}, nil
}

// implicitToken returns the token of the environment, found as huggingface_hub
// does (its reference, page Environment variables).
func implicitToken() string {
	if token := environ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"); token != "" {
		return token
	}
	path := expand(environ("HF_TOKEN_PATH"))
	if path == "" {
		path = filepath.Join(hubHome(), "token")
	}
	token, err := os.ReadFile(path)
	if err != nil {
		return "" // there is none, or none that may be read
	}
	return string(token)
}

// hubHome returns the folder that huggingface_hub uses.
func hubHome() string {
	if home := environ("HF_HOME"); home != "" {
		return expand(home)
	}
	cache := environ("XDG_CACHE_HOME")
	if cache == "" {
		cache = "~/.cache"
	}
	return filepath.Join(expand(cache), "huggingface")
}

// hubCache returns the folder that huggingface_hub downloads repositories to.
func hubCache() string {
	if cache := environ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"); cache != "" {
		return expand(cache)
	}
	return filepath.Join(hubHome(), "hub")
}

// environ returns the first environment variable that is set and not empty.
func environ(names ...string) string {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return value
		}
	}
	return ""
}

func cleanToken(token string) string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(token))
}

// isTrue reports whether huggingface_hub takes the value of an environment
// variable for true.
func isTrue(value string) bool {
	switch strings.ToUpper(value) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// expand replaces ~ and variables in the name of a file.
func expand(name string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		if home, err := os.UserHomeDir(); err == nil {
			name = home + rest
		}
	}
	return os.ExpandEnv(name)
}
