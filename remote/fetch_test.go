package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// statusOf returns a fault that answers with a status and header fields.
func statusOf(status int, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
	}
}

// reply returns a fault that answers with a status, header fields and a text, and then calls end,
// which is one of the funcs below.
func reply(end http.HandlerFunc, text []byte, status int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		statusOf(status, header...)(w, r)
		w.(http.Flusher).Flush() // otherwise an answer with a short text would have a Content-Length
		w.Write(text)
		w.(http.Flusher).Flush()
		end(w, r)
	}
}

func done(http.ResponseWriter, *http.Request)     {}
func abort(http.ResponseWriter, *http.Request)    { panic(http.ErrAbortHandler) }
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// endless writes zeros until the client hangs up.
func endless(w http.ResponseWriter, _ *http.Request) {
	zeros := make([]byte, 64<<10)
	for err := error(nil); err == nil; {
		_, err = w.Write(zeros)
	}
}

// sendPart returns a fault that answers with the first n bytes of the requested range, and then
// calls end.
func sendPart(end http.HandlerFunc, file []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		first, last := rangeOf(r.Header.Get("Range"))
		last = min(last, len(file)-1)
		reply(end, file[first:][:n], 206, "ETag", `"v1"`, "Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(file)),
			"Content-Length", strconv.Itoa(last+1-first))(w, r)
	}
}

// rangeOf returns the first and the last byte that a request asks for.
func rangeOf(text string) (first, last int) {
	fmt.Sscanf(text, "bytes=%d-%d", &first, &last)
	return first, last
}

// capped returns a fault that answers a range request with at most n bytes. HTTP allows a server to
// do that.
func capped(file []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		first, last := rangeOf(r.Header.Get("Range"))
		last = min(last, first+n-1, len(file)-1)
		statusOf(206, "ETag", `"v1"`, "Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(file)))(w, r)
		w.Write(file[first : last+1])
	}
}

// TestReads opens a file whose server then fails, breaks off, shortens its answers or becomes
// hostile. The read returns the bytes of the file, with the requests and pauses in the table, or it
// fails. The number of superfluous bytes that the server can send is bounded, and no goroutine is
// left.
func TestReads(t *testing.T) {
	const header, data = 100_000, 200_000
	file := craft(header, data)
	from := func(n int) string { return fmt.Sprintf("bytes=%d-%d", 8+header+n, 8+header+data-1) }
	all := from(0)
	times := func(n int) []string { return slices.Repeat([]string{all}, n) }
	every := func(n, data int) (ranges []string) { // ranges of the requests that return n bytes each
		for at := 0; at < data; at += n {
			ranges = append(ranges, from(at))
		}
		return ranges
	}
	// claim sends an answer whose header claims n bytes, starting shift bytes after the requested
	// offset, and then the body.
	claim := func(shift, n int, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			begin, _ := rangeOf(r.Header.Get("Range"))
			begin += shift
			reply(done, body, 206, "ETag", `"v1"`, "Content-Range", fmt.Sprintf("bytes %d-%d/%d", begin, begin+n-1, len(file)))(w, r)
		}
	}
	rest := file[8+header:]
	cut := func(n int) http.HandlerFunc { return sendPart(abort, file, n) }
	for _, c := range []struct {
		rule   string
		fault  fault
		ranges []string // ranges of the requests
		pauses int
		text   string // text of the error; "" if there is none
	}{
		{"no fault", nil, times(1), 0, ""},
		{"request timeout", first(1, statusOf(408)), times(2), 1, ""},
		{"too early", first(1, statusOf(425)), times(2), 1, ""},
		{"burst of 429", first(7, statusOf(429)), times(8), 7, ""},
		{"burst of 503", first(3, statusOf(503)), times(4), 3, ""},
		{"internal error", first(2, statusOf(500)), times(3), 2, ""},
		{"never available", always(statusOf(503)), times(8), 7, "bytes 100008-300007: status 503 Service Unavailable (tried 8 times)"},
		{"gone", always(statusOf(410)), times(1), 0, "status 410"},

		// net/http itself tries once more, on a new connection.
		{"broken before the answer", first(2, abort), times(3), 1, ""},
		{"broken before the body", first(1, cut(0)), times(2), 1, ""},
		{"broken early in the body", first(1, cut(1000)), []string{all, from(1000)}, 1, ""},
		{"broken late in the body", first(1, cut(goodTry)), []string{all, from(goodTry)}, 0, ""},
		{"broken late, again and again", first(3, cut(goodTry)), every(goodTry, data), 0, ""},
		{"broken after a little, for ever", always(func(w http.ResponseWriter, r *http.Request) {
			first, _ := rangeOf(r.Header.Get("Range"))
			cut(min(leastTry, len(file)-first))(w, r)
		}), every(leastTry, data), data / leastTry, ""},
		{"broken after less, for ever", always(cut(10)), every(10, 8*10), 7, "unexpected EOF after 10 bytes (tried 8 times)"},
		{"stalled before the answer", first(1, hang), times(2), 1, ""},
		{"stalled in the body", first(1, sendPart(hang, file, 1000)), []string{all, from(1000)}, 1, ""},

		{"answers capped", always(capped(file, leastTry)), every(leastTry, data), 0, ""},
		{"answers capped at less", always(capped(file, leastTry-1)), every(leastTry-1, 8*(leastTry-1)), 7, "unexpected EOF after 1023 bytes (tried 8 times)"},
		{"one byte at a time", always(capped(file, 1)), every(1, 8), 7, "unexpected EOF after 1 byte (tried 8 times)"},
		{"shorter range than asked for", first(1, claim(0, 100, rest[:100])), []string{all, from(100)}, 1, ""},
		{"body longer than its range", first(1, claim(0, 100, append(rest[:100:100], ^rest[100]))), []string{all, from(100)}, 1, ""},
		{"body longer than asked for", always(func(w http.ResponseWriter, r *http.Request) { claim(0, data, rest)(w, r); endless(w, r) }), times(1), 0, ""},
		{"body shorter than its range, of no stated length", first(1, claim(0, 5001, rest[:5000])), []string{all, from(5000)}, 1, ""},

		{"no byte of its range, of no stated length", always(claim(0, data, nil)), times(8), 7, "unexpected EOF after 0 bytes (tried 8 times)"},

		{"range with another start", always(claim(-1, data, rest)), times(1), 0, `Content-Range "bytes 100007-300006/300008", expected bytes 100008-300007`},
		{"range longer than asked for", always(claim(0, data+1, rest)), times(1), 0, "Content-Range"},
		{"range that goes back", always(claim(10, -9, nil)), times(1), 0, "Content-Range"},
		{"range of a longer file", always(statusOf(206, "Content-Range", "bytes 100008-300008/300009")), times(1), 0, "it has 300009 bytes, had 300008"},
		{"range compressed", always(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			claim(0, data, rest)(w, r)
		}), times(1), 0, `Content-Encoding "gzip"`},
		{"range ignored", always(statusOf(200, "Content-Length", "300008")), times(1), 0, "does not support range requests"},
		{"range ignored by another file", always(statusOf(200, "ETag", `"v2"`)), times(1), 0, ErrChanged.Error()},
		{"range ignored, endless body", always(reply(endless, nil, 200, "ETag", `"v1"`)), times(1), 0, "does not support range requests"},
	} {
		for _, http2 := range []bool{false, true} {
			if http2 && strings.HasPrefix(c.rule, "broken") {
				continue // with HTTP/2, an answer that breaks off leaves the connection open
			}
			t.Run(fmt.Sprintf("%s/http2=%v", c.rule, http2), func(t *testing.T) {
				requireNoGoroutinesLeft(t)
				s := startServer(t, http2)
				client, clock := newClientOf(t, s)
				stalls := strings.HasPrefix(c.rule, "stalled")
				if stalls {
					client.pace.stall = time.Second
				}
				tensor := openTensor(t, client, s.add("/m", file))
				s.reset(c.fault)
				got, err := safetensors.Append[byte](nil, tensor)
				require.LessOrEqual(t, s.bytes(), int64(mostInFlight))
				if c.text == "" {
					require.NoError(t, err)
					require.Equal(t, pattern(data), got)
				} else {
					require.Empty(t, got)
					require.ErrorContains(t, err, c.text)
					require.ErrorContains(t, err, "GET "+s.URL+"/m: ")
					require.Equal(t, c.pauses > 0, errors.As(err, new(*temporary)))
					require.NotErrorIs(t, err, io.EOF, "which would end a copy without an error")
				}
				if stalls { // on a busy machine, another try may stall
					require.Equal(t, c.ranges, s.ranges()[:len(c.ranges)])
					require.GreaterOrEqual(t, len(clock.pauses), c.pauses)
					return
				}
				require.Equal(t, c.ranges, s.ranges())
				require.Len(t, clock.pauses, c.pauses)
			})
		}
	}
}

// TestPauses: the pause before the next try follows Retry-After and RateLimit, and otherwise the
// back-off.
func TestPauses(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for _, c := range []struct {
		name     string
		status   int
		header   []string
		min, max time.Duration
	}{
		{"back-off", 503, nil, firstPause / 2, firstPause},
		{"seconds", 429, []string{"Retry-After", "7"}, 7 * time.Second, 7 * time.Second},
		{"seconds, with a status other than 429", 503, []string{"Retry-After", "7"}, 7 * time.Second, 7 * time.Second},
		{"seconds beyond the cap", 429, []string{"Retry-After", "86400"}, longestAsked, longestAsked},
		{"seconds of two digits", 429, []string{"Retry-After", "12"}, 12 * time.Second, 12 * time.Second},
		{"seconds of 32 bits", 429, []string{"Retry-After", "4294967295"}, longestAsked, longestAsked},
		{"seconds of 33 bits", 429, []string{"Retry-After", "4294967296"}, firstPause / 2, firstPause},
		{"seconds beyond all bounds", 429, []string{"Retry-After", "99999999999999999999"}, firstPause / 2, firstPause},
		{"seconds shorter than the back-off", 429, []string{"Retry-After", "0"}, firstPause / 2, firstPause},
		{"date", 429, []string{"Retry-After", in(50 * time.Second)}, 10 * time.Second, 50 * time.Second},
		{"date beyond the cap", 429, []string{"Retry-After", in(time.Hour)}, longestAsked, longestAsked},
		{"date that has passed", 429, []string{"Retry-After", in(-time.Hour)}, firstPause / 2, firstPause},
		{"nonsense", 429, []string{"Retry-After", "soon"}, firstPause / 2, firstPause},
		{"rate limit of the hub", 429, []string{"RateLimit", `"resolvers";r=0;t=55`}, 55 * time.Second, 55 * time.Second},
		{"rate limit of the hub that is not reached", 502, []string{"RateLimit", `"resolvers";r=4999;t=290`}, firstPause / 2, firstPause},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			client, clock := newClient()
			s.fault = first(1, statusOf(c.status, c.header...))
			openTensor(t, client, s.add("/m", craft(100, 10)))
			require.Len(t, clock.pauses, 1)
			require.GreaterOrEqual(t, clock.pauses[0], c.min)
			require.LessOrEqual(t, clock.pauses[0], c.max)
		})
	}
}

// TestExchangeEnds: an exchange that is closed leaves nothing behind, because that would stay as
// long as the File is open.
func TestExchangeEnds(t *testing.T) {
	x := (&session{ctx: t.Context(), pace: pace{stall: time.Hour}}).exchange()
	x.Close()
	require.ErrorIs(t, x.ctx.Err(), context.Canceled, "the context of the File lets it go")
	require.False(t, x.watch.Stop(), "nothing waits for it")
}

// TestNumbersOfTheDoc compares the numbers in the documentation with the constants.
func TestNumbersOfTheDoc(t *testing.T) {
	doc := strings.ReplaceAll(string(must(os.ReadFile("doc.go"))), "\n//", "")
	for _, sentence := range []string{
		fmt.Sprintf("one request if its header has at most %d,000 bytes", (firstRead-8)/1000),
		fmt.Sprintf("up to %d requests in flight", inFlight),
		fmt.Sprintf("gaps of up to %d KiB", maxGap>>10),
		fmt.Sprintf("up to %d MiB in all", maxSpan>>20),
		fmt.Sprintf("tried up to %d times", maxTries),
		fmt.Sprintf("stalls for %d seconds", stallTimeout/time.Second),
		fmt.Sprintf("a try that received %d KiB. There", leastTry>>10),
		fmt.Sprintf("no wait after a try that received %d KiB", goodTry>>10),
		fmt.Sprintf("tried %d times within a second", maxDials),
		"from a quarter of a second to ten seconds",
		"up to a minute",
	} {
		require.Contains(t, doc, sentence)
	}
	require.Equal(t, [3]time.Duration{time.Second / 4, 10 * time.Second, time.Minute}, [3]time.Duration{firstPause, longestPause, longestAsked})
}

// TestBackOffGrows: pauses double up to the longest, and at most half of each is random.
func TestBackOffGrows(t *testing.T) {
	for failed := 1; failed < maxTries; failed++ {
		longest := min(firstPause<<(failed-1), longestPause)
		for range 100 {
			d := backOff(failed)
			require.GreaterOrEqual(t, d, longest/2)
			require.Less(t, d, longest)
		}
	}
}

// TestBusyServer: if a server at its limit refuses a request again and again, the client does not
// give up while the server serves other requests of the same Open. It gives up if no other request
// is served, or if connections break.
func TestBusyServer(t *testing.T) {
	for _, c := range []struct {
		rule   string
		busy   bool
		others bool // whether other requests are served between the tries
		tries  int
	}{
		{"others are served", true, true, 100},
		{"nothing is served", true, false, maxTries},
		{"the connection breaks", false, true, maxTries},
	} {
		t.Run(c.rule, func(t *testing.T) {
			waits := new(clock)
			s := &session{ctx: t.Context(), pace: pace{pause: waits.pause}}
			tries := 0
			err := s.retry(new(int), func() (int64, error) {
				if tries++; tries == 100 {
					return 10, nil
				}
				if c.others {
					s.served.Add(1)
				}
				return 0, &temporary{error: io.ErrUnexpectedEOF, busy: c.busy}
			})
			require.Equal(t, c.tries, tries)
			require.Equal(t, c.tries < 100, err != nil)
			for _, d := range waits.pauses[maxTries-2:] {
				require.GreaterOrEqual(t, d, longestPause/2, "it waits no less after the others")
			}
		})
	}
	for n, served := range map[int64]int64{leastTry: 2, leastTry - 1: 1} { // number of served requests after a try that fails after n bytes, and one that succeeds
		s := &session{ctx: t.Context(), pace: pace{pause: new(clock).pause}}
		failure := error(&temporary{error: io.ErrUnexpectedEOF})
		require.NoError(t, s.retry(new(int), func() (int64, error) {
			err := failure
			failure = nil
			return n, err
		}))
		require.Equal(t, served, s.served.Load())
	}
	for status, busy := range map[int]bool{429: true, 503: true, 500: false} {
		failure := new(temporary)
		require.ErrorAs(t, statusError(&http.Response{StatusCode: status}, http.StatusOK), &failure)
		require.Equal(t, busy, failure.busy)
	}
}

// TestContextEndsAll: when the context is done, all waiting readers get its error, and no request
// continues.
func TestContextEndsAll(t *testing.T) {
	const readers = 50
	file := craft(100_000, 20_000_000)
	s := newServer(t)
	client, _ := newClient()
	ctx, cancel := context.WithCancel(t.Context())
	f := must(client.Open(ctx, s.add("/m", file)))
	tensor := must(f.Tensor("t"))

	var arrived sync.WaitGroup
	arrived.Add(inFlight)
	s.reset(always(sendPart(func(w http.ResponseWriter, r *http.Request) {
		arrived.Done() // panics if there are more requests
		hang(w, r)
	}, file, 10)))
	errs := make(chan error)
	for i := range readers {
		go func() {
			part, err := tensor.Slice(safetensors.Span(i*400_000, i*400_000+1000)) // too far apart to be merged
			if err == nil {
				_, err = safetensors.Append[byte](nil, part)
			}
			errs <- err
		}()
	}
	arrived.Wait()
	cancel()
	for range readers {
		require.ErrorIs(t, <-errs, context.Canceled)
	}
	require.Len(t, s.ranges(), inFlight)
	require.NoError(t, f.Close())
}

// TestContextEndsPause: when the context is done, the pause before a retry also ends.
func TestContextEndsPause(t *testing.T) {
	s := newServer(t)
	client, _ := newClient()
	ctx, cancel := context.WithCancel(t.Context())
	client.pace.pause = func(ctx context.Context, d time.Duration) {
		require.Equal(t, longestAsked, d)
		cancel()
		pause(ctx, d)
	}
	s.fault = first(1, statusOf(429, "Retry-After", "3600"))
	require.ErrorIs(t, errorOf(client.Open(ctx, s.add("/m", craft(100, 10)))), context.Canceled)
	pause(t.Context(), time.Nanosecond)
}

// TestParseContentRange tries spellings that are accepted and spellings that are refused, for
// example because a number does not fit.
func TestParseContentRange(t *testing.T) {
	for text, want := range map[string]*contentRange{
		"bytes 0-99/100":                      {0, 99, 100},
		"Bytes 5-5/6":                         {5, 5, 6},
		"bytes 0-99/*":                        {0, 99, -1},
		"bytes 0-0/999999999999999999":        {0, 0, 999999999999999999},
		"bytes */100":                         nil,
		"":                                    nil,
		"bytes":                               nil,
		"bytes=0-99/100":                      nil,
		"bytes 0-99":                          nil,
		"bytes 0-99/":                         nil,
		"bytes 0-/100":                        nil,
		"bytes -99/100":                       nil,
		"bytes 99-0/100":                      nil,
		"bytes 0-100/100":                     nil,
		"bytes 0-0/0":                         nil,
		"bytes 0-99/100 ":                     nil,
		"bytes 0-99/100\n":                    nil,
		"bytes  0-99/100":                     nil,
		"bytes 0-9223372036854775807/*":       nil,
		"bytes 0-99/100, bytes 200-299/10000": nil,
	} {
		r, ok := parseContentRange(text)
		require.Equal(t, want != nil, ok, text)
		if ok {
			require.Equal(t, *want, r, text)
		}
	}
}
