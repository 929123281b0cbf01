package hub

import (
	"cmp"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/osfile"
)

// parseEndpoint returns the base URL of the hub, which defaults to that of the environment if text is "".
func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(cmp.Or(text, os.Getenv("HF_ENDPOINT"), "https://huggingface.co"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" { // err is not shown, since it quotes the URL, which may contain secrets
		return nil, errors.New("the endpoint of the hub is not an absolute URL, which begins with http:// or https://")
	}
	if u.Path == "" {
		u.Path = "/" // otherwise JoinPath returns URLs with relative paths
	}
	return u, nil
}

// cleanToken returns the token for requests, without white space around it. It defaults to the token of the
// environment, and is "" if there is none.
func cleanToken(token string) string {
	if token == "" && !isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		token = implicitToken()
	}
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(token))
}

// offline reports whether the environment forbids requests.
func offline() bool {
	return isTrue(cmp.Or(os.Getenv("HF_HUB_OFFLINE"), os.Getenv("TRANSFORMERS_OFFLINE")))
}

// implicitToken returns the token of the environment, found as huggingface_hub
// does (its reference, page Environment variables).
func implicitToken() string {
	if token := cmp.Or(os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN")); token != "" {
		return token
	}
	path := cmp.Or(expand(os.Getenv("HF_TOKEN_PATH")), filepath.Join(hubHome(), "token"))
	const most = 64 << 10
	token, err := osfile.ReadRegular(path, most)
	if err != nil {
		return "" // there is no token, or the user may not read it
	}
	return string(token)
}

// hubHome returns the folder that huggingface_hub uses.
func hubHome() string {
	if home := os.Getenv("HF_HOME"); home != "" {
		return expand(home)
	}
	return filepath.Join(expand(cmp.Or(os.Getenv("XDG_CACHE_HOME"), "~/.cache")), "huggingface")
}

// hubCache returns the folder that huggingface_hub downloads repositories to.
func hubCache() string {
	if cache := cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE")); cache != "" {
		return expand(cache)
	}
	return filepath.Join(hubHome(), "hub")
}

// isTrue reports whether huggingface_hub interprets the value of an environment variable as true.
func isTrue(value string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(value))
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
