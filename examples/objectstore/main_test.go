package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
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
		var err error
		tensors[fmt.Sprintf("layers.%d.weight", k)], err = safetensors.NewTensor(safetensors.F32, []int{rows, columns}, values)
		require.NoError(t, err)
	}
	var err error
	tensors["step"], err = safetensors.NewTensor(safetensors.I64, nil, []int64{2000})
	require.NoError(t, err)
	dir = t.TempDir()
	require.NoError(t, safetensors.WriteShards(dir, tensors, map[string]string{"format": "pt"}, 1<<20))
	return dir
}

// TestPutListSlice checks that a checkpoint comes back from every provider, whole
// and in parts.
func TestPutListSlice(t *testing.T) {
	dir := writeCheckpoint(t)
	local, err := safetensors.Open(dir)
	require.NoError(t, err)
	defer local.Close()
	for name, d := range folders(t) {
		var out bytes.Buffer
		require.NoError(t, put(&out, d, dir, 1<<20+8), name)
		require.NoError(t, list(&out, d), name)
		require.Equal(t, `model-00001-of-00003.safetensors: 1 tensors
model-00002-of-00003.safetensors: 1 tensors
model-00003-of-00003.safetensors: 2 tensors
"layers.0.weight"  F32 [512,512]
"layers.1.weight"  F32 [512,512]
"step"             I64 []
"layers.2.weight"  F32 [512,512]
`, out.String(), name)
		require.ErrorContains(t, put(io.Discard, d, dir, 1<<30), "a checkpoint needs a prefix of its own")
		err = commit(d, []string{"model-00001-of-00003.safetensors"})
		require.Equal(t, gcerrors.FailedPrecondition, gcerrors.Code(err), name)
		for _, c := range []struct {
			tensor        string
			dim, rank, of int
			ranges        []safetensors.Range
		}{
			{"layers.1.weight", 0, 3, 8, []safetensors.Range{safetensors.Span(3*64, 4*64)}},
			{"layers.1.weight", 1, 3, 8, []safetensors.Range{safetensors.All(), safetensors.Span(3*64, 4*64)}},
			{"layers.2.weight", 0, 7, 8, []safetensors.Range{safetensors.Span(7*64, 512)}},
			{"layers.0.weight", 0, 0, 1, nil},
			{"step", 0, 0, 1, nil},
		} {
			file := filepath.Join(t.TempDir(), "part.safetensors")
			require.NoError(t, slice(io.Discard, d, c.tensor, c.dim, c.rank, c.of, file), name)
			want, err := local.Tensor(c.tensor)
			require.NoError(t, err)
			want, err = want.Slice(c.ranges...)
			require.NoError(t, err)
			var b bytes.Buffer
			require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{c.tensor: want}, local.Metadata()))
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			require.True(t, bytes.Equal(b.Bytes(), got), "%s: %v", name, c)
		}
	}
}

// TestRequests checks what the commands send to S3: the index comes last, a part is
// read alone, a large shard is uploaded in parts.
func TestRequests(t *testing.T) {
	s, d := startStore(t)
	runs := func(args ...string) (requests []string) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), args, &out))
		for _, r := range s.requests() {
			requests = append(requests, strings.TrimSpace(r.Method+" "+path.Base(r.URL.Path)+" "+r.Header.Get("Range")))
		}
		return requests
	}
	sent := runs("put", "-max", "1048584", s.location, writeCheckpoint(t))
	require.Equal(t, "PUT "+indexName, sent[len(sent)-1])
	require.Len(t, slices.DeleteFunc(sent, func(r string) bool { return !strings.HasPrefix(r, http.MethodPut) }), 4)

	h, err := safetensors.ReadHeader(io.NewSectionReader(opened(t, d, "model-00002-of-00003.safetensors"), 0, 1<<20))
	require.NoError(t, err)
	s.requests()
	const part = 64 * 512 * 4
	file := filepath.Join(t.TempDir(), "part.safetensors")
	require.Equal(t, []string{
		"GET " + indexName,
		"HEAD model-00002-of-00003.safetensors", "GET model-00002-of-00003.safetensors bytes=0-65535",
		fmt.Sprintf("GET model-00002-of-00003.safetensors bytes=%d-%d", h.DataStart+3*part, h.DataStart+4*part-1),
	}, runs("slice", "-rank", "3", "-of", "8", "-dim", "0", s.location, "layers.1.weight", file))

	large, err := safetensors.NewTensor(safetensors.U8, []int{20 << 20}, make([]byte, 20<<20))
	require.NoError(t, err)
	require.NoError(t, putShard(d, "large", map[string]safetensors.Tensor{"t": large}, nil))
	parts := slices.DeleteFunc(s.requests(), func(r *http.Request) bool { return !strings.Contains(r.URL.RawQuery, "partNumber=") })
	require.Len(t, parts, 3)
}

func TestErrors(t *testing.T) {
	s, d := startStore(t)
	dir := writeCheckpoint(t)
	fails := func(want string, args ...string) {
		require.ErrorContains(t, run(t.Context(), args, io.Discard), want)
	}
	fails(indexName, "list", s.location)
	fails("NoSuchBucket", "list", strings.Replace(s.location, "s3://", "s3://other-", 1))
	require.NoError(t, put(io.Discard, d, dir, 2<<20))
	fails("exists; a checkpoint needs a prefix", "put", s.location, dir)

	fails("usage:")
	fails("usage:", "list", s.location, "more")
	fails("usage:", "remove", s.location)
	fails("no scheme", "list", "llama")
	fails("layers.9.weight", "slice", s.location, "layers.9.weight", "file")
	fails("part 8 of 8", "slice", "-rank", "8", "-of", "8", s.location, "layers.1.weight", "file")
	fails("7 does not divide the size 512", "slice", "-of", "7", s.location, "layers.1.weight", "file")
	fails("it has rank 2", "slice", "-rank", "3", "-of", "8", "-dim", "2", s.location, "layers.1.weight", "file")

	const missing = "model-00002-of-00002.safetensors"
	require.NoError(t, d.Delete(t.Context(), missing))
	fails(missing, "list", s.location)
}
