package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

const planFile = ".safetensors-plan.json"

// withoutPlan returns files but for the plan, which must be there.
func withoutPlan(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	require.Contains(t, files, planFile)
	delete(files, planFile)
	return files
}

// writePartsSource writes a checkpoint of ten tensors.
func writePartsSource(t *testing.T, name string) {
	tensors := make(map[string]safetensors.Tensor)
	for i := range 10 {
		tensors[fmt.Sprintf("layers.%d", i)] = counting(t, 20+i)
	}
	require.NoError(t, safetensors.WriteFile(name, tensors, map[string]string{"format": "pt"}))
}

// TestPartsWithoutTags: a server that tells nothing by which a change could be noticed.
func TestPartsWithoutTags(t *testing.T) {
	t.Chdir(t.TempDir())
	writePartsSource(t, "src.safetensors")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(must(os.ReadFile("src.safetensors"))))
	})
	r := fails(t, 3, "cp", "-q", url+"/x.safetensors", "dst", "--max-shard-size", "1GB", "--part", "1/1")
	require.Contains(t, r, "it cannot be known whether x.safetensors changes")
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
	require.Equal(t, c.folder("plain"), withoutPlan(t, c.folder("dst")))
}
