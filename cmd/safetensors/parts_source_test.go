package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPartsWithoutTags: a server that tells nothing by which a change could be noticed.
func TestPartsWithoutTags(t *testing.T) {
	t.Chdir(t.TempDir())
	writePartsSource(t, "src.safetensors")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open("src.safetensors")
		if err == nil {
			defer f.Close()
			http.ServeContent(w, r, "", time.Time{}, f)
		}
	})
	r := fails(t, 3, "cp", "-q", url+"/x.safetensors", "dst", "--max-shard-size", "1GB", "--part", "1/1")
	require.Contains(t, r, "nothing tells whether x.safetensors changes")
	require.NoDirExists(t, "dst")
}

// TestPartsForceAgain has the store refuse to remove a shard of the job whose plan is taken
// away: the next try removes it.
func TestPartsForceAgain(t *testing.T) {
	c := clouds(t)["s3"]
	writePartsSource(t, "src.safetensors")
	part := func(k int, flags ...string) []string {
		return append([]string{"cp", "-q", "src.safetensors", c.at("dst"), "--part", fmt.Sprintf("%d/2", k), "--max-shard-size"}, flags...)
	}
	succeeds(t, part(1, "200B")...)
	c.faults.setFault(forbids(func(r *http.Request) bool { return r.Method == http.MethodDelete }))
	fails(t, 1, part(1, "400B", "--force")...)
	c.faults.setFault(nil)
	succeeds(t, part(1, "400B", "--force")...)
	succeeds(t, part(2, "400B", "--force")...)
	succeeds(t, "cp", "-q", "src.safetensors", c.at("plain"), "--max-shard-size", "400B")
	plain, dst := 0, 0
	for key := range c.objects() {
		if strings.HasPrefix(key, "plain/") {
			plain++
		} else if key != "dst/"+planFile {
			dst++
		}
	}
	require.Equal(t, plain, dst)
}
