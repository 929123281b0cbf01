package main

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEndlessFiles: a link to a device without an end, and a file for which a server claims more
// bytes than any disk has, are refused and not copied to the temporary folder.
func TestEndlessFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no /dev/zero")
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"model.safetensors", "model.pt"} {
		require.NoError(t, os.Symlink("/dev/zero", name))
		require.Contains(t, fails(t, 1, "ls", name), name+": neither a file, nor a folder, nor a pipe")
	}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var first, last int
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
		last = min(last, first+100_007)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/576460752303423488", first, last))
		w.WriteHeader(http.StatusPartialContent)
		w.Write(make([]byte, last+1-first))
	})
	require.Contains(t, fails(t, 1, "ls", url+"/model.pt"), "set TMPDIR to a folder with more room")
}
