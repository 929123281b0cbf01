package remote

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// secrets returns a header that must not reach other hosts.
func secrets() http.Header {
	return http.Header{"Authorization": {"Bearer secret"}, "X-Api-Key": {"secret"}, "Cookie": {"session=secret"}, "user-agent": {"secret/1"}}
}

// requireNoSecret requires that no request to s held a secret.
func requireNoSecret(t *testing.T, s *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.requests)
	for _, r := range s.requests {
		for name, values := range r.Header {
			require.NotContains(t, strings.Join(values, " "), "secret", name)
		}
		_, password, _ := r.BasicAuth() // which Authorization holds in base64
		require.Empty(t, password)
	}
}

func TestRedirectToAnotherHost(t *testing.T) {
	hub, cdn := newServer(t), newServer(t)
	file := craft(100_000, 1000)
	target := cdn.add("/blob", file)
	hub.fault = redirectTo(target + "?X-Amz-Signature=1")
	client, _ := newClient(t)
	client.Header = secrets()
	tensor := openTensor(t, client, hub.URL+"/m")
	require.Equal(t, pattern(1000), bytesOf(t, tensor))

	require.Equal(t, []string{"bytes=0-100007"}, hub.ranges(), "the redirect is remembered")
	require.Equal(t, []string{"bytes=0-100007", "bytes=100008-101007"}, cdn.ranges())
	requireNoSecret(t, cdn)
	for name, values := range secrets() {
		require.Equal(t, values[0], hub.requests[0].Header.Get(name))
	}
	require.Empty(t, cdn.requests[0].Referer(), "a signed URL might be in it")
}

func TestRedirectWithinTheHost(t *testing.T) {
	s := newServer(t)
	s.add("/new", craft(100_000, 1000))
	s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		moved := r.URL.Path == "/old"
		if moved {
			w.Header().Set("Location", "/new")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
		return moved
	}
	client, _ := newClient(t)
	client.Header = secrets()
	bytesOf(t, openTensor(t, client, s.URL+"/old"))
	require.Len(t, s.requests, 3)
	for _, r := range s.requests {
		require.Equal(t, "secret", r.Header.Get("X-Api-Key"))
	}
}

func TestRedirectThereAndBackIsNotTrusted(t *testing.T) {
	home, away := newServer(t), newServer(t)
	home.add("/m", craft(100, 10))
	home.add("/chosen", craft(100, 10))
	away.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		to := []string{"/next", home.URL + "/chosen"}[n]
		http.Redirect(w, r, to, http.StatusFound)
		return true
	}
	home.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 0 {
			http.Redirect(w, r, away.URL, http.StatusFound)
			return true
		}
		require.Empty(t, r.Header.Get("X-Api-Key"))
		return false
	}
	client, _ := newClient(t)
	client.Header = secrets()
	openTensor(t, client, home.URL+"/m")
	requireNoSecret(t, away)
	require.Len(t, away.ranges(), 2)
	require.Len(t, home.ranges(), 2)
}

// TestUserInformation sends the user of the opened URL within its host, whether a
// redirect names the host or not, and the user of a redirect nowhere.
func TestUserInformation(t *testing.T) {
	home, away := newServer(t), newServer(t)
	home.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		_, password, ok := r.BasicAuth()
		require.True(t, ok)
		require.Equal(t, "secret", password)
		return redirectTo(map[string]string{
			"/m":    "/next",
			"/next": home.URL + "/last",
			"/last": "http://user:secret@" + away.Listener.Addr().String() + "/m",
		}[r.URL.Path])(0, w, r)
	}
	away.add("/m", craft(100, 10))
	client, _ := newClient(t)
	openTensor(t, client, "http://user:secret@"+home.Listener.Addr().String()+"/m")
	require.Len(t, home.ranges(), 3)
	requireNoSecret(t, away)
}

func TestRedirectLimit(t *testing.T) {
	for _, c := range []struct {
		redirects, requests int
		text                string
	}{
		{maxRedirects, maxRedirects + 1, ""},
		{maxRedirects + 1, maxRedirects + 1, "more than 10 redirects"},
	} {
		s := newServer(t)
		s.add("/m", craft(100, 10))
		s.fault = first(c.redirects, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/m", http.StatusFound) })
		client, clock := newClient(t)
		_, err := client.Open(t.Context(), s.URL+"/m")
		require.Len(t, s.ranges(), c.requests)
		require.Empty(t, clock.pauses)
		if c.text == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.text)
	}
}

// TestRedirectToNoURL has a Location that no error may hold.
func TestRedirectToNoURL(t *testing.T) {
	s := newServer(t)
	s.fault = first(1, statusOf(302, "Location", "https://host/%zz?X-Amz-Signature=secret"))
	client, clock := newClient(t)
	_, err := client.Open(t.Context(), s.URL+"/m")
	require.ErrorContains(t, err, "status 302 Found, expected 206 Partial Content")
	require.NotContains(t, err.Error(), "secret")
	require.Len(t, s.ranges(), 1)
	require.Empty(t, clock.pauses)
}

func TestSameOrigin(t *testing.T) {
	for _, c := range []struct {
		to, from string
		want     bool
	}{
		{"https://h/a", "https://h/b?c", true},
		{"https://H/a", "https://h/b", true},
		{"https://h:443/", "https://h/", true},
		{"https://h/", "http://h/", true},
		{"https://h/", "http://h:80/", true},
		{"http://h/", "https://h/", false},
		{"http://h:443/", "https://h/", false},
		{"https://h:8443/", "http://h:8080/", false},
		{"https://h:8443/", "https://h/", false},
		{"https://sub.h/", "https://h/", false},
		{"https://h.evil/", "https://h/", false},
		{"https://[::1]/", "https://[::1]:443/", true},
	} {
		to, _ := url.Parse(c.to)
		from, _ := url.Parse(c.from)
		require.Equal(t, c.want, sameOrigin(to, from), "%s to %s", c.from, c.to)
	}
}

// TestSignedURLExpires refuses an old signature with each status in use.
func TestSignedURLExpires(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404} {
		hub, cdn := newServer(t), newServer(t)
		target := cdn.add("/blob", craft(100_000, 1000))
		signature := "1"
		hub.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			return redirectTo(target+"?sig="+signature)(0, w, r)
		}
		cdn.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if expired := r.URL.Query().Get("sig") != signature; expired {
				w.WriteHeader(status)
				return true
			}
			return false
		}
		client, clock := newClient(t)
		tensor := openTensor(t, client, hub.URL+"/m")
		signature = "2"
		for range 2 {
			require.Equal(t, pattern(1000), bytesOf(t, tensor))
		}
		require.Len(t, hub.ranges(), 2)
		require.Len(t, cdn.ranges(), 4)
		require.Empty(t, clock.pauses)

		signature = "3"
		hub.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			return redirectTo(target+"?sig=secret")(0, w, r)
		}
		_, err := safetensors.Append[byte](nil, tensor)
		require.ErrorContains(t, err, "GET "+target+": bytes 100008-101007: status 4")
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestRedirectedFileChanges(t *testing.T) {
	for _, precondition := range []bool{true, false} {
		hub, cdn := newServer(t), newServer(t)
		target := cdn.add("/blob", craft(100_000, 1000))
		hub.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("X-Linked-Etag", `"sha"`)
			return redirectTo(target)(0, w, r)
		}
		cdn.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if !precondition {
				r.Header.Del("If-Match")
			}
			return false
		}
		client, _ := newClient(t)
		tensor := openTensor(t, client, hub.URL+"/m")
		cdn.etag = `"v2"`
		_, err := safetensors.Append[byte](nil, tensor)
		require.ErrorIs(t, err, ErrChanged)
		require.Len(t, hub.ranges(), 1)
	}
}

// TestCDNGoesAway redirects to another host after the first one has closed.
func TestCDNGoesAway(t *testing.T) {
	hub, one, two := newServer(t), newServer(t), newServer(t)
	file := craft(100_000, 1000)
	target := one.add("/blob", file)
	hub.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool { return redirectTo(target)(0, w, r) }
	client, clock := newClient(t)
	var close func()
	client.HTTP, close = closing(one)
	tensor := openTensor(t, client, hub.URL+"/m")
	target = two.add("/blob", file)
	close()
	require.Equal(t, pattern(1000), bytesOf(t, tensor))
	require.Len(t, clock.pauses, 1)
	require.Len(t, hub.ranges(), 2)
}

// TestLinkedETag moves a file to another CDN, where it has another ETag.
func TestLinkedETag(t *testing.T) {
	for _, c := range []struct {
		name, linked string
		is           error
	}{
		{"same content elsewhere", `"sha"`, nil},
		{"other content", `"other"`, ErrChanged},
		{"unknown content", "", ErrChanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			hub, one, two := newServer(t), newServer(t), newServer(t)
			file := craft(100_000, 1000)
			two.etag = `"v2"`
			target, linked := one.add("/blob", file), `"sha"`
			hub.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if linked != "" {
					w.Header().Set("X-Linked-Etag", linked)
				}
				return redirectTo(target)(0, w, r)
			}
			claim := func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("X-Linked-Etag", `"of a CDN"`) // to be ignored
				return false
			}
			one.fault, two.fault = claim, claim
			client, _ := newClient(t)
			tensor := openTensor(t, client, hub.URL+"/m")
			target, linked = two.add("/blob", file), c.linked
			one.fault = first(10, statusOf(403))
			for range 2 {
				_, err := safetensors.Append[byte](nil, tensor)
				require.ErrorIs(t, err, c.is)
			}
			if c.is == nil {
				require.Equal(t, `"v2"`, two.requests[1].Header.Get("If-Match"))
			}
		})
	}
}
