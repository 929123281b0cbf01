package bucket

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"
)

// TestListEnds: a list that goes on for ever ends.
func TestListEnds(t *testing.T) {
	for objects, pages := range map[int]int{0: mostPages, mostListed / 2: 2, mostListed/2 - 1: 3} {
		e := &listing{page: make([]objectInfo, objects)}
		_, err := (&Bucket{ctx: t.Context(), store: e}).list("")
		require.EqualError(t, err, fmt.Sprintf("the list does not end: %d objects so far", objects*pages))
		require.Equal(t, pages, e.pages)
	}
}

// A listing store lists other objects whenever it is asked.
type listing struct {
	store
	page  []objectInfo
	pages int
}

func (e *listing) list(context.Context, string, string) ([]objectInfo, *string, error) {
	e.pages++
	next := fmt.Sprint(e.pages)
	return e.page, &next, nil
}

// breaksOff answers with n bytes of the range from off to end of an object, and promises all.
func breaksOff(off, end, n, size int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		says(206, strings.Repeat("x", n), "Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, end-1, size), "Content-Length", fmt.Sprint(end-off), "ETag", `"a"`)(w, r)
		w.(http.Flusher).Flush()
		cut(w, r)
	}
}

// TestRetryAfter: a store may ask for a longer pause, up to a minute.
func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{"19": 19 * time.Second, "3600": time.Minute} {
		header := http.Header{"Retry-After": {text}}
		err := &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{Header: header}}}
		got, _ := retryer().RetryDelay(1, fmt.Errorf("wrapped: %w", err))
		require.Equal(t, want, got)
	}
	require.LessOrEqual(t, pause(1, http.Header{"Retry-After": {"Mon, 02 Jan 2006 15:04:05 GMT"}}), firstPause)
	require.InDelta(t, time.Hour, retryAfter(http.Header{"Retry-After": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}), float64(time.Minute))
}

// TestStart: an object may be shorter, and what is cut short is asked for again.
func TestStart(t *testing.T) {
	b, _ := answering(t, "s3", says(416, ""), says(200, "", "Content-Length", "0"), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil { // an answer whose length nothing tells
			io.WriteString(conn, "HTTP/1.0 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\n\r\n0123")
			conn.Close()
		}
	}, says(206, "456789", "Content-Range", "bytes 4-9/10"), says(206, "0123456789", "Content-Range", "bytes 0-9/10"))
	require.Empty(t, must(b.Start("x", 100)))
	require.Equal(t, "0123456789", string(must(b.Start("x", 100))))
	require.Equal(t, "01", string(must(b.Start("x", 2))))
}

// TestPause: AWS_MAX_ATTEMPTS may be large.
func TestPause(t *testing.T) {
	for failed := 1; failed < 100; failed++ {
		require.Positive(t, pause(failed, nil))
		require.LessOrEqual(t, pause(failed, nil), 20*time.Second, "%d", failed)
	}
	require.LessOrEqual(t, pause(1, nil), firstPause)
}

// TestConflict: not every conflict is an object that is there: two requests at once are none.
func TestConflict(t *testing.T) {
	conflict := says(409, "<Error><Code>ConditionalRequestConflict</Code></Error>")
	b, requests := answering(t, "s3", conflict, says(200, "", "ETag", `"1"`))
	require.NoError(t, b.Create("x", nil))
	require.Len(t, requests(), 2)
	require.Equal(t, "*", requests()[1].Header.Get("If-None-Match"))

	other := says(409, "<Error><Code>LeaseIdMissing</Code></Error>")
	for scheme, exists := range map[string]http.HandlerFunc{
		"azblob": says(409, "", "X-Ms-Error-Code", "BlobAlreadyExists"),
		"s3":     says(412, "<Error><Code>PreconditionFailed</Code></Error>"),
		"gs":     says(412, "<Error><Code>PreconditionFailed</Code></Error>"),
	} {
		b, requests := answering(t, scheme, exists, other)
		require.ErrorIs(t, b.Create("x", nil), fs.ErrExist, scheme)
		err := b.Create("x", nil)
		require.EqualError(t, err, scheme+"://models/x: 409 Conflict: LeaseIdMissing")
		require.NotErrorIs(t, err, fs.ErrExist)
		require.Len(t, requests(), 2)
		if scheme == "gs" { // which does not know If-None-Match
			require.Equal(t, "0", requests()[0].Header.Get("X-Goog-If-Generation-Match"))
		}
	}
}

// TestAzureUploadsApart uploads one blob twice at the same time: what appears is of one upload.
func TestAzureUploadsApart(t *testing.T) {
	serve(t) // for the environment
	blocks, blob := make(map[string]string), ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if id := r.URL.Query().Get("blockid"); id != "" {
			blocks[id] = string(body)
		} else {
			var list struct{ Latest []string }
			xml.Unmarshal(body, &list)
			for _, id := range list.Latest {
				blob += blocks[id]
			}
		}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(server.Close)
	b, key := at(t, "azblob", server.URL, "x")
	one := must(b.store.begin(t.Context(), key))
	other := must(b.store.begin(t.Context(), key))
	require.NoError(t, one.part(t.Context(), 0, []byte("1a")))
	require.NoError(t, other.part(t.Context(), 0, []byte("2a")))
	require.NoError(t, other.part(t.Context(), 1, []byte("2b")))
	require.NoError(t, one.part(t.Context(), 1, []byte("1b")))
	require.NoError(t, one.complete(t.Context(), 2))
	require.Equal(t, "1a1b", blob)
	require.Equal(t, http.StatusNotFound, status(one.abort(t.Context())), "there is nothing to be removed")
}

// TestPartsEndBeforeAbort: a part that ends after the upload is aborted may stay for ever. The error
// of a source is never the end of an object.
func TestPartsEndBeforeAbort(t *testing.T) {
	late := new(latePart)
	b := &Bucket{ctx: t.Context(), store: late}
	require.ErrorIs(t, b.Write("x", 0, func(io.Writer) error { return io.EOF }), io.EOF)
	require.ErrorIs(t, b.Write("x", 0, func(w io.Writer) error {
		must(w.Write(make([]byte, partSize+1)))
		return io.ErrNoProgress
	}), io.ErrNoProgress)
	require.True(t, late.endedFirst)
}

// A latePart is a store of one upload, and the upload, whose part ends some time after it is
// cancelled.
type latePart struct {
	store
	ended      atomic.Bool
	endedFirst bool
}

func (l *latePart) begin(context.Context, string) (upload, error) { return l, nil }
func (l *latePart) complete(context.Context, int) error           { return nil }
func (l *latePart) part(ctx context.Context, _ int, _ []byte) error {
	<-ctx.Done()
	time.Sleep(10 * time.Millisecond)
	l.ended.Store(true)
	return ctx.Err()
}

func (l *latePart) abort(context.Context) error {
	l.endedFirst = l.ended.Load()
	return &storeError{status: http.StatusNotFound}
}

// TestAbortTwice: an upload that a late part has made anew, after the store did not know it any more, is removed, too.
func TestAbortTwice(t *testing.T) {
	made := &madeAnew{parts: 1}
	(&Bucket{ctx: t.Context()}).abort(made)
	require.Zero(t, made.parts)
	require.Equal(t, 5, made.aborts)
}

// A madeAnew is an upload for which a store makes a part after its second abort.
type madeAnew struct {
	upload
	parts, aborts int
}

func (m *madeAnew) abort(context.Context) error {
	m.aborts++
	parts := m.parts
	m.parts = 0
	if m.aborts == 2 {
		m.parts = 1
	}
	if parts == 0 {
		return &storeError{status: http.StatusNotFound}
	}
	return nil
}

// TestCompleteTwice: the answer that an upload is complete got lost, and the store no longer
// knows it. The object that is there is that of the upload, or an older one.
func TestCompleteTwice(t *testing.T) {
	part := md5.Sum([]byte("body"))
	for tag, want := range map[string]bool{fmt.Sprintf(`"%x-1"`, md5.Sum(part[:])): true, fmt.Sprintf(`"%x"`, part): false} {
		b, _ := answering(t, "s3", says(200, "<R><UploadId>id</UploadId></R>"), says(200, "", "ETag", fmt.Sprintf(`"%x"`, part)),
			cut, says(404, "<Error><Code>NoSuchUpload</Code></Error>"), says(200, "", "ETag", tag, "Content-Length", "4"))
		u := must(b.store.begin(t.Context(), "x"))
		require.NoError(t, u.part(t.Context(), 0, []byte("body")))
		require.Equal(t, want, u.complete(t.Context(), 1) == nil)
	}
}

// TestPauses: the longest possible pause doubles with each try, up to a limit, and each pause is at least half of that.
func TestPauses(t *testing.T) {
	longest := firstPause
	for failed := 1; failed <= 12; failed++ {
		least, most := time.Duration(1<<62), time.Duration(0)
		for range 2000 {
			d := pause(failed, nil)
			least, most = min(least, d), max(most, d)
		}
		require.GreaterOrEqual(t, least, longest/2, "%d", failed)
		require.Less(t, most, longest, "%d", failed)
		require.Greater(t, most, longest*7/10, "%d", failed)
		require.Less(t, least, longest*6/10, "%d", failed)
		longest = min(2*longest, firstPause<<7, longestPause)
	}
	for asked, want := range map[string]time.Duration{"59": 59 * time.Second, "60": time.Minute, "61": time.Minute} {
		require.Equal(t, want, pause(1, http.Header{"Retry-After": {asked}}))
	}
}

// TestLongAnswers: an answer of exactly the limit is read, and a longer one is not. Of a longer refusal only the status counts.
func TestLongAnswers(t *testing.T) {
	for _, c := range []struct {
		status, size, limit int
		object              bool
	}{
		{200, longestAnswer, longestAnswer, false}, {299, 9, longestAnswer, false}, {300, longestRefusal, longestRefusal, false}, {403, longestRefusal, longestRefusal, true},
	} {
		for more := range 2 {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				w.Write(bytes.Repeat([]byte("x"), c.size+more))
			}))
			r := must(http.NewRequest(http.MethodGet, server.URL, nil))
			if c.object {
				r.Header.Set("Range", "bytes=0-1")
			}
			resp, err := bounded{http.DefaultTransport}.RoundTrip(r)
			switch {
			case c.size+more <= c.limit:
				require.NoError(t, err)
				require.Len(t, must(io.ReadAll(resp.Body)), c.size+more, "%d", c.status)
			case c.status < 300:
				require.ErrorContains(t, err, "the answer is longer than 8 MiB")
			default:
				require.NoError(t, err)
				require.Empty(t, must(io.ReadAll(resp.Body)))
			}
			server.Close()
		}
	}
}

// TestAsGoogle: Google's store gets no headers that only Amazon knows, and all others.
func TestAsGoogle(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header }))
	t.Cleanup(server.Close)
	r := must(http.NewRequest(http.MethodGet, server.URL+"/x?x-id=GetObject&y=1", nil))
	for _, name := range []string{"X-Amz-Date", "X-Amz-Content-Sha256", "Amz-Sdk-Request", "Amz-Sdk-Invocation-Id", "X-Other", "Range"} {
		r.Header.Set(name, "1")
	}
	r.Header.Set("If-None-Match", "*")
	resp, err := asGoogle{http.DefaultTransport}.RoundTrip(r)
	require.NoError(t, err)
	resp.Body.Close()
	for name := range got {
		require.NotContains(t, name, "Amz")
	}
	require.Equal(t, "1", got.Get("X-Other"))
	require.Equal(t, "1", got.Get("Range"))
	require.Empty(t, got.Get("If-None-Match"))
	require.Equal(t, "0", got.Get("X-Goog-If-Generation-Match"))
	require.Equal(t, "1", r.Header.Get("X-Amz-Date"), "the request of the caller is as it was")
}

// TestLoginErrors: without an answer nobody is logged in, and there is no status; otherwise the status says why.
func TestLoginErrors(t *testing.T) {
	for status, want := range map[int]string{0: "nobody is logged in: code", 1: "the login failed: 1 : code", 401: "the login failed: 401 Unauthorized: code"} {
		require.EqualError(t, loginError(status, "code", errors.New("x")), want)
	}
	err := refused(&azidentity.AuthenticationFailedError{})
	require.ErrorContains(t, err, "nobody is logged in: ")
	require.Zero(t, status(err))
}
