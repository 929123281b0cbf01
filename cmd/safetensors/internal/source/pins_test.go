package source

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors/remote"
	"github.com/stretchr/testify/require"
)

// TestSilentServer: a server that does not answer, or stops in the middle, does not hold the
// command for ever.
func TestSilentServer(t *testing.T) {
	silence = 200 * time.Millisecond
	t.Cleanup(func() { silence = time.Minute })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		if r.Method == http.MethodGet {
			io.WriteString(w, "some")
			w.(http.Flusher).Flush()
		}
		if r.Method == http.MethodGet || r.URL.Path == "/mute" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	o := &Opener{Context: t.Context()}
	all := func(string) bool { return false }
	require.ErrorIs(t, errorOf(o.client().Head(server.URL+"/mute")), errSilent)
	silence = time.Minute
	tree := must(o.Tree(server.URL+"/x", false, all))
	silence = 200 * time.Millisecond
	r, err := tree.Files[0].Open()
	for errors.Is(err, errSilent) { // as a busy machine may be
		r, err = tree.Files[0].Open()
	}
	require.NoError(t, err)
	defer r.Close()
	time.Sleep(2 * silence) // of the reader
	text, err := io.ReadAll(r)
	require.ErrorIs(t, err, errSilent)
	require.Equal(t, "some", string(text))
}

// TestPinsOfURL: a file is pinned by the answer that opened it, whatever failed before, and
// wherever it came from.
func TestPinsOfURL(t *testing.T) {
	model, _ := writeModel(t)
	info := must(os.Stat(model))
	var mu sync.Mutex
	asked := make(map[string]bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		again := asked[r.Method+r.URL.Path]
		asked[r.Method+r.URL.Path] = true
		mu.Unlock()
		switch {
		case !again:
			w.Header().Set("ETag", `"wrong"`)
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/x.safetensors":
			http.Redirect(w, r, "/there?signature", http.StatusFound)
		case r.URL.Path == "/there":
			w.Header().Set("ETag", `"tag"`)
			f, err := os.Open(model)
			if err == nil {
				defer f.Close()
				http.ServeContent(w, r, "", time.Unix(1, 0), f)
			}
		default:
			http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader(`{"weight_map":{"x":"x.safetensors"}}`))
		}
	}))
	t.Cleanup(server.Close)
	pin := Pin{"x.safetensors", info.Size(), `"tag"`}
	for name, want := range map[string][]Pin{
		"x.safetensors":                 {pin},
		"model.index.json":              {{"model.index.json", 36, "Thu, 01 Jan 1970 00:00:01 GMT"}, pin},
		"m.safetensors.index.fp16.json": {{"m.safetensors.index.fp16.json", 36, "Thu, 01 Jan 1970 00:00:01 GMT"}, pin},
	} {
		mu.Lock()
		clear(asked)
		mu.Unlock()
		c := must((&Opener{Context: t.Context(), Pin: true}).Open(server.URL + "/" + name))
		defer c.Close()
		pins := must(c.Pins())
		require.Equal(t, want, pins)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPinsOfSpellings: however a URL is spelled, its answer is found.
func TestPinsOfSpellings(t *testing.T) {
	model, _ := writeModel(t)
	data := must(os.ReadFile(model))
	for _, index := range []bool{false, true} {
		for _, in := range []string{"http://host", "HTTP://Host:80", "http://host:", "http://[::1]:", "http://user:password@host", "http://host/a/../b%2Fc"} {
			rawURL := in + "/x.safetensors?q#f"
			if index {
				rawURL = in + "/model.safetensors.index.json?q#f"
			}
			o := &Opener{Context: t.Context(), Pin: true}
			seen := &answers{last: make(map[string]http.Header), RoundTripper: roundTrip(func(r *http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				w.Header().Set("ETag", `"tag"`)
				if strings.HasSuffix(r.URL.Path, ".json") {
					w.Header().Set("Content-Length", "36")
					io.WriteString(w, `{"weight_map":{"x":"x.safetensors"}}`)
				} else {
					http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
				}
				return w.Result(), nil
			})}
			f := must((&remote.Client{HTTP: &http.Client{Transport: seen}}).Open(t.Context(), rawURL))
			defer f.Close()
			c := &Checkpoint{Name: rawURL}
			require.NoError(t, o.pinURL(c, rawURL, f, seen))
			pins, err := c.Pins()
			require.NoError(t, err, rawURL)
			for _, p := range pins {
				require.Equal(t, `"tag"`, p.Tag, rawURL)
				require.NotEqual(t, int64(-1), p.Size, rawURL)
			}
		}
	}
}
