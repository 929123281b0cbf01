package bucket

import (
	"context"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestListEnds: a list that is cut short is no list of all, and one that goes on for ever
// ends.
func TestListEnds(t *testing.T) {
	for scheme, page := range map[string]string{
		"s3":     "<R><IsTruncated>true</IsTruncated><NextContinuationToken>TOKEN</NextContinuationToken><Contents><Key>dir/x</Key></Contents></R>",
		"azblob": "<R><Blobs><Blob><Name>dir/x</Name></Blob></Blobs><NextMarker>TOKEN</NextMarker></R>",
	} {
		again := says(200, strings.Replace(page, "TOKEN", "a", 1))
		endpoint, requests := serve(t, again, again)
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint="+endpoint+";SharedAccessSignature=sv=1")
		t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
		b, key := openAt(t, scheme+"://models/dir")
		_, err := b.List(key)
		require.ErrorContains(t, err, "the list ends early", scheme)
		require.Len(t, requests(), 2)
	}
	endpoint, _ := serve(t, says(200, "<R><IsTruncated>true</IsTruncated></R>"))
	b, key := openAt(t, "s3://models/dir?endpoint="+endpoint)
	_, err := b.List(key)
	require.ErrorContains(t, err, "the list ends early")

	query := url.Values{}
	require.NoError(t, next(query, "marker", "a", mostPages-1, mostListed-1))
	require.Equal(t, "a", query.Get("marker"))
	require.ErrorContains(t, next(query, "marker", "b", mostPages, 5), "does not end: 5 objects")
	require.ErrorContains(t, next(query, "marker", "b", 1, mostListed), "does not end")
}

// TestListOfOthers: a store that ignores the prefix has no other objects in the folder.
func TestListOfOthers(t *testing.T) {
	endpoint, _ := serve(t, says(200, "<R><Contents><Key>x</Key></Contents><Contents><Key>dir/y</Key></Contents></R>"))
	b, key := openAt(t, "s3://models/dir?endpoint="+endpoint)
	names, err := b.List(key)
	require.NoError(t, err)
	require.Equal(t, []string{"y"}, names)
}

// TestEmptyBody: a body that ends before its first byte is another try, as no answer is.
func TestEmptyBody(t *testing.T) {
	header := []string{"Content-Range", "bytes 0-9/10", "Content-Length", "10"}
	nothing := func(w http.ResponseWriter, r *http.Request) {
		says(206, "", header...)(w, r)
		w.(http.Flusher).Flush()
		cut(w, r)
	}
	head, all := says(200, "", "Content-Length", "10"), says(206, "0123456789", header...)
	endpoint, _ := serve(t, head, nothing, nothing, all, nothing, nothing, nothing, nothing, nothing)
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	f, err := b.FS(key).Open(".")
	require.NoError(t, err)
	got := make([]byte, 10)
	_, err = f.(io.ReaderAt).ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(got))
	_, err = f.(io.ReaderAt).ReadAt(got, 0)
	require.EqualError(t, err, "s3://models/x: the answer ended after 0 of 10 bytes: unexpected EOF")
}

// pauses has tries wait for nothing, and returns how long they would have waited.
func pauses(t *testing.T) (taken func() []time.Duration) {
	var mu sync.Mutex
	var all []time.Duration
	real := wait
	wait = func(_ context.Context, d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, d)
	}
	t.Cleanup(func() { wait = real })
	return func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now := all
		all = nil
		return now
	}
}

// breaksOff answers with some bytes of an object of size bytes, from off on, and promises more.
func breaksOff(off, size, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		says(206, strings.Repeat("x", n), "Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, size-1, size), "Content-Length", fmt.Sprint(size-off))(w, r)
		w.(http.Flusher).Flush()
		if n < size-off {
			cut(w, r)
		}
	}
}

// TestPausesOfReads: a read resumes a body that breaks off, after a pause or, if much of it
// has arrived, at once. It gives up after some tries that bring nearly nothing.
func TestPausesOfReads(t *testing.T) {
	const size = 200 << 10
	head := says(200, "", "Content-Length", fmt.Sprint(size))
	answers := []http.HandlerFunc{head, breaksOff(0, size, 100), breaksOff(100, size, 100), breaksOff(200, size, 2000), // after which the count restarts
		breaksOff(2200, size, 100), breaksOff(2300, size, goodTry), breaksOff(2300+goodTry, size, size-2300-goodTry)}
	for i := range defaultTries {
		answers = append(answers, breaksOff(i, size, 1))
	}
	taken := pauses(t)
	endpoint, _ := serve(t, answers...)
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	f, err := b.FS(key).Open(".")
	require.NoError(t, err)
	got := make([]byte, size)
	_, err = f.(io.ReaderAt).ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("x", size), string(got))
	require.Equal(t, []int{1, 2, 1, 2}, failures(t, taken()))

	n, err := f.(io.ReaderAt).ReadAt(got, 0)
	require.EqualError(t, err, fmt.Sprintf("s3://models/x: the answer ended after 1 of %d bytes: unexpected EOF", size-4))
	require.Equal(t, 5, n)
	require.Equal(t, []int{1, 2, 3, 4}, failures(t, taken()))
}

// failures returns after how many failures each of some pauses comes.
func failures(t *testing.T, pauses []time.Duration) (numbers []int) {
	for _, d := range pauses {
		n := 1
		for firstPause<<(n-1) <= d {
			n++
		}
		require.GreaterOrEqual(t, d, firstPause<<(n-1)/2)
		numbers = append(numbers, n)
	}
	return numbers
}

// TestRetryAfter: a store may ask for a longer pause, up to a minute.
func TestRetryAfter(t *testing.T) {
	taken := pauses(t)
	endpoint, _ := serve(t, says(503, "", "Retry-After", "7"), says(429, "", "Retry-After", "3600"),
		says(503, "", "Retry-After", "Mon, 02 Jan 2006 15:04:05 GMT"), says(200, "", "Content-Length", "0"))
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	_, err := b.Exists(key)
	require.NoError(t, err)
	all := taken()
	require.Equal(t, []time.Duration{7 * time.Second, time.Minute}, all[:2])
	require.Equal(t, []int{3}, failures(t, all[2:]))
	require.InDelta(t, time.Hour, retryAfter(http.Header{"Retry-After": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}), float64(time.Minute))
}

// TestWaitEnds: an interrupt ends a wait.
func TestWaitEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wait(ctx, 1000*time.Hour)
}

// TestStart: an object may be empty, and what is cut short is asked for again.
func TestStart(t *testing.T) {
	endpoint, _ := serve(t, says(416, ""), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil { // an answer whose length nothing tells
			io.WriteString(conn, "HTTP/1.0 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\n\r\n0123")
			conn.Close()
		}
	}, says(206, "0123456789", "Content-Range", "bytes 0-9/10"))
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	data, err := b.Start(key, 100)
	require.NoError(t, err)
	require.Empty(t, data)
	data, err = b.Start(key, 100)
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(data))

	endpoint, _ = serve(t, says(206, "", "Content-Range", "bytes 0-9/10"))
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	b, key = openAt(t, "s3://models/x?endpoint="+endpoint)
	_, err = b.Start(key, 100)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestRedirections: a store that sends requests in a circle gets few of them.
func TestRedirections(t *testing.T) {
	circle := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	}
	answers := make([]http.HandlerFunc, mostRedirects+1)
	for i := range answers {
		answers[i] = circle
	}
	endpoint, requests := serve(t, answers...)
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	_, err := b.Exists(key)
	require.ErrorContains(t, err, "more than 10 redirections")
	require.Len(t, requests(), mostRedirects+1)
}

// TestPause: AWS_MAX_ATTEMPTS may be large.
func TestPause(t *testing.T) {
	for failed := 1; failed < 100; failed++ {
		require.Positive(t, pause(failed))
		require.LessOrEqual(t, pause(failed), 20*time.Second, "%d", failed)
	}
	require.LessOrEqual(t, pause(1), firstPause)
}

// TestConflict: two requests at once are no object that is there.
func TestConflict(t *testing.T) {
	require.True(t, temporary(&refusal{status: 409, Code: "ConditionalRequestConflict"}))
	require.False(t, temporary(&refusal{status: 409, Code: "BlobAlreadyExists"}))
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
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint="+server.URL+";SharedAccessSignature=sv=1")
	b, key := openAt(t, "azblob://models/x")
	one, err := b.store.begin(t.Context(), key)
	require.NoError(t, err)
	other, err := b.store.begin(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, one.part(t.Context(), 0, []byte("1a")))
	require.NoError(t, other.part(t.Context(), 0, []byte("2a")))
	require.NoError(t, other.part(t.Context(), 1, []byte("2b")))
	require.NoError(t, one.part(t.Context(), 1, []byte("1b")))
	require.NoError(t, one.complete(t.Context(), 2))
	require.Equal(t, "1a1b", blob)
}

// TestCompleteTwice: the answer that an upload is complete got lost, and the store no longer
// knows it. The object that is there is that of the upload, or an older one.
func TestCompleteTwice(t *testing.T) {
	part := md5.Sum([]byte("body"))
	for tag, want := range map[string]bool{fmt.Sprintf(`"%x-1"`, md5.Sum(part[:])): true, fmt.Sprintf(`"%x"`, part): false} {
		endpoint, _ := serve(t, says(200, "<R><UploadId>id</UploadId></R>"), says(200, "", "ETag", fmt.Sprintf(`"%x"`, part)),
			cut, says(404, "<Error><Code>NoSuchUpload</Code></Error>"), says(200, "", "ETag", tag, "Content-Length", "4"))
		b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
		u, err := b.store.begin(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, u.part(t.Context(), 0, []byte("body")))
		require.Equal(t, want, u.complete(t.Context(), 1) == nil)
	}
}

// TestWriteOfAnother: the error of another object that is copied to this one says nothing about
// this one.
func TestWriteOfAnother(t *testing.T) {
	endpoint, _ := serve(t, says(404, ""))
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	err := b.Write("y", 0, func(io.Writer) error {
		_, err := b.Start(key, 10)
		return fmt.Errorf("tensor a: %w", err)
	})
	require.EqualError(t, err, "s3://models/y: tensor a: s3://models/x: file does not exist: 404 Not Found")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
