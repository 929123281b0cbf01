package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// writeCheckpoint writes a local checkpoint of four shards: one each for three
// matrices of 1 MiB and a scalar.
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

func runs(t *testing.T, args ...string) string {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), args, &out))
	return out.String()
}

func TestPutListSlice(t *testing.T) {
	s, d := startStore(t)
	dir := writeCheckpoint(t)
	local, err := safetensors.Open(dir)
	require.NoError(t, err)
	defer local.Close()

	require.Equal(t, `s3://models/llama/step-2000/model-00001-of-00003.safetensors: 1 tensors
s3://models/llama/step-2000/model-00002-of-00003.safetensors: 1 tensors
s3://models/llama/step-2000/model-00003-of-00003.safetensors: 2 tensors
`, runs(t, "put", "-max", "1048584", location, dir))
	require.Equal(t, []string{
		"model-00001-of-00003.safetensors",
		"model-00002-of-00003.safetensors",
		"model-00003-of-00003.safetensors",
		"model.safetensors.index.json",
	}, objects(t, d))
	written := slices.DeleteFunc(s.exchanges(), func(e *exchange) bool { return e.method != http.MethodPut })
	require.Len(t, written, 4)
	require.Equal(t, indexName, written[3].key, "the index comes last")

	require.Equal(t, `"layers.0.weight"  F32 [512,512]
"layers.1.weight"  F32 [512,512]
"step"             I64 []
"layers.2.weight"  F32 [512,512]
`, runs(t, "list", location))
	s.exchanges()

	// One rank's rows take the index, the size and the header of each shard, and the
	// rows of one shard.
	file := filepath.Join(t.TempDir(), "part.safetensors")
	require.Equal(t, file+": \"layers.1.weight\" F32 [64,512]\n",
		runs(t, "slice", "-rank", "3", "-of", "8", "-dim", "0", location, "layers.1.weight", file))
	read := s.exchanges()
	total := int64(0)
	var got []string
	for _, e := range read {
		got = append(got, strings.TrimSpace(fmt.Sprint(e.method, " ", e.key, " ", e.byteRange)))
		total += e.sent
	}
	const header, part = 64 << 10, 64 * 512 * 4
	h := headerSize(t, d, "model-00002-of-00003.safetensors")
	require.ElementsMatch(t, []string{
		"GET model.safetensors.index.json",
		"HEAD model-00001-of-00003.safetensors", "GET model-00001-of-00003.safetensors bytes=0-65535",
		"HEAD model-00002-of-00003.safetensors", "GET model-00002-of-00003.safetensors bytes=0-65535",
		"HEAD model-00003-of-00003.safetensors", "GET model-00003-of-00003.safetensors bytes=0-65535",
		fmt.Sprintf("GET model-00002-of-00003.safetensors bytes=%d-%d", h+3*part, h+4*part-1),
	}, got)
	require.Equal(t, 3*header+part+read[0].sent, total)
	t.Logf("%d requests, %d bytes of %d in the bucket", len(read), total, bucketSize(t, d))

	for _, c := range []struct {
		flags  string
		tensor string
		ranges []safetensors.Range
	}{
		{"-rank 3 -of 8 -dim 0", "layers.1.weight", []safetensors.Range{safetensors.Span(3*64, 4*64)}},
		{"-rank 3 -of 8 -dim 1", "layers.1.weight", []safetensors.Range{safetensors.All(), safetensors.Span(3*64, 4*64)}},
		{"-rank 7 -of 8 -dim 0", "layers.2.weight", []safetensors.Range{safetensors.Span(7*64, 512)}},
		{"", "layers.0.weight", nil},
		{"", "step", nil},
	} {
		args := append([]string{"slice"}, strings.Fields(c.flags)...)
		runs(t, append(args, location, c.tensor, file)...)
		want, err := local.Tensor(c.tensor)
		require.NoError(t, err)
		want, err = want.Slice(c.ranges...)
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{c.tensor: want}, local.Metadata()))
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, bytes.Equal(b.Bytes(), got), "%s %s", c.flags, c.tensor)
	}
}

// TestMultipart checks that a tensor is unchanged by an upload in several parts.
func TestMultipart(t *testing.T) {
	s, d := startStore(t)
	data := make([]byte, 20<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	tensor, err := safetensors.NewTensor(safetensors.U8, []int{len(data)}, data)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, safetensors.WriteFile(file, map[string]safetensors.Tensor{"t": tensor}, nil))
	runs(t, "put", location, file)
	parts := slices.DeleteFunc(s.exchanges(), func(e *exchange) bool { return !strings.Contains(e.query, "partNumber=") })
	require.Len(t, parts, 3)
	require.Len(t, objects(t, d), 2)

	f, err := openCheckpoint(d)
	require.NoError(t, err)
	got, err := f.Tensor("t")
	require.NoError(t, err)
	values, err := safetensors.Append[uint8](nil, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, values))
}

func TestErrors(t *testing.T) {
	_, d := startStore(t)
	dir := writeCheckpoint(t)
	fails := func(want string, args ...string) {
		require.ErrorContains(t, run(t.Context(), args, io.Discard), want)
	}
	fails(location+"/"+indexName, "list", location)
	fails("NoSuchBucket", "list", "s3://other/llama")
	runs(t, "put", "-max", "2097152", location, dir)
	fails("exists; a checkpoint needs a prefix", "put", location, dir)

	fails("usage:")
	fails("usage:", "list", "llama")
	fails("usage:", "list", location, "more")
	fails("usage:", "remove", location)
	fails("layers.9.weight", "slice", location, "layers.9.weight", "file")
	fails("part 8 of 8", "slice", "-rank", "8", "-of", "8", location, "layers.1.weight", "file")
	fails("7 does not divide the size 512", "slice", "-of", "7", location, "layers.1.weight", "file")
	fails("it has rank 2", "slice", "-rank", "3", "-of", "8", "-dim", "2", location, "layers.1.weight", "file")

	const missing = "model-00002-of-00002.safetensors"
	_, err := d.client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &d.bucket, Key: d.key(missing)})
	require.NoError(t, err)
	err = run(t.Context(), []string{"list", location}, io.Discard)
	require.ErrorContains(t, err, missing)
	require.NotContains(t, err.Error(), "00001-of")
}
