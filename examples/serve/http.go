package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosafetensors/safetensors"
)

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /models", func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, s.names()) })
	mux.HandleFunc("GET /models/{model}", s.serve(s.describe))
	mux.HandleFunc("GET /models/{model}/{tensor...}", s.serve(s.send))
	mux.Handle("GET /debug/vars", expvar.Handler())
	return mux
}

// A badRequest is an error that the client has made.
type badRequest struct{ error }

// serve returns a handler for send, which sends the answer or returns an error.
//
// A model that was replaced meanwhile is closed: if nothing of the answer is out yet, send tries
// again, with the new model. If something is, the connection is broken off, because to end the
// answer would make it look complete.
func (s *server) serve(send func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.stats.Add("requests", 1)
		a := newAnswer(w)
		err := send(a, r)
		if errors.Is(err, fs.ErrClosed) && !a.begun {
			s.stats.Add("retries", 1)
			a = newAnswer(w)
			err = send(a, r)
		}
		s.stats.Add("bytes", a.bytes)
		switch {
		case err == nil:
			a.begin()
		case a.begun:
			s.stats.Add("broken_off", 1)
			panic(http.ErrAbortHandler)
		default:
			code := statusOf(err)
			s.stats.Add("status_"+strconv.Itoa(code), 1)
			extend(w)
			http.Error(w, err.Error(), code) // names in it are quoted
		}
	}
}

func statusOf(err error) int {
	switch {
	case errors.As(err, new(badRequest)):
		return http.StatusBadRequest
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// model returns the model that a request names.
func (s *server) model(r *http.Request) (*model, error) {
	name := r.PathValue("model")
	if m := (*s.models.Load())[name]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("model %q: %w", name, fs.ErrNotExist)
}

// describe sends the tensors of a model, in the order of its files, and its metadata.
func (s *server) describe(w http.ResponseWriter, r *http.Request) error {
	m, err := s.model(r)
	if err != nil {
		return err
	}
	type tensor struct {
		Name  string
		DType string
		Shape []int
		Bytes int64
	}
	description := struct {
		Tensors  []tensor
		Metadata map[string]string
	}{make([]tensor, 0, m.Len()), m.Metadata()}
	for name, t := range m.Tensors() {
		description.Tensors = append(description.Tensors, tensor{name, t.DType().String(), t.Shape(), t.Size()})
	}
	return sendJSON(w, description)
}

func sendJSON(w http.ResponseWriter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(append(text, '\n'))
	return err
}

// send sends the elements of a tensor. ServeContent sees to ranges, conditions and HEAD.
func (s *server) send(w http.ResponseWriter, r *http.Request) error {
	m, err := s.model(r)
	if err != nil {
		return err
	}
	t, err := m.Tensor(r.PathValue("tensor"))
	if err != nil {
		return err
	}
	if t, err = wanted(t, r.URL.RawQuery); err != nil {
		return badRequest{err}
	}
	content := &content{SectionReader: io.NewSectionReader(t, 0, t.Size())}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Tensor", t.String())
	w.Header().Set("ETag", etag(m.version, r.URL.RequestURI()))
	http.ServeContent(w, r, "", time.Time{}, content)
	if err := content.err.Load(); err != nil {
		return *err
	}
	return nil
}

// wanted returns t sliced and converted as a query asks.
func wanted(t safetensors.Tensor, query string) (safetensors.Tensor, error) {
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return t, err
	}
	for name, values := range parameters {
		if name != "slice" && name != "dtype" || len(values) > 1 {
			return t, fmt.Errorf("the query has %d of %q: it may have one slice and one dtype", len(values), name)
		}
	}
	ranges, err := safetensors.ParseRanges(parameters.Get("slice"))
	if err != nil {
		return t, err
	}
	if t, err = t.Slice(ranges...); err != nil || !parameters.Has("dtype") {
		return t, err
	}
	var d safetensors.DType
	if err := d.UnmarshalText([]byte(parameters.Get("dtype"))); err != nil {
		return t, err
	}
	return t.Convert(d)
}

// etag returns a tag for the answer to a URL for one version of a model. A client that asks for
// the rest of an answer by If-Range gets all of the new model instead, if it was replaced.
func etag(version, uri string) string {
	return fmt.Sprintf(`"%.16x"`, sha256.Sum256([]byte(version+"\x00"+uri)))
}

// A content remembers the error of a read, about which ServeContent is silent. Of several ranges
// ServeContent reads on another goroutine, which may still run when it returns.
type content struct {
	*io.SectionReader
	err atomic.Pointer[error]
}

func (c *content) Read(b []byte) (int, error) {
	n, err := c.SectionReader.Read(b)
	if err != nil && err != io.EOF {
		c.err.Store(&err)
	}
	return n, err
}

// writeTimeout is how long a client may take for one part of an answer: for all of a model it may
// take as long as it likes.
const writeTimeout = 30 * time.Second

// buffers are those of reads of tensors.
var buffers = sync.Pool{New: func() any { return new([1 << 20]byte) }}

// An answer holds its status and header back until the first bytes of the body are written, so
// that an error before that can still become another answer.
type answer struct {
	w      http.ResponseWriter
	header http.Header
	status int
	begun  bool
	bytes  int64
}

func newAnswer(w http.ResponseWriter) *answer {
	return &answer{w: w, header: make(http.Header), status: http.StatusOK}
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) begin() {
	if !a.begun {
		a.begun = true
		extend(a.w)
		maps.Copy(a.w.Header(), a.header)
		a.w.WriteHeader(a.status)
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.begin()
	extend(a.w)
	n, err := a.w.Write(b)
	a.bytes += int64(n)
	return n, err
}

// ReadFrom is what io.Copy calls: it reads larger blocks than io.Copy would.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	buffer := buffers.Get().(*[1 << 20]byte)
	defer buffers.Put(buffer)
	return io.CopyBuffer(struct{ io.Writer }{a}, struct{ io.Reader }{r}, buffer[:])
}

// extend gives the client the time of a part from now on.
func extend(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}
