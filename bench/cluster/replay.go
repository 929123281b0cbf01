// Package cluster measures how the ranks of a group open one large checkpoint: RESULTS.md has the
// numbers, doc/cluster.md of the repository what follows from them. Its Transport replays the
// answers of a server: whoever has written a checkpoint opens it once and keeps the answers, index
// and headers, as an object next to it. Every process of a group reads that object and opens the
// checkpoint from it.
package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
)

// A Transport is an http.RoundTripper that answers what it has an answer for, once,
// and asks Base for everything else. The zero value has no answers.
//
// If Keep is set, it asks Base for everything, and keeps the answers to requests for a
// file or a range of it, in memory. Set it for opening a checkpoint only.
//
// An answer has the ETag, or Last-Modified, that it had when it was kept. Package
// remote pins the file to that: if it has been replaced, opening it succeeds and
// reading a tensor fails with remote.ErrChanged.
type Transport struct {
	Base http.RoundTripper // nil: http.DefaultTransport
	Keep bool

	// answers are responses as HTTP spells them, with the header that package remote looks
	// at: []byte by request.
	answers sync.Map
}

// request is what an answer is the answer to.
func request(r *http.Request) string { return r.URL.String() + " " + r.Header.Get("Range") }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	isGet := r.Method == http.MethodGet
	if isGet && !t.Keep {
		if kept, ok := t.answers.LoadAndDelete(request(r)); ok { // it is asked once, and its memory is needed
			return http.ReadResponse(bufio.NewReader(bytes.NewReader(kept.([]byte))), r)
		}
	}
	resp, err := cmp.Or(t.Base, http.DefaultTransport).RoundTrip(r)
	if err != nil || !isGet || !t.Keep || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		return resp, err
	}
	maps.DeleteFunc(resp.Header, func(name string, _ []string) bool { // no cookie is kept
		return !slices.Contains([]string{"Content-Encoding", "Content-Range", "Etag", "Last-Modified"}, name)
	})
	kept, err := httputil.DumpResponse(resp, true)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	t.answers.Store(request(r), kept)
	return resp, nil
}

// Encode writes the answers, compressed: headers are repetitive.
func (t *Transport) Encode(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	answers := make(map[string][]byte)
	for request, response := range t.answers.Range {
		answers[request.(string)] = response.([]byte)
	}
	return errors.Join(gob.NewEncoder(z).Encode(answers), z.Close())
}

// Decode adds the answers that Encode wrote. They are taken on trust, like the
// checkpoint: keep them where only its writer can write.
func (t *Transport) Decode(r io.Reader) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	var answers map[string][]byte
	err = gob.NewDecoder(z).Decode(&answers)
	if _, end := io.Copy(io.Discard, z); err != nil || end != nil { // which checks the sum
		return cmp.Or(err, end)
	}
	for request, response := range answers {
		t.answers.Store(request, response)
	}
	return nil
}
