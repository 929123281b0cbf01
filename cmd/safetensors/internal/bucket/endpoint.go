package bucket

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// checkEndpoint returns an error for a text that is not the URL of a server. The error omits the
// part after a question mark, which may be a signature.
func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		endpoint, _, _ = strings.Cut(endpoint, "?")
		return fmt.Errorf("%q is not the URL of an endpoint", endpoint[strings.LastIndexByte(endpoint, '@')+1:])
	}
	return nil
}

// anonymousTo returns the reason why requests to an endpoint must not carry credentials, or "" if
// they may. It is called for an endpoint that the URL of an object chooses. Such a URL may come
// from someone else, so credentials are sent only if a URL in named has the same scheme, host and
// port: these URLs come from the environment or a profile, or are the store's own. The reason
// mentions variable, the environment variable that could name the endpoint. Even then, the endpoint
// must be encrypted or on this machine.
func anonymousTo(endpoint, variable string, named ...string) string {
	for _, name := range named {
		if name == "" || origin(name) != origin(endpoint) {
			continue
		}
		if private(endpoint) {
			return ""
		}
		return "the request was anonymous: the endpoint is neither https nor on this machine"
	}
	return "the request was anonymous: the URL names the endpoint, and " + variable + " does not"
}

// private reports whether requests to an endpoint cannot be read on the way, because the endpoint
// uses https or is on this machine.
func private(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && (u.Scheme == "https" || isLoopback(u.Hostname()))
}

// origin returns the scheme, the host and the port of a URL, or "" if it has none.
func origin(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return ""
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// isLoopback reports whether a host is this machine, without asking a name server.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// An unnamed store sends no credentials, because the URL chooses its endpoint. reason explains
// that.
type unnamed struct {
	store
	reason string
}

// anonymously wraps s, a store without credentials, so that errors explain the reason. If reason is
// "", it returns s itself.
func anonymously(s store, reason string) store {
	if reason == "" {
		return s
	}
	return unnamed{s, reason}
}

// explain adds the reason to a refusal of a store that received no credentials.
func explain(s store, err error) error {
	if u, ok := s.(unnamed); ok && (status(err) == http.StatusUnauthorized || status(err) == http.StatusForbidden) {
		return fmt.Errorf("%w; %s", err, u.reason)
	}
	return err
}
