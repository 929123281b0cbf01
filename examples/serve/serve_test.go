package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// filled returns tensors whose elements are all v: x, which is BF16 [256,1024], and one whose name
// must be escaped in a URL.
func filled(t *testing.T, v float32) map[string]safetensors.Tensor {
	values := make([]float32, 256*1024)
	for i := range values {
		values[i] = v
	}
	x, err := safetensors.NewTensor(safetensors.F32, []int{256, 1024}, values)
	require.NoError(t, err)
	x, err = x.Convert(safetensors.BF16)
	require.NoError(t, err)
	y, err := safetensors.NewTensor(safetensors.F32, []int{2, 3}, []float32{0, 1, 2, 10, 11, v})
	require.NoError(t, err)
	return map[string]safetensors.Tensor{"x": x, "a/../y?": y}
}

// start serves a directory with two models: a file, and a pipeline with one component.
func start(t *testing.T) (s *server, url string) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pipe", "unet"), 0o777))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".hidden"), 0o777))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "no model"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pipe", "model_index.json"), []byte(`{"_class_name":"P","unet":["diffusers","U"]}`), 0o666))
	unet := filepath.Join(dir, "pipe", "unet", "diffusion_pytorch_model.safetensors")
	require.NoError(t, safetensors.WriteFile(unet, filled(t, 1), nil))
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "one.safetensors"), filled(t, 2), map[string]string{"format": "pt"}))
	require.NoError(t, safetensors.WriteShards(filepath.Join(dir, "shards"), filled(t, 3), nil, 1<<19))
	s = newServer(dir)
	t.Cleanup(s.close)
	s.reload()
	web := httptest.NewServer(s.handler())
	t.Cleanup(web.Close)
	return s, web.URL
}

// get sends a request, and returns the answer and its body. header contains names and values of
// header fields in turn.
func get(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

func count(s *server, name string) int64 {
	n, _ := s.stats.Get(name).(*expvar.Int)
	if n == nil {
		return 0
	}
	return n.Value()
}

// written returns the bytes that a server should send for a slice of x, converted to d.
func written(t *testing.T, x safetensors.Tensor, d safetensors.DType, ranges ...safetensors.Range) string {
	x, err := x.Slice(ranges...)
	require.NoError(t, err)
	x, err = x.Convert(d)
	require.NoError(t, err)
	var b bytes.Buffer
	_, err = x.WriteTo(&b)
	require.NoError(t, err)
	return b.String()
}

// TestModels lists the models in the directory, and the tensors of one of them.
func TestModels(t *testing.T) {
	_, url := start(t)
	_, body := get(t, url+"/models")
	require.JSONEq(t, `["one.safetensors","pipe/unet","shards"]`, body)
	_, body = get(t, url+"/models/one.safetensors")
	require.JSONEq(t, `{
		"Tensors": [
			{"Name": "a/../y?", "DType": "F32", "Shape": [2, 3], "Bytes": 24},
			{"Name": "x", "DType": "BF16", "Shape": [256, 1024], "Bytes": 524288}],
		"Metadata": {"format": "pt"}}`, body)
	_, body = get(t, url+"/debug/vars")
	require.True(t, json.Valid([]byte(body)))
}

// TestTensors requests tensors, slices and conversions. An invalid request gets the status that
// fits its error.
func TestTensors(t *testing.T) {
	s, url := start(t)
	y := filled(t, 2)["a/../y?"]
	one := url + "/models/one.safetensors/a%2F..%2Fy%3F"
	for query, want := range map[string]struct{ tensor, body string }{
		"":                      {"F32 [2,3]", written(t, y, safetensors.F32)},
		"?slice=-1":             {"F32 [3]", written(t, y, safetensors.F32, safetensors.At(-1))},
		"?slice=:,1:&dtype=F16": {"F16 [2,2]", written(t, y, safetensors.F16, safetensors.All(), safetensors.From(1))},
		"?slice=0:0":            {"F32 [0,3]", ""},
	} {
		resp, body := get(t, one+query)
		require.Equal(t, 200, resp.StatusCode, query)
		require.Equal(t, want.tensor, resp.Header.Get("X-Tensor"), query)
		require.Equal(t, want.body, body, query)
		require.EqualValues(t, len(body), resp.ContentLength, query)
	}
	for _, model := range []string{"one.safetensors", "pipe%2Funet", "shards"} {
		resp, body := get(t, url+"/models/"+model+"/x")
		require.Equal(t, "BF16 [256,1024]", resp.Header.Get("X-Tensor"))
		require.Len(t, body, 1<<19)
	}
	for path, code := range map[string]int{
		"/models/other":                             404,
		"/models/one.safetensors/z":                 404,
		"/models/.hidden/x":                         404,
		"/models/..%2Fone.safetensors/x":            404,
		"/models/one.safetensors/x?slice=256":       400,
		"/models/one.safetensors/x?slice=::-1":      400,
		"/models/one.safetensors/x?dtype=F99":       400,
		"/models/one.safetensors/x?dtype=I8":        400,
		"/models/one.safetensors/x?d=F32":           400,
		"/models/one.safetensors/x?slice=0&slice=1": 400,
		"/models/one.safetensors/x?slice=0;1":       400,
	} {
		resp, body := get(t, url+path)
		require.Equal(t, code, resp.StatusCode, path)
		require.Empty(t, resp.Header.Get("X-Tensor"), path)
		require.Empty(t, resp.Header.Get("ETag"), path)
		require.NotEmpty(t, body, path)
	}
	require.EqualValues(t, 4, count(s, "status_404"))
	require.EqualValues(t, 7, count(s, "status_400"))
}

// TestRanges: a client can resume an answer, and an answer that it has already is not sent again.
// After the model was replaced, both requests get the whole answer of the new model.
func TestRanges(t *testing.T) {
	s, url := start(t)
	x := url + "/models/shards/x"
	resp, whole := get(t, x)
	tag := resp.Header.Get("ETag")
	require.NotEmpty(t, tag)

	resp, part := get(t, x, "Range", "bytes=524280-", "If-Range", tag)
	require.Equal(t, 206, resp.StatusCode)
	require.Equal(t, whole[524280:], part)
	resp, parts := get(t, x, "Range", "bytes=0-3,524280-")
	require.Equal(t, 206, resp.StatusCode)
	require.Contains(t, parts, whole[524280:])
	resp, _ = get(t, x, "Range", "bytes=524288-")
	require.Equal(t, 416, resp.StatusCode)
	resp, body := get(t, x, "If-None-Match", tag)
	require.Equal(t, 304, resp.StatusCode)
	require.Empty(t, body)
	resp, _ = get(t, x+"?slice=0", "If-None-Match", tag)
	require.Equal(t, 200, resp.StatusCode)
	resp, err := http.Head(x)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.EqualValues(t, 1<<19, resp.ContentLength)
	require.NoError(t, resp.Body.Close())

	if runtime.GOOS == "windows" {
		return // an open file cannot be replaced
	}
	require.NoError(t, safetensors.WriteShards(filepath.Join(s.dir, "shards"), filled(t, 4), nil, 1<<19))
	s.reload()
	resp, body = get(t, x, "Range", "bytes=524280-", "If-Range", tag)
	require.Equal(t, 200, resp.StatusCode)
	require.Len(t, body, 1<<19)
	require.NotEqual(t, whole, body)
}

// TestReload: new models are served, and removed ones are not. If a model cannot be opened, the old
// one stays in use, and the error is logged once, and not at each poll.
func TestReload(t *testing.T) {
	s, url := start(t)
	opened := count(s, "opened")
	require.EqualValues(t, 3, opened)
	s.reload()
	require.Equal(t, opened, count(s, "opened"), "nothing was replaced")

	_, before := get(t, url+"/models/one.safetensors/x")
	require.NoError(t, safetensors.WriteFile(filepath.Join(s.dir, "new.safetensors"), filled(t, 5), nil))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "broken.safetensors"), []byte("not yet"), 0o666))
	s.reload()
	_, body := get(t, url+"/models")
	require.JSONEq(t, `["new.safetensors","one.safetensors","pipe/unet","shards"]`, body)
	require.Contains(t, s.failed, "broken.safetensors")
	if runtime.GOOS == "windows" {
		return // an open file cannot be replaced
	}
	temporary := filepath.Join(s.dir, ".new")
	require.NoError(t, os.WriteFile(temporary, []byte("half of a mod"), 0o666))
	require.NoError(t, os.Rename(temporary, filepath.Join(s.dir, "one.safetensors")))
	require.NoError(t, os.Remove(filepath.Join(s.dir, "new.safetensors")))
	s.reload()
	_, body = get(t, url+"/models")
	require.JSONEq(t, `["one.safetensors","pipe/unet","shards"]`, body)
	_, after := get(t, url+"/models/one.safetensors/x")
	require.Equal(t, before, after)

	require.NoError(t, safetensors.WriteFile(filepath.Join(s.dir, "one.safetensors"), filled(t, 6), nil))
	s.reload()
	require.NotContains(t, s.failed, "one.safetensors")
	_, after = get(t, url+"/models/one.safetensors/x")
	require.NotEqual(t, before, after)
}

// TestReplacements: models are replaced while requests are in progress. An answer belongs to one
// model, and is complete or broken off. It is never a mixture.
func TestReplacements(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be replaced")
	}
	const replacements = 8
	s, url := start(t)
	var stop atomic.Bool
	var clients sync.WaitGroup
	var whole atomic.Int64
	for client := range 4 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			for !stop.Load() {
				model := []string{"one.safetensors", "shards"}[client%2]
				query := []string{"", "?dtype=F32"}[client/2]
				resp, err := http.Get(url + "/models/" + model + "/x" + query)
				if err != nil {
					continue // the answer was broken off before its header was complete
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil && resp.StatusCode == 500 && bytes.Contains(body, []byte(fs.ErrClosed.Error())) {
					continue // the model was replaced twice before the first byte
				}
				if size := 2 + 2*(client/2); err == nil && (resp.StatusCode != 200 || len(body) != 256*1024*size || !bytes.Equal(body[size:], body[:len(body)-size])) {
					t.Errorf("status %d, %d bytes, of several models or a part", resp.StatusCode, len(body))
				}
				if err == nil {
					whole.Add(1)
				}
			}
		}()
	}
	for i := range replacements {
		require.NoError(t, safetensors.WriteFile(filepath.Join(s.dir, "one.safetensors"), filled(t, float32(10+i)), nil))
		require.NoError(t, safetensors.WriteShards(filepath.Join(s.dir, "shards"), filled(t, float32(10+i)), nil, 1<<19))
		s.reload()
	}
	stop.Store(true)
	clients.Wait()
	require.Positive(t, whole.Load())
	require.EqualValues(t, 3+2*replacements, count(s, "opened"))
	_, body := get(t, url+"/models/one.safetensors/x")
	require.Equal(t, written(t, filled(t, 10+replacements-1)["x"], safetensors.BF16), body)
}

// A readerFunc is a func that implements io.ReaderAt.
type readerFunc func(b []byte, off int64) (int, error)

func (f readerFunc) ReadAt(b []byte, off int64) (int, error) { return f(b, off) }

// serveReader lets s serve a model whose data, after its header, the func read reads.
func serveReader(t *testing.T, s *server, read func(b []byte, off, start int64) (int, error)) {
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{"x": large(t, 3)}, nil))
	start := int64(b.Len()) - large(t, 3).Size()
	text := bytes.NewReader(b.Bytes())
	f, err := safetensors.NewFile(readerFunc(func(p []byte, off int64) (int, error) {
		if off >= start {
			if n, err := read(p, off, start); err != nil {
				return n, err
			}
		}
		return text.ReadAt(p, off)
	}), int64(b.Len()))
	require.NoError(t, err)
	s.models.Store(&map[string]*model{"m": {f, "1"}})
}

// large returns a tensor of this number of MiB, each of which takes one read.
func large(t *testing.T, mib int) safetensors.Tensor {
	x, err := safetensors.NewTensor(safetensors.U8, []int{mib, 1 << 20}, make([]byte, mib<<20))
	require.NoError(t, err)
	return x
}

// TestClosedBefore: if the model of a request is closed before the first byte, the request gets the
// new model. The handler tries that only once.
func TestClosedBefore(t *testing.T) {
	s, url := start(t)
	after := *s.models.Load()
	after["m"] = after["shards"]
	serveReader(t, s, func([]byte, int64, int64) (int, error) {
		s.models.Store(&after)
		return 0, fs.ErrClosed
	})
	resp, body := get(t, url+"/models/m/x", "Range", "bytes=0-9")
	require.Equal(t, 206, resp.StatusCode)
	require.Equal(t, written(t, filled(t, 3)["x"], safetensors.BF16)[:10], body)
	require.EqualValues(t, 1, count(s, "retries"))

	serveReader(t, s, func([]byte, int64, int64) (int, error) { return 0, fs.ErrClosed })
	resp, _ = get(t, url+"/models/m/x")
	require.Equal(t, 500, resp.StatusCode)
	require.EqualValues(t, 2, count(s, "retries"))
	s.models.Store(&after)
	delete(after, "m")
}

// TestErrors: an error before the first byte becomes the answer. After an error later on, the
// answer is broken off, so that no client takes a part for the whole.
func TestErrors(t *testing.T) {
	s, url := start(t)
	opened := *s.models.Load()
	defer s.models.Store(&opened)
	broken := errors.New("the disk is broken")
	serveReader(t, s, func([]byte, int64, int64) (int, error) { return 0, broken })
	resp, body := get(t, url+"/models/m/x")
	require.Equal(t, 500, resp.StatusCode)
	require.Contains(t, body, broken.Error())
	require.Empty(t, resp.Header.Get("ETag"))
	require.Empty(t, resp.Header.Get("Accept-Ranges"))

	for _, later := range []error{broken, fs.ErrClosed} {
		serveReader(t, s, func(_ []byte, off, start int64) (int, error) {
			if off >= start+2<<20 {
				return 0, later
			}
			return 0, nil
		})
		for _, ranges := range []string{"", "bytes=0-2999999", "bytes=0-9,10-2999999"} {
			r, err := http.NewRequest("GET", url+"/models/m/x", nil)
			require.NoError(t, err)
			r.Header.Set("Range", ranges)
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.NoError(t, resp.Body.Close())
		}
	}
	require.EqualValues(t, 6, count(s, "broken_off"))
	require.Zero(t, count(s, "retries"))
}

// TestEnd: when the program is told to end, a request in progress gets its whole answer, and then
// the models are closed.
func TestEnd(t *testing.T) {
	s := newServer(t.TempDir())
	require.NoError(t, safetensors.WriteFile(filepath.Join(s.dir, "one.safetensors"), map[string]safetensors.Tensor{"x": large(t, 32)}, nil))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, l, time.Millisecond) }()
	url := fmt.Sprintf("http://%s/models/one.safetensors/x", l.Addr())
	resp, err := http.Get(url)
	require.NoError(t, err)
	x, err := (*s.models.Load())["one.safetensors"].Tensor("x")
	require.NoError(t, err)
	end() // at this time, most of the 32 MiB have not reached any buffer
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Len(t, body, 32<<20)
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, <-ended)
	_, err = safetensors.Append[byte](nil, x)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = http.Get(url)
	require.Error(t, err)
}
