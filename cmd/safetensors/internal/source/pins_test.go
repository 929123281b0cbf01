package source

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/stretchr/testify/require"
)

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
	pin := storage.Pin{Name: "x.safetensors", Size: info.Size(), Tag: `"tag"`}
	for name, want := range map[string][]storage.Pin{
		"x.safetensors":                 {pin},
		"model.index.json":              {{Name: "model.index.json", Size: 36, Tag: "Thu, 01 Jan 1970 00:00:01 GMT"}, pin},
		"m.safetensors.index.fp16.json": {{Name: "m.safetensors.index.fp16.json", Size: 36, Tag: "Thu, 01 Jan 1970 00:00:01 GMT"}, pin},
	} {
		mu.Lock()
		clear(asked)
		mu.Unlock()
		c := must(newOpener(t).Open(server.URL + "/" + name))
		defer c.Close()
		pins := must(c.Pins())
		require.Equal(t, want, pins)
	}
}
