package source

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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
	_, err := o.Tree(server.URL+"/mute", false, all)
	require.ErrorIs(t, err, errSilent)
	tree, err := o.Tree(server.URL+"/x", false, all)
	require.NoError(t, err)
	r, err := tree.Files[0].Open()
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
	info, err := os.Stat(model)
	require.NoError(t, err)
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
		"x.safetensors":    {pin},
		"model.index.json": {{"model.index.json", 36, "Thu, 01 Jan 1970 00:00:01 GMT"}, pin},
	} {
		mu.Lock()
		clear(asked)
		mu.Unlock()
		c, err := (&Opener{Context: t.Context(), Pin: true}).Open(server.URL + "/" + name)
		require.NoError(t, err)
		defer c.Close()
		pins, err := c.Pins()
		require.NoError(t, err)
		require.Equal(t, want, pins)
	}
}
