package remote

import (
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// secrets returns a header that must not reach other hosts.
func secrets() http.Header {
	return http.Header{"Authorization": {"Bearer secret"}, "X-Api-Key": {"secret"}, "Cookie": {"session=secret"}, "user-agent": {"secret/1"}}
}

// isTold reports whether a request contains all secrets: those in the header and the user of the
// URL. A request that does not contain all of them must contain none.
func isTold(t *testing.T, r *http.Request) bool {
	told := true
	for name, values := range secrets() {
		told = told && r.Header.Get(name) == values[0]
	}
	_, password, _ := r.BasicAuth()
	if told || password == "secret" {
		return true
	}
	require.Empty(t, password)
	for name, values := range r.Header {
		require.NotContains(t, strings.Join(values, " "), "secret", name)
	}
	return false
}

// TestRedirects follows redirects, and lists the requests, and which of them contained the secrets.
// The last request comes from a read, and goes to the place where the file was found.
func TestRedirects(t *testing.T) {
	for _, c := range []struct {
		rule      string
		redirects map[string]string // targets by paths, with the hosts home and away
		want      []string
	}{
		{"to another host", map[string]string{"home/m": "away/blob?sig=1"}, []string{"home/m told", "away/blob", "away/blob"}},
		{"within the host", map[string]string{"home/m": "/new"}, []string{"home/m told", "home/new told", "home/new told"}},
		{"within the host, which is named", map[string]string{"home/m": "home/new"}, []string{"home/m told", "home/new told", "home/new told"}},
		{"there and back", map[string]string{"home/m": "away/", "away/": "/next", "away/next": "home/chosen"},
			[]string{"home/m told", "away/", "away/next", "home/chosen", "home/chosen"}},
		{"to another host after the first", map[string]string{"home/m": "/next", "home/next": "home/last", "home/last": "away/blob"},
			[]string{"home/m told", "home/next told", "home/last told", "away/blob", "away/blob"}},
		{"with a user", map[string]string{"home/m": "user@away/blob"}, []string{"home/m told", "away/blob", "away/blob"}},
	} {
		for _, user := range []string{"", "user:secret@"} {
			t.Run(c.rule+" "+user, func(t *testing.T) {
				home, away := newServer(t), newServer(t)
				withUser := strings.Replace(away.URL, "://", "://user:secret@", 1)
				urls := strings.NewReplacer("user@away/", withUser+"/", "home/", home.URL+"/", "away/", away.URL+"/")
				var asked []string
				for host, s := range map[string]*server{"home": home, "away": away} {
					for _, path := range []string{"/new", "/chosen", "/blob"} {
						s.add(path, craft(100_000, 1000))
					}
					s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
						place := host + r.URL.Path
						to, found := c.redirects[place]
						if isTold(t, r) {
							place += " told"
						}
						require.Empty(t, r.Referer(), "a signed URL might be in it")
						asked = append(asked, place)
						if found {
							redirectTo(urls.Replace(to))(w, r)
						}
						return found
					}
				}
				client, _ := newClient()
				if user == "" {
					client.Header = secrets()
				}
				tensor := openTensor(t, client, strings.Replace(home.URL, "://", "://"+user, 1)+"/m")
				require.Equal(t, pattern(1000), bytesOf(tensor))
				require.Equal(t, c.want, asked)
			})
		}
	}
}

// TestSameOrigin has pairs of URLs. It checks whether a secret for one may be sent to the other.
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
		{"https://h/", "http://h:443/", false},
		{"https://h:8443/", "http://h:8080/", false},
		{"https://h:8443/", "http://h/", false},
		{"http://h:8080/", "http://h/", false},
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

// TestMoved redirects from a hub to a CDN, where something changes after the file was opened. Two
// reads have the same outcome.
func TestMoved(t *testing.T) {
	type cdns struct {
		one, two       *server
		target, linked string // target of the hub's redirects, and their X-Linked-Etag
		close          func() // closes the first CDN
	}
	refuse := func(status int) func(*cdns) { // as if the signature had expired
		return func(c *cdns) {
			c.target = c.one.URL + "/blob?sig=2"
			c.one.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("sig") != "2" {
					w.WriteHeader(status)
				}
				return r.URL.Query().Get("sig") != "2"
			}
		}
	}
	to := func(linked string) func(*cdns) { // redirects to a CDN where the file has another ETag
		return func(c *cdns) {
			c.one.fault = always(statusOf(403))
			c.target, c.linked = c.two.URL+"/blob", linked
		}
	}
	for _, c := range []struct {
		rule          string
		change        func(*cdns)
		hub, one, two int // number of requests to each server
		pauses        int
		is            error
		text          string
	}{
		{rule: "signature expires, 400", change: refuse(400), hub: 2, one: 4},
		{rule: "signature expires, 401", change: refuse(401), hub: 2, one: 4},
		{rule: "signature expires, 403", change: refuse(403), hub: 2, one: 4},
		{rule: "signature expires, 404", change: refuse(404), hub: 2, one: 4},
		{rule: "file gone", change: func(c *cdns) {
			c.target = c.one.URL + "/blob?sig=secret"
			c.one.fault = always(statusOf(404))
		}, hub: 3, one: 4, is: fs.ErrNotExist, text: "/blob: bytes 100008-101007: status 404"},
		{rule: "file changes", change: func(c *cdns) { c.one.etag = `"v2"` }, hub: 1, one: 3, is: ErrChanged},
		{rule: "file changes on a server without preconditions", change: func(c *cdns) {
			c.one.etag = `"v2"`
			c.one.fault = ignoring("If-Match")
		}, hub: 1, one: 3, is: ErrChanged},
		{rule: "host closes", change: func(c *cdns) { c.target = c.two.URL + "/blob"; c.close() }, hub: 2, one: 1, two: 2, pauses: 1},
		{rule: "same content elsewhere", change: to(`"sha"`), hub: 2, one: 2, two: 2},
		{rule: "other content", change: to(`"other"`), hub: 3, one: 2, two: 2, is: ErrChanged},
		{rule: "unknown content", change: to(""), hub: 3, one: 2, two: 2, is: ErrChanged},
	} {
		t.Run(c.rule, func(t *testing.T) {
			hub, m := newServer(t), &cdns{one: newServer(t), two: newServer(t), linked: `"sha"`}
			m.target = m.one.add("/blob", craft(100_000, 1000)) + "?sig=1"
			m.two.add("/blob", craft(100_000, 1000))
			m.two.etag = `"v2"`
			hub.fault = always(func(w http.ResponseWriter, r *http.Request) {
				if m.linked != "" {
					w.Header().Set("X-Linked-Etag", m.linked)
				}
				redirectTo(m.target)(w, r)
			})
			claim := func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("X-Linked-Etag", `"of a CDN"`) // only the header of a redirect counts
				return false
			}
			m.one.fault, m.two.fault = claim, claim
			client, clock := newClient()
			client.HTTP, m.close = closing(m.one)
			tensor := openTensor(t, client, hub.URL+"/m")
			c.change(m)
			for range 2 {
				got, err := safetensors.Append[byte](nil, tensor)
				if c.is == nil {
					require.NoError(t, err)
					require.Equal(t, pattern(1000), got)
					continue
				}
				require.ErrorIs(t, err, c.is)
				require.ErrorContains(t, err, c.text)
				require.NotContains(t, err.Error(), "secret")
			}
			require.Equal(t, [3]int{c.hub, c.one, c.two}, [3]int{len(hub.ranges()), len(m.one.ranges()), len(m.two.ranges())})
			require.Len(t, clock.pauses, c.pauses)
			if c.two == 2 && c.is == nil {
				require.Equal(t, `"v2"`, m.two.requests[1].Header.Get("If-Match"))
			}
		})
	}
}

// TestVersionStaysPinned: an answer without a version does not change the pinned version.
func TestVersionStaysPinned(t *testing.T) {
	s := newServer(t)
	client, _ := newClient()
	tensor := openTensor(t, client, s.add("/m", craft(100_100, 3000)))
	s.fault = ignoring("If-Match")
	s.etag = ""
	bytesOf(tensor)
	s.etag = `"v2"`
	require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, tensor)), ErrChanged)
	require.Equal(t, "identity", s.requests[0].Header.Get("Accept-Encoding"))
}

// TestReadsPinTheVersion: reads see the file that was opened, or fail.
func TestReadsPinTheVersion(t *testing.T) {
	type version struct {
		etag     string
		modified time.Time
		longer   int
	}
	monday := time.Date(2025, 6, 2, 8, 0, 0, 0, time.UTC)
	later := monday.Add(time.Second)
	long := `"` + strings.Repeat("a", 10_000) + `"`
	for _, c := range []struct {
		name     string
		was, now version
		ignores  string // header field of requests that the server ignores
		header   string // header field that the request of the read has, with the value below
		value    string
		text     string // text of the error; "" if the change goes unnoticed
	}{
		{"nothing changes", version{etag: `"v1"`}, version{etag: `"v1"`}, "", "If-Match", `"v1"`, ""},
		{"strong ETag", version{etag: `"v1"`}, version{etag: `"v2"`}, "", "If-Match", `"v1"`, "status 412 Precondition Failed"},
		{"strong ETag on a server without preconditions", version{etag: `"v1"`}, version{etag: `"v2"`}, "If-Match", "", "", "ETag is `\"v2\"`, was `\"v1\"`"},
		{"long ETag", version{etag: long}, version{etag: `W/` + long}, "If-Match", "", "", "ETag is"},
		{"weak ETag", version{etag: `W/"v1"`}, version{etag: `W/"v2"`}, "", "If-Match", "", "ETag is `W/\"v2\"`, was `W/\"v1\"`"},
		{"same weak ETag, other date", version{`W/"v1"`, monday, 0}, version{`W/"v1"`, later, 0}, "If-Unmodified-Since", "", "", "Last-Modified is"},
		{"same strong ETag, other date", version{`"v1"`, monday, 0}, version{`"v1"`, later, 0}, "", "", "", ""},
		{"date", version{modified: monday}, version{modified: later}, "", "If-Unmodified-Since", "Mon, 02 Jun 2025 08:00:00 GMT", "status 412"},
		{"shorter", version{}, version{longer: -2995}, "", "", "", "it has 100113 bytes, had 103108"},
		{"longer", version{}, version{longer: 2000}, "", "", "", "it has 105108 bytes, had 103108"},
		{"turned into a server without ranges", version{}, version{}, "Range", "", "", "does not support range requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.etag, s.modified = c.was.etag, c.was.modified
			client, _ := newClient()
			tensor := openTensor(t, client, s.add("/m", craft(100_100, 3000)))
			s.etag, s.modified, s.fault = c.now.etag, c.now.modified, ignoring(c.ignores)
			s.add("/m", craft(100_100, 3000+c.now.longer))
			_, err := safetensors.Append[byte](nil, tensor)
			if c.header != "" {
				require.Equal(t, c.value, s.requests[len(s.requests)-1].Header.Get(c.header))
			}
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.text)
			require.Less(t, len(err.Error()), 1000)
			require.Equal(t, c.ignores != "Range", errors.Is(err, ErrChanged))
		})
	}
}
