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

// A badRequest is an error in the request of the client.
type badRequest struct{ error }

// serve returns a handler that calls send, which sends the answer or returns an error.
//
// A model that is replaced in the meantime is closed. If no byte of the answer has been sent by
// then, the handler calls send again, with the new model. Otherwise it breaks off the connection,
// because a client would take an answer that ends normally for complete.
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
			http.Error(w, err.Error(), code) // the library quotes names in its errors
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

// send sends the elements of a tensor. ServeContent handles ranges, conditions and HEAD.
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

// wanted returns t sliced and converted as the parameters slice and dtype of a query specify.
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

// etag returns the ETag of the answer to a URL, for one version of a model. If a client requests
// the rest of an answer with If-Range after the model was replaced, it gets the whole answer of the
// new model.
func etag(version, uri string) string {
	return fmt.Sprintf(`"%.16x"`, sha256.Sum256([]byte(version+"\x00"+uri)))
}

// A content records the error of a read, because ServeContent does not return it. If a request asks
// for several ranges, ServeContent reads on another goroutine, which may still run after it has
// returned. So err is atomic.
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

// writeTimeout limits the time in which a client must receive one block of an answer. The time for
// the whole answer is not limited.
const writeTimeout = 30 * time.Second

// buffers holds memory for reading tensors in large blocks.
var buffers = sync.Pool{New: func() any { return new([1 << 20]byte) }}

// An answer delays its status and its header until the first bytes of the body are written. Until
// then, an error can still replace it by another answer.
type answer struct {
	w      http.ResponseWriter
	header http.Header
	status int
	begun  bool  // whether the header was sent
	bytes  int64 // number of bytes of the body sent so far
}

func newAnswer(w http.ResponseWriter) *answer {
	return &answer{w: w, header: make(http.Header), status: http.StatusOK}
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

// begin sends the status and the header, unless they were sent already.
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

// ReadFrom implements io.ReaderFrom, which io.Copy uses: it reads larger blocks than io.Copy would.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	buffer := buffers.Get().(*[1 << 20]byte)
	defer buffers.Put(buffer)
	return io.CopyBuffer(struct{ io.Writer }{a}, struct{ io.Reader }{r}, buffer[:])
}

// extend gives the client writeTimeout from now on to receive the next block.
func extend(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}
