// Package replay opens a large checkpoint over HTTP with one request instead of one
// for each shard. Whoever has written the checkpoint opens it once and keeps the
// answers, index and headers, as an object next to it. Every process of a group reads
// that object and opens the checkpoint from it; the bytes of tensors come from the
// server, as always. doc/cluster.md says when that pays.
//
//	cd examples/replay && go test .
package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"sync"
)

// A Transport is an http.RoundTripper that answers what it has an answer for, once,
// and asks Base for everything else. The zero value has no answers.
//
// If Keep is set, it keeps the answers of Base to requests for a file or a range of
// it, in memory. Set it for opening a checkpoint only.
//
// An answer has the ETag, or Last-Modified, that it had when it was kept. Package
// remote pins the file to that: if it has been replaced, opening it succeeds and
// reading a tensor fails with remote.ErrChanged.
type Transport struct {
	Base http.RoundTripper // nil: http.DefaultTransport
	Keep bool

	answers sync.Map // from requests, as strings, to []byte
}

// An answer is a response as HTTP spells it, with the header that package remote looks at.
type answer struct {
	Request  string
	Response []byte
}

// request is what an answer is the answer to.
func request(r *http.Request) string { return r.URL.String() + " " + r.Header.Get("Range") }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		return t.base().RoundTrip(r)
	}
	load := t.answers.LoadAndDelete // it is asked once, and its memory is needed
	if t.Keep {
		load = t.answers.Load
	}
	if kept, ok := load(request(r)); ok {
		return http.ReadResponse(bufio.NewReader(bytes.NewReader(kept.([]byte))), r)
	}
	resp, err := t.base().RoundTrip(r)
	if err != nil || !t.Keep || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		return resp, err
	}
	all := resp.Header
	resp.Header = make(http.Header)
	for _, name := range []string{"Content-Encoding", "Content-Range", "Etag", "Last-Modified"} { // but no cookie
		if values := all.Values(name); values != nil {
			resp.Header[name] = values
		}
	}
	kept, err := httputil.DumpResponse(resp, true)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	t.answers.Store(request(r), kept)
	return resp, nil
}

func (t *Transport) base() http.RoundTripper { return cmp.Or(t.Base, http.DefaultTransport) }

// Encode writes the answers, compressed: headers are repetitive.
func (t *Transport) Encode(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	e := gob.NewEncoder(z)
	for request, response := range t.answers.Range {
		if err := e.Encode(answer{request.(string), response.([]byte)}); err != nil {
			return err
		}
	}
	return z.Close()
}

// Decode adds the answers that Encode wrote. They are taken on trust, like the
// checkpoint: keep them where only its writer can write.
func (t *Transport) Decode(r io.Reader) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	d := gob.NewDecoder(z)
	for {
		var a answer
		switch err := d.Decode(&a); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		t.answers.Store(a.Request, a.Response)
	}
}
