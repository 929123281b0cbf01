package remote

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// secrets are what a caller sends along, and must not reach other hosts.
func secrets() http.Header {
	return http.Header{"Authorization": {"Bearer secret"}, "X-Api-Key": {"secret"}, "Cookie": {"session=secret"}, "user-agent": {"secret/1"}}
}

// requireNoSecret requires that no request has told one.
func requireNoSecret(t *testing.T, s *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.requests)
	for _, r := range s.requests {
		for name, values := range r.Header {
			require.NotContains(t, strings.Join(values, " "), "secret", name)
		}
	}
}

func TestRedirectToAnotherHost(t *testing.T) {
	hub, cdn := newServer(t), newServer(t)
	file := craft(100_000, 1000)
	target := cdn.add("/blob", file)
	hub.fault = redirectTo(target + "?X-Amz-Signature=1")
	client, _ := newClient(t, hub.URL)
	client.Header = secrets()
	client.Token = "secret token"
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
	client, _ := newClient(t, "")
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
	client, _ := newClient(t, home.URL)
	client.Header = secrets()
	client.Token = "secret"
	openTensor(t, client, home.URL+"/m")
	requireNoSecret(t, away)
	require.Len(t, away.ranges(), 2)
	require.Len(t, home.ranges(), 2)
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

// TestSignedURLExpires refuses what was signed for the first n requests.
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
		client, clock := newClient(t, "")
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
		client, _ := newClient(t, "")
		tensor := openTensor(t, client, hub.URL+"/m")
		cdn.etag = `"v2"`
		_, err := safetensors.Append[byte](nil, tensor)
		require.ErrorIs(t, err, ErrChanged)
		require.Len(t, hub.ranges(), 1)
	}
}

// TestCDNGoesAway redirects to another host after the first one has gone.
func TestCDNGoesAway(t *testing.T) {
	hub, one, two := newServer(t), newServer(t), newServer(t)
	file := craft(100_000, 1000)
	target := one.add("/blob", file)
	hub.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool { return redirectTo(target)(0, w, r) }
	client, clock := newClient(t, "")
	tensor := openTensor(t, client, hub.URL+"/m")
	target = two.add("/blob", file)
	one.Close()
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
				w.Header().Set("X-Linked-Etag", `"of a CDN"`) // which is not asked
				return false
			}
			one.fault, two.fault = claim, claim
			client, _ := newClient(t, "")
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

func TestClientIsUsedAndNotModified(t *testing.T) {
	s := newServer(t)
	s.add("/m", craft(100_000, 10))
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	u, _ := url.Parse(s.URL)
	jar.SetCookies(u, []*http.Cookie{{Name: "c", Value: "v"}})
	refused := errors.New("refused")
	var asked, sent atomic.Int32
	h := &http.Client{
		Jar: jar,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			asked.Add(1)
			require.Equal(t, "/m", r.URL.Path)
			require.Equal(t, "/old", via[0].URL.Path)
			return refused
		},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			return http.DefaultTransport.RoundTrip(r)
		}),
	}
	before := *h
	client, _ := newClient(t, "")
	client.HTTP = h
	bytesOf(t, openTensor(t, client, s.URL+"/m"))
	require.Equal(t, int32(2), sent.Load())
	require.Equal(t, "c=v", s.requests[1].Header.Get("Cookie"))

	s.fault = redirectTo("/m")
	_, err = client.Open(t.Context(), s.URL+"/old")
	require.ErrorIs(t, err, refused)
	require.Equal(t, int32(1), asked.Load())
	require.Equal(t, before.Jar, h.Jar)
	require.NotNil(t, h.CheckRedirect)
	require.ErrorIs(t, h.CheckRedirect(httptest.NewRequest("GET", "/m", nil), []*http.Request{httptest.NewRequest("GET", "/old", nil)}), refused)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestErrorsThatNoRetryHelps(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	tls := httptest.NewUnstartedServer(http.NotFoundHandler()) // with a certificate that nobody trusts
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	for name, url := range map[string]string{
		"certificate": tls.URL + "/m?secret",
		"not TLS":     "https" + strings.TrimPrefix(plain.URL, "http") + "/m?secret",
	} {
		client, clock := newClient(t, "")
		_, err := client.Open(t.Context(), url)
		require.Error(t, err, name)
		require.Empty(t, clock.pauses, name)
		require.NotContains(t, err.Error(), "secret")
	}
}

// TestNoAnswer counts the tries where nobody listens.
func TestNoAnswer(t *testing.T) {
	client, clock := newClient(t, "")
	client.HTTP = &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, io.EOF })}
	_, err := client.Open(t.Context(), "http://127.0.0.1/m?secret")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotContains(t, err.Error(), "secret")
	require.Len(t, clock.pauses, maxTries-1)
}

// TestConnectionsAreKept reads one range after another, then 20 at once, ten times.
func TestConnectionsAreKept(t *testing.T) {
	var opened atomic.Int32
	s := newServer(t)
	counted := httptest.NewUnstartedServer(s)
	counted.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	counted.Start()
	defer counted.Close()
	s.add("/m", pattern(20<<20))
	client, _ := newClient(t, "")
	o := openObject(t, client, counted.URL+"/m")
	for i := range 20 {
		_, err := o.ReadAt(make([]byte, 1000*(i+1)), int64(i)<<16)
		require.NoError(t, err)
	}
	require.Equal(t, int32(1), opened.Load())
	for range 10 {
		var runs []run
		for i := range inFlight {
			runs = append(runs, run{int64(i) << 20, 10})
		}
		require.NoError(t, o.ReadRanges(seqOf(make([]byte, 10*inFlight), runs...)))
	}
	// A request may find a connection that became idle while it opened one.
	require.LessOrEqual(t, opened.Load(), int32(5*inFlight))
}
