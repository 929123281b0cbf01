package remote

import (
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

func TestOpenCostsOneRequestOrTwo(t *testing.T) {
	s := newServer(t)
	const data = 3000
	for length := 99_993; length <= 100_016; length++ {
		t.Run(strconv.Itoa(length), func(t *testing.T) {
			s.reset(nil)
			c, _ := newClient(t)
			tensor := openTensor(t, c, s.add("/m", craft(length, data)))
			want := []string{"bytes=0-100007"}
			if length > 100_000 {
				want = append(want, fmt.Sprintf("bytes=100008-%d", 8+length-1))
			}
			require.Equal(t, want, s.ranges())
			require.Equal(t, int64(max(100_008, 8+length)), s.sent)
			require.Equal(t, pattern(data), bytesOf(t, tensor))
			require.Equal(t, fmt.Sprintf("bytes=%d-%d", 8+length, 8+length+data-1), s.ranges()[len(want)])
		})
	}
}

func TestOpenLongHeader(t *testing.T) {
	s := newServer(t)
	c, _ := newClient(t)
	const length = 9 << 20 // longer than the range of any other request
	openTensor(t, c, s.add("/m", craft(length, 10)))
	require.Equal(t, []string{"bytes=0-100007", fmt.Sprintf("bytes=100008-%d", 8+length-1)}, s.ranges())
}

func TestOpenShortFile(t *testing.T) {
	file := craft(64, 1000)
	send := func(status int, header ...string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			w.Write(file)
			return true
		}
	}
	for name, fault := range map[string]func(int, http.ResponseWriter, *http.Request) bool{
		"206 with a shorter range": nil,
		"200 with the whole file":  send(200, "Content-Length", strconv.Itoa(len(file))),
		"200 of unknown length":    send(200),
		"200 that broke in the body, then whole": func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 0 {
				w.Write(file[:500])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			return send(200)(n, w, r)
		},
		"206 to a server that was found again": first(1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.fault = fault
			c, _ := newClient(t)
			tensor := openTensor(t, c, s.add("/m", file))
			opened := len(s.ranges())
			require.Equal(t, pattern(1000), bytesOf(t, tensor))
			require.Len(t, s.ranges(), opened, "the first request brought it all")
		})
	}
}

// TestOpenRefusedRange has servers answer 416 to a range beyond a short file.
func TestOpenRefusedRange(t *testing.T) {
	file := craft(64, 1000)
	whole := fmt.Sprintf("bytes=0-%d", len(file)-1)
	strict := func(contentRange string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request) bool {
			var first, last int
			fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
			if last < len(file) {
				return false
			}
			statusOf(416, "Content-Range", contentRange)(w, r)
			return true
		}
	}
	size := fmt.Sprintf("bytes */%d", len(file))
	for _, c := range []struct {
		name   string
		fault  func(int, http.ResponseWriter, *http.Request) bool
		ranges []string
		text   string // of the error; empty: there is none
	}{
		{"size told", strict(size), []string{"bytes=0-100007", whole}, ""},
		{"size not told", strict(""), []string{"bytes=0-100007", "bytes=0-7", fmt.Sprintf("bytes=8-%d", len(file)-1)}, ""},
		{"size not told, shorter range ignored", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n > 0 {
				r.Header.Del("Range")
			}
			return n == 0 && strict("")(n, w, r)
		}, []string{"bytes=0-100007", ""}, ""},
		{"size told after a failure", func(n int, w http.ResponseWriter, r *http.Request) bool {
			return first(1, statusOf(503))(n, w, r) || strict(size)(n, w, r)
		}, []string{"bytes=0-100007", "bytes=0-100007", whole}, ""},
		{"size of a file that the range fits in", strict("bytes */100008"), []string{"bytes=0-100007"}, "status 416"},
		{"every range, size told", first(9, statusOf(416, "Content-Range", size)), []string{"bytes=0-100007", whole}, "status 416"},
		{"every range, size not told", first(9, statusOf(416)), []string{"bytes=0-100007", "bytes=0-7"}, "status 416"},
		{"size told wrong", strict("bytes */3"), []string{"bytes=0-100007", "bytes=0-2", fmt.Sprintf("bytes=3-%d", len(file)-1)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.fault = c.fault
			client, _ := newClient(t)
			url := s.add("/m", file)
			if c.text != "" {
				_, err := client.Open(t.Context(), url)
				require.ErrorContains(t, err, c.text)
			} else {
				require.Equal(t, pattern(1000), bytesOf(t, openTensor(t, client, url)))
			}
			require.Equal(t, c.ranges, s.ranges(), "none after opening")
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	answer := func(status int, header ...string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			return true
		}
	}
	endless := func(status int) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(status)
			for r.Context().Err() == nil { // ends when the client hangs up
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					break
				}
			}
			return true
		}
	}
	var broken *safetensors.FormatError
	for _, c := range []struct {
		name  string
		fault func(int, http.ResponseWriter, *http.Request) bool
		file  []byte
		is    error
		as    any
		text  string
	}{
		{name: "not found", fault: answer(404), is: fs.ErrNotExist, text: "status 404 Not Found, expected 206 Partial Content"},
		{name: "gone", fault: answer(410), is: fs.ErrNotExist, text: "410"},
		{name: "unauthorized", fault: answer(401, "X-Error-Message", "Invalid credentials"), is: fs.ErrPermission, text: `("Invalid credentials")`},
		{name: "forbidden", fault: answer(403), is: fs.ErrPermission, text: "403"},
		{name: "bad request", fault: answer(400), text: "status 400 Bad Request, expected 206"},
		{name: "no content", fault: answer(204), text: "status 204 No Content, expected 206"},
		{name: "redirect without a location", fault: answer(302), text: "status 302 Found, expected 206"},
		{name: "redirect in a circle", fault: redirectTo("/m"), text: "more than 10 redirects"},
		{name: "redirect to another scheme", fault: redirectTo("ftp://127.0.0.1/m"), text: "the redirect does not lead to an http or https URL"},
		{name: "unavailable for good", fault: answer(503), text: "status 503 Service Unavailable, expected 206 Partial Content (tried 8 times)"},
		{name: "precondition that was not made", fault: answer(412), text: "status 412"},
		{name: "range refused at the start", fault: answer(416, "Content-Range", "bytes */5"), text: "status 416"},
		{name: "range ignored, long body", fault: answer(200, "Content-Length", "100009"), text: "does not support range requests"},
		{name: "range ignored, endless body", fault: endless(200), text: "does not support range requests"},
		{name: "no Content-Range", fault: answer(206), text: `Content-Range "", expected bytes 0-100007 and the size`},
		{name: "Content-Range with another start", fault: answer(206, "Content-Range", "bytes 1-8/100"), text: `Content-Range "bytes 1-8/100", expected bytes 0-100007`},
		{name: "Content-Range beyond the request", fault: answer(206, "Content-Range", "bytes 0-100008/200000"), text: "expected bytes 0-100007"},
		{name: "Content-Range without size", fault: answer(206, "Content-Range", "bytes 0-99/*"), text: "and the size"},
		{name: "Content-Range in another unit", fault: answer(206, "Content-Range", "lines 0-99/100"), text: "lines"},
		{name: "Content-Range with a sign", fault: answer(206, "Content-Range", "bytes 0-+9/100"), text: "expected bytes"},
		{name: "Content-Range of an impossible size", fault: answer(206, "Content-Range", "bytes 0-99/99"), text: "expected bytes"},
		{name: "Content-Range beyond 63 bits", fault: answer(206, "Content-Range", "bytes 0-99/99999999999999999999"), text: "expected bytes"},
		{name: "Content-Length of another range", fault: answer(206, "Content-Range", "bytes 0-99/100", "Content-Length", "50"), text: "Content-Length 50, expected the 100 bytes"},
		{name: "several ranges", fault: answer(206, "Content-Type", "multipart/byteranges; boundary=x"), text: `Content-Range ""`},
		{name: "compressed", fault: answer(206, "Content-Range", "bytes 0-99/100", "Content-Encoding", "gzip"), text: `Content-Encoding "gzip"`},
		{name: "empty", fault: answer(416, "Content-Range", "bytes */0"), as: &broken, text: "file of 0 bytes"},
		{name: "empty, served as a whole", fault: answer(200, "Content-Length", "0"), as: &broken, text: "file of 0 bytes"},
		{name: "empty on a server with ranges", file: []byte{}, as: &broken, text: "file of 0 bytes"},
		{name: "an HTML page", file: []byte("<!DOCTYPE html><html></html>"), as: &broken, text: "HTML page"},
		{name: "header beyond the file", file: craft(200_000, 0)[:150_000], as: &broken, text: "header length 200000 exceeds"},
		{name: "data truncated", file: craft(64, 200_000)[:150_000], as: &broken, text: "truncated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.fault = c.fault
			if c.file == nil {
				c.file = craft(200, 10)
			}
			s.add("/m", c.file)
			client, _ := newClient(t)
			url := "http://user:secret@" + s.Listener.Addr().String() + "/m?X-Amz-Signature=secret"
			_, err := client.Open(t.Context(), url)
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, "open "+s.URL+"/m: ")
			require.NotContains(t, err.Error(), "secret")
			require.Equal(t, 1, strings.Count(err.Error(), s.URL), "the URL once is enough")
			require.LessOrEqual(t, len(s.ranges()), 1+maxRedirects)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			if c.as != nil {
				require.ErrorAs(t, err, c.as)
			}
		})
	}
}

// TestVersionStaysPinned has an answer without a version.
func TestVersionStaysPinned(t *testing.T) {
	s := newServer(t)
	client, _ := newClient(t)
	tensor := openTensor(t, client, s.add("/m", craft(100_100, 3000)))
	s.fault = func(_ int, _ http.ResponseWriter, r *http.Request) bool { r.Header.Del("If-Match"); return false }
	s.etag = ""
	bytesOf(t, tensor)
	s.etag = `"v2"`
	_, err := safetensors.Append[byte](nil, tensor)
	require.ErrorIs(t, err, ErrChanged)
	require.Equal(t, "identity", s.requests[0].Header.Get("Accept-Encoding"))
}

func TestOpenRefusesURL(t *testing.T) {
	for _, url := range []string{
		"", "model.safetensors", "/model.safetensors", "//host/model", "file:///model", "ftp://host/m",
		"http:///m", "http://user:secret@host:port/m", "user:secret@host/m", "https://host/%zz?secret", "secret\x00",
		"http://[::1%25\x8b]/m?secret", // it parses, and what it prints does not
	} {
		_, err := Open(t.Context(), url)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestReadsPinTheVersion(t *testing.T) {
	monday := time.Date(2025, 6, 2, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name     string
		etag     string
		modified time.Time
		change   func(s *server)
		header   string // of requests after the first
		value    string
		text     string // of the error; empty: the change goes unnoticed
	}{
		{name: "nothing changes", etag: `"v1"`, header: "If-Match", value: `"v1"`},
		{name: "strong ETag", etag: `"v1"`, change: func(s *server) { s.etag = `"v2"` }, header: "If-Match", value: `"v1"`, text: "status 412 Precondition Failed"},
		{name: "strong ETag on a server without preconditions", etag: `"v1"`, change: func(s *server) {
			s.etag = `"v2"`
			s.fault = func(_ int, _ http.ResponseWriter, r *http.Request) bool { r.Header.Del("If-Match"); return false }
		}, text: "ETag is `\"v2\"`, was `\"v1\"`"},
		{name: "weak ETag", etag: `W/"v1"`, change: func(s *server) { s.etag = `W/"v2"` }, header: "If-Match", text: "ETag is `W/\"v2\"`, was `W/\"v1\"`"},
		{name: "same weak ETag, other date", etag: `W/"v1"`, modified: monday, change: func(s *server) {
			s.modified = monday.Add(time.Second)
			s.fault = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
				r.Header.Del("If-Unmodified-Since")
				return false
			}
		}, text: "Last-Modified is"},
		{name: "same strong ETag, other date", etag: `"v1"`, modified: monday, change: func(s *server) { s.modified = monday.Add(time.Second) }},
		{name: "date", modified: monday, change: func(s *server) { s.modified = monday.Add(time.Second) }, header: "If-Unmodified-Since", value: "Mon, 02 Jun 2025 08:00:00 GMT", text: "status 412"},
		{name: "shorter", change: func(s *server) { s.files["/m"] = craft(100_100, 5) }, text: "it has 100113 bytes, had 103108"},
		{name: "longer", change: func(s *server) { s.files["/m"] = craft(100_100, 5000) }, text: "it has 105108 bytes, had 103108"},
		{name: "turned into a server without ranges", change: func(s *server) {
			s.fault = func(_ int, _ http.ResponseWriter, r *http.Request) bool { r.Header.Del("Range"); return false }
		}, text: "does not support range requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.etag, s.modified = c.etag, c.modified
			client, _ := newClient(t)
			tensor := openTensor(t, client, s.add("/m", craft(100_100, 3000)))
			if c.change != nil {
				c.change(s)
			}
			_, err := safetensors.Append[byte](nil, tensor)
			last := s.requests[len(s.requests)-1]
			if c.header != "" {
				require.Equal(t, c.value, last.Header.Get(c.header))
			}
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.text)
			if c.text != "does not support range requests" {
				require.ErrorIs(t, err, ErrChanged)
			}
		})
	}
}
