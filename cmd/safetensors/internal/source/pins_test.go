package source

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSilentServer: a server that does not answer does not hold the command for ever.
func TestSilentServer(t *testing.T) {
	silence = 200 * time.Millisecond
	t.Cleanup(func() { silence = time.Minute })
	model, _ := writeModel(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			<-r.Context().Done()
			return
		}
		f, err := os.Open(model)
		if err == nil {
			defer f.Close()
			http.ServeContent(w, r, "", time.Unix(1, 0), f)
		}
	}))
	t.Cleanup(server.Close)
	_, err := (&Opener{Context: t.Context(), Pin: true}).Open(server.URL + "/x.safetensors")
	require.ErrorContains(t, err, "timeout awaiting response headers")
}
