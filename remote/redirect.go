package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// transport returns the transport of clients without one. The default transport
// keeps two idle connections a host and would close the others after each
// request.
var transport = sync.OnceValue(func() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = inFlight
	return t
})

// parseURL returns an absolute URL of http or https.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	var parse *url.Error
	if errors.As(err, &parse) { // its text holds the URL, with the secrets in it
		return nil, fmt.Errorf("parsing a URL: %w", parse.Err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not an absolute http or https URL", redact(u))
	}
	return u, nil
}

// redact returns a URL for an error: without user information and without the
// query, which in a signed URL is the key to the file.
func redact(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath, Opaque: u.Opaque}).String()
}

// A place is where an answer came from, and what it and the redirects to it said
// of the file.
type place struct {
	url     *url.URL
	trusted bool   // reached without leaving the host of the first URL
	commit  string // X-Repo-Commit of a hub: the commit that the revision stands for
	linked  string // X-Linked-Etag of a hub: identifies the content, wherever the redirect leads

	etag, modified string // ETag and Last-Modified of the answer
}

// maxRedirects is the limit that net/http has, too.
const maxRedirects = 10

// get sends a GET request to a place and follows redirects from there. It
// returns the last answer, whatever its status, and its place.
//
// This is not left to the http.Client because that keeps custom headers on the
// way to other hosts, and Authorization on the way to subdomains, other ports
// and from https to http. Also, it does not show the answers in between.
func (s *session) get(ctx context.Context, at place, header http.Header) (*http.Response, place, error) {
	var via []*http.Request
	for {
		req, err := s.request(ctx, at, header)
		if err != nil {
			return nil, at, err
		}
		if len(via) > maxRedirects {
			return nil, at, fmt.Errorf("more than %d redirects", maxRedirects)
		}
		if len(via) > 0 && s.policy != nil {
			if err := s.policy(req, via); err != nil {
				return nil, at, fmt.Errorf("redirect refused: %w", err)
			}
		}
		resp, err := s.http.Do(req)
		if err != nil {
			return nil, at, sendError(err)
		}
		if commit := resp.Header.Get("X-Repo-Commit"); commit != "" && at.trusted {
			at.commit = commit
		}
		if linked := resp.Header.Get("X-Linked-Etag"); linked != "" && at.trusted {
			at.linked = linked
		}
		if !isRedirect(resp) {
			at.etag, at.modified = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
			return resp, at, nil
		}
		io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
		resp.Body.Close()
		if at, err = at.follow(resp.Header.Get("Location")); err != nil {
			return nil, at, err
		}
		via = append(via, req)
	}
}

// request returns a GET request to a place. Only a trusted one is sent what the
// caller wants to be sent.
func (s *session) request(ctx context.Context, at place, header http.Header) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.url.String(), nil)
	if err != nil {
		return nil, errors.New("the URL makes no valid request") // the error would tell the query
	}
	req.Header.Set("User-Agent", userAgent)
	if at.trusted {
		for name, values := range s.header {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
		if req.Header.Get("Authorization") == "" && s.hub.token != "" && sameOrigin(at.url, s.hub.url) {
			req.Header.Set("Authorization", "Bearer "+s.hub.token)
		}
	}
	for name, values := range header {
		req.Header[name] = values
	}
	return req, nil
}

const userAgent = "gosafetensors"

// isRedirect reports whether an answer is a redirect that a GET request follows
// (RFC 9110, section 15.4).
func isRedirect(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}

// follow returns the place that a redirect leads to. One that has once led away
// from the host is not trusted any more, even if it leads back.
func (p place) follow(location string) (place, error) {
	u, err := p.url.Parse(location)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return p, errors.New("redirect to what is not an http or https URL")
	}
	p.trusted = p.trusted && sameOrigin(u, p.url)
	if !p.trusted {
		u.User = nil
	}
	p.url = u
	return p, nil
}

// sameOrigin reports whether what is for URL b may be sent to URL a: they agree
// in scheme, host and port, or a is what b is over https.
func sameOrigin(a, b *url.URL) bool {
	if !strings.EqualFold(a.Hostname(), b.Hostname()) {
		return false
	}
	upgrade := b.Scheme == "http" && a.Scheme == "https" && port(a) == "443" && port(b) == "80"
	return a.Scheme == b.Scheme && port(a) == port(b) || upgrade
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}
