package remote

import (
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
		endpoint = os.Getenv("HF_ENDPOINT")
	}
	if endpoint == "" {
		endpoint = "https://huggingface.co"
	}
	u, err := parseURL(endpoint)
	if err != nil {
		return hub{}, err
	}
	token := c.Token
	if token == "" && !isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		token = implicitToken()
	}
	return hub{u, cleanToken(token)}, nil
}

// implicitToken returns the token of the environment, as huggingface_hub finds
// it (Environment variables, in its reference).
func implicitToken() string {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if token := os.Getenv(name); token != "" {
			return token
		}
	}
	path := expand(os.Getenv("HF_TOKEN_PATH"))
	if path == "" {
		home := expand(os.Getenv("HF_HOME"))
		if home == "" {
			cache := expand(os.Getenv("XDG_CACHE_HOME"))
			if cache == "" {
				cache = expand("~/.cache")
			}
			home = filepath.Join(cache, "huggingface")
		}
		path = filepath.Join(home, "token")
	}
	token, err := os.ReadFile(path)
	if err != nil {
		return "" // there is none, or none that may be read
	}
	return string(token)
}

func cleanToken(token string) string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(token))
}

// isTrue reports whether the value of an environment variable is one that
// huggingface_hub takes for true.
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
