package remote

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
)

const indexFile = "model.safetensors.index.json"

// TestOpenCostsOneRequestOrTwo counts the requests of Open for headers whose sizes are at and next
// to the limit of the first request.
func TestOpenCostsOneRequestOrTwo(t *testing.T) {
	s := newServer(t)
	const data = 3000
	test := func(length int) {
		t.Run(strconv.Itoa(length), func(t *testing.T) {
			s.reset(nil)
			c, _ := newClient()
			tensor := openTensor(t, c, s.add("/m", craft(length, data)))
			want := []string{"bytes=0-100007"}
			if length > 100_000 {
				want = append(want, fmt.Sprintf("bytes=100008-%d", 8+length-1))
			}
			require.Equal(t, want, s.ranges())
			require.Equal(t, int64(max(100_008, 8+length)), s.sent)
			require.Equal(t, pattern(data), bytesOf(tensor))
			require.Equal(t, fmt.Sprintf("bytes=%d-%d", 8+length, 8+length+data-1), s.ranges()[len(want)])
		})
	}
	for length := 99_993; length <= 100_016; length++ {
		test(length)
	}
	test(9 << 20) // longer than the range of any other request
}

// TestOpen opens files of servers whose answers are valid, invalid or hostile: some keep the client
// waiting, or try to fill its memory. The file opens, or there is an error that shows no secret,
// after a limited number of requests and bytes, and with little memory. No goroutine is left. The
// limits leave room for the memory of the test server.
func TestOpen(t *testing.T) {
	const index, fp16, start = "/f/" + indexFile, "/f/model.safetensors.index.fp16.json", "bytes=0-100007"
	file := craft(64, 1000)
	answer := func(status int, header ...string) fault { return always(statusOf(status, header...)) }
	send := func(file []byte, header ...string) fault { return always(reply(done, file, 200, header...)) }
	longest := craft(64, firstRead-72) // the longest file that the first request reads as a whole
	longer := craft(250_000, 50_000)
	fill := func(status int, header ...string) fault { return always(reply(endless, nil, status, header...)) }
	stall := func(status int, header ...string) fault { return always(reply(hang, nil, status, header...)) }
	redirects := func(n int) fault { return first(n, redirectTo("/m")) }
	claim := func(size int64) string { return fmt.Sprintf("bytes 0-%d/%d", firstRead-1, size) }
	shard := func(name string) []byte { return []byte(`{"weight_map":{"t":"` + name + `"}}`) }
	for _, c := range []struct {
		rule     string
		path     string // path of the file; the default is /m
		file     []byte // the default is a short file
		fault    fault
		ranges   []string // ranges of the requests; they are not compared if it is nil
		requests int64    // largest number of requests; the default is 1, or the number of ranges
		is       error
		as       any
		text     string // text of the error; "" if there is none
	}{
		{rule: "206 with a shorter range", ranges: []string{start}},
		{rule: "200 with the whole file", fault: send(file, "Content-Length", strconv.Itoa(len(file))), ranges: []string{start}},
		{rule: "200 of unknown length", fault: send(file), ranges: []string{start}},
		{rule: "200 with as much as was asked for", file: longest, fault: send(longest, "Content-Length", "100008"), ranges: []string{start}},
		{rule: "200 of unknown length with as much", file: longest, fault: send(longest), ranges: []string{start}},
		{rule: "200 of unknown length with more", fault: send(craft(64, firstRead-71)), text: "does not support range requests"},
		{rule: "200 that broke in the body, then whole", fault: first(1, reply(abort, file[:500], 200)).then(send(file)), ranges: []string{start, start}},
		{rule: "206 of a server that was found again", fault: first(1, statusOf(503)), ranges: []string{start, start}},
		{rule: "as many redirects as are followed", fault: redirects(maxRedirects), requests: maxRedirects + 1},
		{rule: "206 with a tenth of the header at a time", fault: always(capped(longer, 25_000)), requests: 12 + 4},

		{rule: "range refused", fault: first(1, statusOf(416)), ranges: []string{start, ""}},
		{rule: "range refused after a failure", fault: first(1, statusOf(503)).then(first(2, statusOf(416))), ranges: []string{start, start, ""}},
		{rule: "range refused, then a failure", fault: first(1, statusOf(416)).then(first(2, reply(abort, file[:500], 200))), ranges: []string{start, "", ""}},
		{rule: "range refused, in a file that it fits in", fault: first(1, statusOf(416)).then(send(craft(64, firstRead-71))), ranges: []string{start, ""}, text: "does not support range requests"},
		{rule: "range refused, then answered", fault: first(1, statusOf(416)).then(answer(206, "Content-Range", "bytes 0-99/100")), ranges: []string{start, ""}, text: "status 206 Partial Content, expected 200 OK"},
		{rule: "all refused", fault: answer(416), ranges: []string{start, ""}, text: "status 416"},

		{rule: "not found", fault: answer(404), is: fs.ErrNotExist, text: "status 404 Not Found"},
		{rule: "gone", fault: answer(410), is: fs.ErrNotExist, text: "410"},
		{rule: "unauthorized", fault: answer(401, "X-Error-Message", "Invalid credentials"), is: fs.ErrPermission, text: `("Invalid credentials")`},
		{rule: "forbidden", fault: answer(403), is: fs.ErrPermission, text: "403"},
		{rule: "bad request", fault: answer(400), text: "status 400 Bad Request"},
		{rule: "no content", fault: answer(204), text: "status 204 No Content, expected 206"},
		{rule: "unavailable for good", fault: answer(503), requests: maxTries, text: "status 503 Service Unavailable (tried 8 times)"},
		{rule: "precondition that was not made", fault: answer(412), text: "status 412"},
		{rule: "redirect without a location", fault: answer(302), text: "status 302 Found, expected 206"},
		{rule: "redirect to no URL", fault: answer(302, "Location", "https://host/%zz?X-Amz-Signature=secret"), text: "status 302 Found, expected 206 Partial Content"},
		{rule: "redirect to another scheme", fault: always(redirectTo("ftp://127.0.0.1/m")), text: "the redirect does not lead to an http or https URL"},
		{rule: "one redirect more than are followed", fault: redirects(maxRedirects + 1), requests: maxRedirects + 1, text: "more than 10 redirects"},
		{rule: "redirects to ever new places", fault: always(func(w http.ResponseWriter, r *http.Request) {
			redirectTo(r.URL.Path+"/m")(w, r)
		}), requests: maxRedirects + 1, text: "more than 10 redirects"},

		{rule: "no Content-Range", fault: answer(206), text: `Content-Range "", expected bytes 0-100007 and the size`},
		{rule: "Content-Range with another start", fault: answer(206, "Content-Range", "bytes 1-8/100"), text: `Content-Range "bytes 1-8/100", expected bytes 0-100007`},
		{rule: "Content-Range beyond the request", fault: answer(206, "Content-Range", "bytes 0-100008/200000"), text: "expected bytes 0-100007"},
		{rule: "Content-Range without size", fault: answer(206, "Content-Range", "bytes 0-99/*"), text: "and the size"},
		{rule: "Content-Range in another unit", fault: answer(206, "Content-Range", "lines 0-99/100"), text: "lines"},
		{rule: "Content-Range with a sign", fault: answer(206, "Content-Range", "bytes 0-+9/100"), text: "expected bytes"},
		{rule: "Content-Range of an impossible size", fault: answer(206, "Content-Range", "bytes 0-99/99"), text: "expected bytes"},
		{rule: "Content-Range beyond 63 bits", fault: answer(206, "Content-Range", "bytes 0-99/99999999999999999999"), text: "expected bytes"},
		{rule: "Content-Length of another range", fault: answer(206, "Content-Range", "bytes 0-99/100", "Content-Length", "50"), text: "Content-Length 50, expected the 100 bytes"},
		{rule: "several ranges", fault: answer(206, "Content-Type", "multipart/byteranges; boundary=x"), text: `Content-Range ""`},
		{rule: "compressed range", fault: always(reply(done, bomb(), 206, "Content-Encoding", "gzip", "Content-Range", claim(1<<30))), text: `Content-Encoding "gzip"`},
		{rule: "range ignored, long body", fault: answer(200, "Content-Length", "100009"), text: "does not support range requests"},

		{rule: "empty", file: []byte{}, fault: first(1, statusOf(416, "Content-Range", "bytes */0")), requests: 2, as: new(*safetensors.FormatError), text: "file of 0 bytes"},
		{rule: "empty, served as a whole", fault: answer(200, "Content-Length", "0"), as: new(*safetensors.FormatError), text: "file of 0 bytes"},
		{rule: "empty on a server with ranges", file: []byte{}, as: new(*safetensors.FormatError), text: "file of 0 bytes"},
		{rule: "an HTML page", file: []byte("<!DOCTYPE html><html></html>"), as: new(*safetensors.FormatError), text: "HTML page"},
		{rule: "header beyond the file", file: craft(200_000, 0)[:150_000], as: new(*safetensors.FormatError), text: "header length 200000 exceeds"},
		{rule: "data truncated", file: craft(64, 200_000)[:150_000], as: new(*safetensors.FormatError), text: "truncated"},
		{rule: "file of any size", fault: always(reply(done, craft(firstRead-8, 0), 206, "Content-Range", claim(1<<58))), as: new(*safetensors.FormatError), text: "tensors end at 0"},
		{rule: "header of any size", fault: always(reply(endless, []byte{0, 0, 0, 0, 0, 0, 1, 0}, 206, "Content-Range", claim(1<<58))), as: new(*safetensors.FormatError), text: "exceeds the limit"},

		{rule: "endless body", fault: fill(200), text: "does not support range requests"},
		{rule: "endless body of an error", fault: fill(500), requests: maxTries, text: "status 500"},
		{rule: "endless body of a refusal", fault: fill(403), text: "status 403"},
		{rule: "endless body of a redirect", fault: fill(302, "Location", "/m"), requests: 1 + maxRedirects, text: "more than 10 redirects"},
		{rule: "endless body of a range", fault: fill(206, "Content-Range", claim(1<<50)), as: new(*safetensors.FormatError), text: "expected an object, the header"},
		{rule: "no answer", fault: always(hang), requests: maxTries, text: "the connection stalled (tried 8 times)"},
		{rule: "no body", fault: stall(206, "Content-Range", claim(1<<30)), requests: maxTries, text: "the connection stalled (tried 8 times)"},
		{rule: "redirect that never ends", fault: stall(302, "Location", "/m", "Content-Length", "5"), requests: maxTries, text: "the connection stalled (tried 8 times)"},
		{rule: "body cut again and again", fault: always(reply(abort, nil, 206, "Content-Range", claim(1<<30))), requests: 2 * maxTries, text: "(tried 8 times)"}, // net/http tries again, too

		{rule: "index, at the third try", path: index, file: shard("m.safetensors"), fault: first(1, statusOf(503)).then(first(2, reply(abort, []byte(`{"weight_map"`), 200, "Content-Length", "100"))), ranges: []string{"", "", "", start}},
		{rule: "index of a variant", path: fp16, file: shard("m.safetensors"), ranges: []string{"", start}},
		{rule: "index of a variant, older name", path: "/f/model.fp16.safetensors.index.json", file: shard("m.safetensors"), ranges: []string{"", start}},
		{rule: "other JSON", path: "/f/config.json", file: shard("m.safetensors"), as: new(*safetensors.FormatError), text: "header length"},
		{rule: "index that is no range", path: index, fault: answer(416), text: "status 416 Requested Range Not Satisfiable"},
		{rule: "index that is missing", path: index, is: fs.ErrNotExist, text: "status 404 Not Found"},
		{rule: "index that is none", path: index, file: []byte("<html>"), as: new(*safetensors.FormatError), text: indexFile},
		{rule: "shard above the index", path: index, file: shard("../other/model.safetensors"), as: new(*safetensors.FormatError), text: "other/model"},
		{rule: "shard at another host", path: index, file: shard("//127.0.0.1/x.safetensors"), as: new(*safetensors.FormatError), text: "127.0.0.1"},
		{rule: "shard that is missing", path: index, file: shard("x.safetensors"), requests: 2, is: fs.ErrNotExist, text: `shard "x.safetensors"`},
		{rule: "shards that are missing", path: index, file: manyShards(), requests: 1 + 10 + inFlight, text: "status 404"},
		{rule: "gzip bomb for an index", path: index, fault: always(reply(done, bomb(), 200, "Content-Encoding", "gzip")), text: `Content-Encoding "gzip"`},
		{rule: "endless index", path: index, fault: fill(200), text: "it has more than 67108864 bytes"},
		{rule: "index without an answer", path: index, fault: always(hang), requests: maxTries, text: "the connection stalled (tried 8 times)"},
		{rule: "index that never ends", path: index, fault: always(reply(hang, []byte(`{"weight_map":{`), 200)), requests: maxTries, text: "the connection stalled (tried 8 times)"},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%v", c.rule, http2), func(t *testing.T) {
				requireNoGoroutinesLeft(t)
				s := startServer(t, http2)
				s.fault = c.fault
				client, _ := newClientOf(t, s)
				if strings.Contains(c.text, "stalled") {
					client.pace.stall = 20 * time.Millisecond
				}
				if c.path == "" {
					c.path = "/m"
				}
				if c.file == nil && c.path == "/m" {
					c.file = file
				}
				if c.file != nil {
					s.add(c.path, c.file)
				}
				s.add("/f/m.safetensors", file)
				c.requests = max(c.requests, int64(len(c.ranges)), 1)
				secret := strings.Replace(s.URL, "://", "://user:secret@", 1) + c.path + "?X-Amz-Signature=secret"
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				var f *safetensors.File
				var err error
				memory := testplatform.Allocated(func() { f, err = client.Open(ctx, secret) })
				if c.text == "" {
					require.NoError(t, err)
					x := must(f.Tensor("t"))
					require.Equal(t, pattern(x.Len()), bytesOf(x))
					require.NoError(t, f.Close())
				} else {
					requireOpenError(t, err, s, c.path, c.text)
				}
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
				if c.as != nil {
					require.ErrorAs(t, err, c.as)
				}
				if c.ranges != nil {
					require.Equal(t, c.ranges, s.ranges(), "none after opening")
				}
				require.LessOrEqual(t, int64(len(s.ranges())), c.requests)
				require.LessOrEqual(t, s.bytes(), int64(mostInFlight+maxDownload))
				if !testplatform.RaceEnabled {
					require.LessOrEqual(t, memory, uint64(14*maxDownload), "two growing buffers of 64 MiB, and what the server allocates")
				}
			})
		}
	}
}

// requireOpenError checks the error of opening a file. It contains the text and no secret. It also
// contains the URL, exactly once if no other URL was requested. The shards of an index are next to
// it.
func requireOpenError(t *testing.T, err error, s *server, file, text string) {
	t.Helper()
	require.ErrorContains(t, err, text)
	require.ErrorContains(t, err, "safetensors: open "+s.URL+file+": ")
	require.NotContains(t, err.Error(), "secret")
	if strings.HasPrefix(text, "status ") {
		require.NotContains(t, err.Error(), ": bytes 0-", "nobody asked for the range of the first request")
	}
	others := false
	s.mu.Lock() // a request whose client has hung up may arrive late
	defer s.mu.Unlock()
	for _, r := range s.requests {
		others = others || r.URL.Path != file
		require.True(t, path.Ext(file) != ".json" || path.Dir(r.URL.Path) == path.Dir(file), r.URL.Path)
	}
	require.True(t, others || strings.Count(err.Error(), s.URL) == 1, "%v", err)
}

// TestOpenIndexConcurrently: as many shards of an index are opened concurrently as there may be
// requests in flight.
func TestOpenIndexConcurrently(t *testing.T) {
	s := newServer(t)
	waiting := make(chan struct{}, inFlight)
	full := make(chan struct{})
	s.fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n < 1 || n > inFlight {
			return false
		}
		if waiting <- struct{}{}; len(waiting) == inFlight {
			close(full)
		}
		<-full // the last of the concurrent requests closes it
		return false
	}
	client, _ := newClient()
	require.ErrorIs(t, errorOf(client.Open(t.Context(), s.add("/f/"+indexFile, manyShards()))), fs.ErrNotExist)
}

// TestOpenRefusesURL: anything except an absolute http or https URL is refused. The error shows no
// secret in it.
func TestOpenRefusesURL(t *testing.T) {
	for _, url := range []string{
		"", "model.safetensors", "/model.safetensors", "//host/model", "file:///model", "ftp://host/m",
		"http:///m", "http://user:secret@host:port/m", "user:secret@host/m", "https://host/%zz?secret", "secret\x00",
		"http://[::1%25\x8b]/m?secret", // url.Parse accepts it, but not the text that its String returns
	} {
		_, err := Open(t.Context(), url)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, url := range []string{"", "model", "/model", "//host/model", "host/m?at=https://host", "localhost:80/secret", "127.0.0.1:80/secret", "user:secret@host/m"} {
		_, err := Open(t.Context(), url)
		require.EqualError(t, err, "safetensors: the URL has no scheme: it must begin with http:// or https://")
	}
	require.EqualError(t, errorOf(Open(t.Context(), "ftp://host/m?secret")), `safetensors: "ftp://host/m" is not an absolute http or https URL`)
}
