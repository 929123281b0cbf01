package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
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

// breakAfter returns a fault that answers with the first n bytes of the range
// asked for and breaks the connection.
func breakAfter(file []byte, n int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		sendPart(w, r, file, n)
		panic(http.ErrAbortHandler)
	}
}

// sendPart sends the header of an answer to a range request and n bytes of its body.
func sendPart(w http.ResponseWriter, r *http.Request, file []byte, n int) {
	var first, last int
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
	last = min(last, len(file)-1)
	w.Header().Set("ETag", `"v1"`)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(file)))
	w.Header().Set("Content-Length", strconv.Itoa(last+1-first))
	w.WriteHeader(http.StatusPartialContent)
	w.Write(file[first:][:n])
	w.(http.Flusher).Flush()
}

// rangeStart returns the first byte that a request asks for.
func rangeStart(r *http.Request) (first int) {
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &first)
	return first
}

// sendCapped answers a range request with at most n bytes, as a server may.
func sendCapped(w http.ResponseWriter, r *http.Request, file []byte, n int) {
	var first, last int
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
	last = min(last, first+n-1, len(file)-1)
	w.Header().Set("ETag", `"v1"`)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(file)))
	w.WriteHeader(http.StatusPartialContent)
	w.Write(file[first : last+1])
}

// every returns the ranges of requests for n bytes each.
func every(n, data int, rangeFrom func(int) string) (ranges []string) {
	for at := 0; at < data; at += n {
		ranges = append(ranges, rangeFrom(at))
	}
	return ranges
}

func TestReadsAreRetried(t *testing.T) {
	const header, data = 100_000, 200_000
	file := craft(header, data)
	rangeFrom := func(n int) string { return fmt.Sprintf("bytes=%d-%d", 8+header+n, 8+header+data-1) }
	all := rangeFrom(0)
	for _, c := range []struct {
		name   string
		fault  func(int, http.ResponseWriter, *http.Request) bool
		ranges []string
		pauses int
	}{
		{"no fault", nil, []string{all}, 0},
		{"request timeout", first(1, statusOf(408)), []string{all, all}, 1},
		{"too early", first(1, statusOf(425)), []string{all, all}, 1},
		{"burst of 429", first(7, statusOf(429)), []string{all, all, all, all, all, all, all, all}, 7},
		{"burst of 503", first(3, statusOf(503)), []string{all, all, all, all}, 3},
		{"internal error", first(2, statusOf(500)), []string{all, all, all}, 2},
		// net/http itself tries again on a new connection, once.
		{"connection broken before the answer", first(2, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), []string{all, all, all}, 1},
		{"connection broken before the body", first(1, breakAfter(file, 0)), []string{all, all}, 1},
		{"connection broken early in the body", first(1, breakAfter(file, 1000)), []string{all, rangeFrom(1000)}, 1},
		{"connection broken late in the body", first(1, breakAfter(file, goodTry)), []string{all, rangeFrom(goodTry)}, 0},
		{"connection broken again and again", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n < 3 {
				breakAfter(file, goodTry)(w, r)
			}
			return false
		}, []string{all, rangeFrom(goodTry), rangeFrom(2 * goodTry), rangeFrom(3 * goodTry)}, 0},
		{"connection broken after a little, for ever", func(n int, w http.ResponseWriter, r *http.Request) bool {
			breakAfter(file, min(leastTry, 8+header+data-rangeStart(r)))(w, r)
			return true
		}, every(leastTry, data, rangeFrom), data / leastTry},
		{"all answers capped", func(n int, w http.ResponseWriter, r *http.Request) bool {
			sendCapped(w, r, file, leastTry)
			return true
		}, every(leastTry, data, rangeFrom), 0},
		{"shorter range than asked for", first(1, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", 8+header, 8+header+99, len(file)))
			w.WriteHeader(206)
			w.Write(file[8+header:][:100])
		}), []string{all, rangeFrom(100)}, 1},
		{"body longer than its range", first(1, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", 8+header, 8+header+99, len(file)))
			w.WriteHeader(206)
			w.(http.Flusher).Flush() // or the body has a Content-Length
			w.Write(append(file[8+header:][:100:100], ^file[8+header+100]))
		}), []string{all, rangeFrom(100)}, 1},
		{"body shorter than its range, of no stated length", first(1, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", 8+header, 8+header+data-1, len(file)))
			w.WriteHeader(206)
			w.Write(file[8+header:][:5000])
			w.(http.Flusher).Flush()
		}), []string{all, rangeFrom(5000)}, 1},
		{"stalled before the answer", first(1, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), []string{all, all}, 1},
		{"stalled in the body", first(1, func(w http.ResponseWriter, r *http.Request) {
			sendPart(w, r, file, 1000)
			<-r.Context().Done()
		}), []string{all, rangeFrom(1000)}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			client, clock := newClient(t)
			if strings.HasPrefix(c.name, "stalled") {
				client.pace.stall = time.Second
			}
			tensor := openTensor(t, client, s.add("/m", file))
			s.reset(c.fault)
			require.Equal(t, pattern(data), bytesOf(t, tensor))
			if client.pace.stall != 0 { // as a busy machine may do once more
				require.Equal(t, c.ranges, s.ranges()[:len(c.ranges)])
				require.GreaterOrEqual(t, len(clock.pauses), c.pauses)
				return
			}
			require.Equal(t, c.ranges, s.ranges())
			require.Len(t, clock.pauses, c.pauses)
		})
	}
}

func TestReadsFailForGood(t *testing.T) {
	file := craft(100_000, 20_000)
	for _, c := range []struct {
		name     string
		fault    func(http.ResponseWriter, *http.Request)
		requests int
		text     string
	}{
		{"never available", statusOf(503), maxTries, "bytes 100008-120007: status 503 Service Unavailable, expected 206 Partial Content (tried 8 times)"},
		{"always broken", breakAfter(file, 10), maxTries, "unexpected EOF after 10 bytes (tried 8 times)"},
		{"a few bytes in each answer", func(w http.ResponseWriter, r *http.Request) { sendCapped(w, r, file, leastTry-1) }, maxTries, "unexpected EOF after 1023 bytes (tried 8 times)"},
		{"wrong start", statusOf(206, "Content-Range", "bytes 0-19999/120008"), 1, `Content-Range "bytes 0-19999/120008", expected bytes 100008-120007`},
		{"longer than asked for", statusOf(206, "Content-Range", "bytes 100008-120008/120009"), 1, "it has 120009 bytes, had 120008"},
		{"range ignored", statusOf(200, "Content-Length", "120008"), 1, "does not support range requests"},
		{"range ignored by another file", statusOf(200, "ETag", `"v2"`), 1, ErrChanged.Error()},
		{"gone", statusOf(410), 1, "status 410"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			client, _ := newClient(t)
			tensor := openTensor(t, client, s.add("/m", file))
			s.reset(func(_ int, w http.ResponseWriter, r *http.Request) bool { c.fault(w, r); return true })
			_, err := safetensors.Append[byte](nil, tensor)
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, "GET "+s.URL+"/m: ")
			require.Len(t, s.ranges(), c.requests)
			var pathless *temporary
			require.Equal(t, c.requests > 1, errors.As(err, &pathless))
		})
	}
}

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
			client, clock := newClient(t)
			s.fault = first(1, statusOf(c.status, c.header...))
			openTensor(t, client, s.add("/m", craft(100, 10)))
			require.Len(t, clock.pauses, 1)
			require.GreaterOrEqual(t, clock.pauses[0], c.min)
			require.LessOrEqual(t, clock.pauses[0], c.max)
		})
	}
}

// TestNumbersOfTheDoc compares the numbers in the documentation with the constants.
func TestNumbersOfTheDoc(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	doc := strings.ReplaceAll(string(text), "\n//", "")
	for _, sentence := range []string{
		fmt.Sprintf("one request if its header has at most %d,000 bytes", (firstRead-8)/1000),
		fmt.Sprintf("up to %d requests in flight", inFlight),
		fmt.Sprintf("gaps of up to %d KiB", maxGap>>10),
		fmt.Sprintf("one request covers up to %d MiB", maxSpan>>20),
		fmt.Sprintf("tried up to %d times", maxTries),
		fmt.Sprintf("stalls for %d seconds", stallTimeout/time.Second),
		fmt.Sprintf("a try that brought %d KiB. There", leastTry>>10),
		fmt.Sprintf("no wait after a try that brought %d KiB", goodTry>>10),
		fmt.Sprintf("tried %d times within a second", maxDials),
		"from a quarter of a second to ten seconds",
		"up to a minute",
	} {
		require.Contains(t, doc, sentence)
	}
	require.Equal(t, [3]time.Duration{time.Second / 4, 10 * time.Second, time.Minute}, [3]time.Duration{firstPause, longestPause, longestAsked})
}

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

// TestBusyServer: a request that a server at its limit refuses again and again is not
// given up while the server serves others of the same Open; one that is refused while
// nothing else is served is, and so is one that breaks.
func TestBusyServer(t *testing.T) {
	for _, c := range []struct {
		rule   string
		busy   bool
		others bool // are served between the tries
		tries  int
	}{
		{"others are served", true, true, 100},
		{"nothing is served", true, false, maxTries},
		{"the connection breaks", false, true, maxTries},
	} {
		t.Run(c.rule, func(t *testing.T) {
			waits := new(clock)
			s := &tries{ctx: t.Context(), pace: pace{pause: waits.pause}}
			tries := 0
			err := s.retry(func() (int64, error) {
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
	require.True(t, busyStatus(t, 429))
	require.True(t, busyStatus(t, 503))
	require.False(t, busyStatus(t, 500))
}

// busyStatus reports whether an answer of that status says that the server is busy.
func busyStatus(t *testing.T, status int) bool {
	var failure *temporary
	resp := &http.Response{StatusCode: status, Status: http.StatusText(status), Request: &http.Request{URL: new(url.URL)}, Body: http.NoBody}
	require.ErrorAs(t, statusError(resp, http.StatusOK), &failure)
	return failure.busy
}

func TestContextEndsAll(t *testing.T) {
	const readers = 50
	file := craft(100_000, 20_000_000)
	s := newServer(t)
	client, _ := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	f, err := client.Open(ctx, s.add("/m", file))
	require.NoError(t, err)
	tensor, err := f.Tensor("t")
	require.NoError(t, err)

	var arrived sync.WaitGroup
	arrived.Add(inFlight)
	s.reset(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		sendPart(w, r, file, 10)
		arrived.Done() // panics if there are more
		<-r.Context().Done()
		return true
	})
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

func TestContextEndsPause(t *testing.T) {
	s := newServer(t)
	client, _ := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	client.pace.pause = func(ctx context.Context, d time.Duration) {
		require.Equal(t, longestAsked, d)
		cancel()
		pause(ctx, d)
	}
	s.fault = first(1, statusOf(429, "Retry-After", "3600"))
	_, err := client.Open(ctx, s.add("/m", craft(100, 10)))
	require.ErrorIs(t, err, context.Canceled)
	pause(t.Context(), time.Nanosecond)
}

func TestContextThatIsDoneAfterAnotherFailure(t *testing.T) {
	client, clock := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	client.HTTP = &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		cancel()
		return nil, io.EOF
	})}
	_, err := client.Open(ctx, "http://127.0.0.1/m")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Empty(t, clock.pauses)
}

func TestParseContentRange(t *testing.T) {
	for text, want := range map[string]*contentRange{
		"bytes 0-99/100":                      {0, 99, 100},
		"Bytes 5-5/6":                         {5, 5, 6},
		"bytes 0-99/*":                        {0, 99, -1},
		"bytes */100":                         {-1, -1, 100},
		"bytes 0-0/999999999999999999":        {0, 0, 999999999999999999},
		"":                                    nil,
		"bytes":                               nil,
		"bytes=0-99/100":                      nil,
		"bytes 0-99":                          nil,
		"bytes 0-99/":                         nil,
		"bytes 0-/100":                        nil,
		"bytes -99/100":                       nil,
		"bytes 99-0/100":                      nil,
		"bytes 0-100/100":                     nil,
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

func TestReadAtKeepsItsContract(t *testing.T) {
	s := newServer(t)
	file := craft(100_000, 1000)
	client, _ := newClient(t)
	o := openObject(t, client, s.add("/m", file))
	size := int64(len(file))
	for _, c := range []struct {
		name   string
		off    int64
		length int
		n      int
		err    error
	}{
		{"inside", 5, 10, 10, nil},
		{"to the end", size - 10, 10, 10, nil},
		{"over the end", size - 10, 20, 10, io.EOF},
		{"at the end", size, 1, 0, io.EOF},
		{"after the end", size + 1, 1, 0, io.EOF},
		{"nothing", 5, 0, 0, nil},
		{"before the start", -1, 5, 0, errNegative},
	} {
		p := make([]byte, c.length)
		n, err := o.ReadAt(p, c.off)
		require.Equal(t, c.n, n, c.name)
		require.Equal(t, c.err, err, c.name)
		if n > 0 {
			require.Equal(t, file[c.off:][:n], p[:n], c.name)
		}
	}
}
