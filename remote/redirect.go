package remote

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A vetted transport removes a Location header that is not a URL, because http.Client would
// quote it in an error, with any signature in its query.
type vetted struct{ http.RoundTripper }

func (v vetted) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := v.RoundTripper.RoundTrip(req)
	if err != nil || resp == nil {
		return resp, err
	}
	if _, err := url.Parse(resp.Header.Get("Location")); err != nil {
		resp.Header.Del("Location")
	}
	return resp, nil
}

// parseURL parses an absolute http or https URL. It looks for a scheme first, because url.Parse
// would take localhost in localhost:80/model for one.
func parseURL(text string) (*url.URL, error) {
	if scheme, _, ok := strings.Cut(text, "://"); !ok || strings.ContainsAny(scheme, "/?#") {
		return nil, errors.New("the URL has no scheme: it must begin with http:// or https://")
	}
	u, err := url.Parse(text)
	var parse *url.Error
	if errors.As(err, &parse) { // the text of err would show the URL, with its secrets
		return nil, fmt.Errorf("parsing a URL: %w", parse.Err)
	}
	if !isHTTP(u) {
		return nil, fmt.Errorf("%q is not an absolute http or https URL", redact(u))
	}
	return u, nil
}

func isHTTP(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// A place describes where an answer came from: its URL, and the headers of the answer and of the
// redirects to it that identify the file.
type place struct {
	url     *url.URL
	trusted bool   // whether no redirect has left the host of the first URL
	linked  string // X-Linked-Etag of a hub, which identifies the content wherever the redirect leads

	etag, modified string // ETag and Last-Modified of the answer
}

// maxRedirects limits the redirects that one request follows.
const maxRedirects = 10

// get sends a GET request to a place and follows redirects. It returns the last
// answer, whatever its status, with the exchange as its body, and the place of that answer.
//
// http.Client alone would send custom headers to every host, and Authorization to
// subdomains, to other ports and from https to http. CheckRedirect therefore
// builds the header of each redirected request from scratch.
func (s *session) get(x *exchange, at place, header http.Header) (*http.Response, place, error) {
	req, err := http.NewRequestWithContext(x.ctx, http.MethodGet, at.url.String(), nil)
	if err != nil {
		return nil, at, errors.New("the URL is not valid in a request") // the text of err would show the query
	}
	req.Header = s.headerFor(at, header)
	client := s.http
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		next, err := at.follow(req)
		if err != nil {
			return err
		}
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		req.URL, req.Header = next.url, s.headerFor(next, header)
		if policy := s.http.CheckRedirect; policy != nil {
			if err := policy(req, via); err != nil {
				return err
			}
		}
		at = next
		return nil
	}
	resp, err := client.Do(req)
	if failed := new(url.Error); errors.As(err, &failed) { // its text would show the URL, with its secrets
		err = failed.Err
	}
	switch {
	case err != nil && resp != nil: // the error comes from CheckRedirect
		return nil, at, err
	case err != nil:
		return nil, at, sendError(err)
	}
	x.body, resp.Body = resp.Body, x
	at = at.learn(resp.Header)
	at.etag, at.modified = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	return resp, at, nil
}

// headerFor returns the header of a request to a place: header, and also the Client's header if
// the place is trusted.
func (s *session) headerFor(at place, header http.Header) http.Header {
	h := http.Header{"User-Agent": {userAgent}}
	if at.trusted {
		for name, values := range s.header {
			h[http.CanonicalHeaderKey(name)] = slices.Clone(values)
		}
	}
	maps.Copy(h, header.Clone()) // a clone, because the caller's CheckRedirect may change it
	return h
}

const userAgent = "gosafetensors"

// follow returns the place that a redirected request goes to. After a redirect
// that leaves the host, no place is trusted, not even the first host.
func (p place) follow(req *http.Request) (place, error) {
	if !isHTTP(req.URL) {
		return p, errors.New("the redirect does not lead to an http or https URL")
	}
	p = p.learn(req.Response.Header)
	p.trusted = p.trusted && sameOrigin(req.URL, p.url)
	u := *req.URL
	switch {
	case !p.trusted:
		u.User = nil
	case u.User == nil: // the redirect is to an absolute URL of the same host
		u.User = p.url.User
	}
	p.url = &u
	return p, nil
}

// learn returns p with the X-Linked-Etag of an answer, if p is trusted.
func (p place) learn(h http.Header) place {
	if linked := h.Get("X-Linked-Etag"); linked != "" && p.trusted {
		p.linked = linked
	}
	return p
}

// sameOrigin reports whether secrets meant for URL b may be sent to URL a: if
// scheme, host and port are equal, or if a is b upgraded from http to https.
func sameOrigin(a, b *url.URL) bool {
	if !strings.EqualFold(a.Hostname(), b.Hostname()) {
		return false
	}
	upgrade := b.Scheme == "http" && a.Scheme == "https" && port(a) == "443" && port(b) == "80"
	return a.Scheme == b.Scheme && port(a) == port(b) || upgrade
}

func port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}
