package objectstore

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// writeCheckpoint writes a local checkpoint of three matrices of 1 MiB and a
// scalar.
func writeCheckpoint(t *testing.T) (dir string) {
	const rows, columns = 512, 512
	tensors := make(map[string]safetensors.Tensor)
	for k := range 3 {
		values := make([]float32, rows*columns)
		for i := range values {
			values[i] = float32(k*len(values) + i)
		}
		tensors[fmt.Sprintf("layers.%d.weight", k)] = must(safetensors.NewTensor(safetensors.F32, []int{rows, columns}, values))
	}
	tensors["step"] = must(safetensors.NewTensor(safetensors.I64, nil, []int64{2000}))
	dir = t.TempDir()
	require.NoError(t, safetensors.WriteShards(dir, tensors, map[string]string{"format": "pt"}, 1<<20))
	return dir
}

// put writes a local checkpoint, each shard as one process would.
func put(t *testing.T, d folder, checkpoint string) {
	f := must(safetensors.Open(checkpoint))
	defer f.Close()
	shards := safetensors.Split(maps.Collect(f.Tensors()), 1<<20+8)
	for name, shard := range shards {
		require.NoError(t, d.create(name, blob.WriterOptions{}, func(w io.Writer) error { return safetensors.Write(w, shard, f.Metadata()) }))
	}
	require.NoError(t, commit(d, slices.Sorted(maps.Keys(shards))))
}

// TestRoundTrip checks that a checkpoint comes back from every provider, whole and in
// parts.
func TestRoundTrip(t *testing.T) {
	dir := writeCheckpoint(t)
	local := must(safetensors.Open(dir))
	defer local.Close()
	for name, d := range folders(t) {
		put(t, d, dir)
		f := must(d.open(indexName))
		require.Equal(t, local.Len(), f.Len())
		err := commit(d, []string{"model-00001-of-00003.safetensors"})
		require.Equal(t, gcerrors.FailedPrecondition, gcerrors.Code(err), "%s: there is an index", name)
		for tensor, want := range local.Tensors() {
			got := must(f.Tensor(tensor))
			requireEqual(t, want, got)
			for dim := range want.Shape() {
				requireEqual(t, must(want.Part(dim, 3, 8)), must(got.Part(dim, 3, 8)))
			}
		}
	}
}

func requireEqual(t *testing.T, want, got safetensors.Tensor) {
	t.Helper()
	require.Equal(t, want.String(), got.String())
	wantBytes := must(safetensors.Append[byte](nil, want))
	require.True(t, bytes.Equal(wantBytes, must(safetensors.Append[byte](nil, got))))
}

// TestRequests checks what is sent to S3: a shard is uploaded in parts, opening takes one
// request for each shard, and a part of a tensor is read alone.
func TestRequests(t *testing.T) {
	s, d := startStore(t)
	put(t, d, writeCheckpoint(t))
	s.requests()
	f := must(d.open(indexName))
	require.Len(t, s.requests(), 1+3)

	part := must(must(f.Tensor("layers.1.weight")).Part(0, 3, 8))
	must(safetensors.Append[byte](nil, part))
	const size = 64 * 512 * 4
	sent := s.requests()
	h := must(d.open("model-00002-of-00003.safetensors")).Header()
	require.Equal(t, "model-00002-of-00003.safetensors", path.Base(sent[0].URL.Path))
	require.Equal(t, fmt.Sprintf("bytes=%d-%d", h.DataStart+3*size, h.DataStart+4*size-1), sent[0].Header.Get("Range"))

	require.NoError(t, d.create("large", blob.WriterOptions{}, writing(20<<20)))
	parts := slices.DeleteFunc(s.requests(), func(r *http.Request) bool { return !strings.Contains(r.URL.RawQuery, "partNumber=") })
	require.Len(t, parts, 3)
}

func TestErrors(t *testing.T) {
	s, d := startStore(t)
	require.ErrorContains(t, errorOf(d.open(indexName)), indexName)
	other := openedFolder(t, strings.Replace(s.location, "s3://", "s3://other-", 1))
	require.ErrorContains(t, errorOf(other.open(indexName)), "NoSuchBucket")
	require.ErrorContains(t, errorOf(openFolder(t.Context(), "llama")), "no scheme")

	put(t, d, writeCheckpoint(t))
	const missing = "model-00002-of-00003.safetensors"
	require.NoError(t, d.Delete(t.Context(), missing))
	require.ErrorContains(t, errorOf(d.open(indexName)), missing)
}
