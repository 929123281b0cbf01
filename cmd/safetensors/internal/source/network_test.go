package source

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHubOfOtherFormats: the error says what a file is that only local files can be.
func TestHubOfOtherFormats(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/o/n/resolve/main/pytorch_model.bin" {
			io.WriteString(w, "PK\x03\x04 and so on")
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HOME", t.TempDir())
	_, err := (&Opener{Context: t.Context()}).Open("hf://o/n/pytorch_model.bin")
	require.ErrorContains(t, err, "zip")
	require.NotContains(t, err.Error(), "model.safetensors")
}
