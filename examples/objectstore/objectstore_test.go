package objectstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
	"github.com/stretchr/testify/require"
	"gocloud.dev/gcerrors"
)

// put writes a checkpoint of three matrices of 1 MiB and a scalar. It writes each shard as one
// process of a job would.
func put(t *testing.T, d folder) map[string]safetensors.Tensor {
	tensors := map[string]safetensors.Tensor{"step": must(safetensors.NewTensor(safetensors.I64, nil, []int64{2000}))}
	for k := range 3 {
		values := make([]float32, 512*512)
		for i := range values {
			values[i] = float32(k*len(values) + i)
		}
		tensors[fmt.Sprintf("layers.%d.weight", k)] = must(safetensors.NewTensor(safetensors.F32, []int{512, 512}, values))
	}
	shards := safetensors.Split(tensors, 1<<20+8)
	for name, shard := range shards {
		require.NoError(t, d.create(name, func(w io.Writer) error { return safetensors.Write(w, shard, nil) }))
	}
	require.NoError(t, commit(d, slices.Sorted(maps.Keys(shards))))
	return tensors
}

// TestRoundTrip checks that a checkpoint can be read back from every provider, as a whole and in
// parts.
func TestRoundTrip(t *testing.T) {
	for name, d := range folders(t) {
		tensors := put(t, d)
		err := commit(d, []string{"model-00001-of-00003.safetensors"})
		require.Equal(t, gcerrors.FailedPrecondition, gcerrors.Code(err), "%s: there is an index", name)
		f := must(d.open(indexName))
		require.Equal(t, len(tensors), f.Len())
		for tensor, want := range tensors {
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
	require.True(t, bytes.Equal(must(safetensors.Append[byte](nil, want)), must(safetensors.Append[byte](nil, got))))
}

// TestRequests checks the requests to S3: a shard is uploaded in parts, opening takes one request
// for each shard, and a part of a tensor is read without the rest.
func TestRequests(t *testing.T) {
	s, d := startStore(t)
	put(t, d)
	s.requests()
	f := must(d.open(indexName))
	require.Len(t, s.requests(), 1+3)

	part := must(must(f.Tensor("layers.1.weight")).Part(0, 3, 8))
	must(safetensors.Append[byte](nil, part))
	const size = 64 * 512 * 4
	sent := s.requests()
	h := must(d.open("model-00002-of-00003.safetensors")).Header()
	require.Contains(t, sent[0].URL.Path, "/llama/step-2000/model-00002-of-00003.safetensors")
	require.Equal(t, fmt.Sprintf("bytes=%d-%d", h.DataStart+3*size, h.DataStart+4*size-1), sent[0].Header.Get("Range"))

	require.NoError(t, d.create("large", writing(20<<20)))
	parts := slices.DeleteFunc(s.requests(), func(r *http.Request) bool { return !strings.Contains(r.URL.RawQuery, "partNumber=") })
	require.Len(t, parts, 3)
}

// TestErrors: errors name the shard or the bucket that does not exist, or the URL that is invalid.
func TestErrors(t *testing.T) {
	s, d := startStore(t)
	require.ErrorContains(t, errorOf(d.open(indexName)), indexName)
	other := openedFolder(t, strings.Replace(s.location, "s3://", "s3://other-", 1))
	require.ErrorContains(t, errorOf(other.open(indexName)), "NoSuchBucket")
	require.ErrorContains(t, errorOf(openFolder(t.Context(), "llama")), "no scheme")
	require.ErrorContains(t, errorOf(openFolder(t.Context(), "s3://models/%zz")), "invalid URL escape")

	put(t, d)
	const missing = "model-00002-of-00003.safetensors"
	require.ErrorContains(t, commit(d, []string{missing, missing}), "duplicate")
	require.NoError(t, d.Delete(t.Context(), missing))
	require.ErrorContains(t, errorOf(d.open(indexName)), missing)
}

// shardOf returns a shard with one tensor, which has more bytes than Open reads.
func shardOf(fill byte) []byte {
	x := must(safetensors.NewTensor(safetensors.U8, []int{300, 1000}, bytes.Repeat([]byte{fill}, 300_000)))
	var b bytes.Buffer
	must(0, safetensors.Write(&b, map[string]safetensors.Tensor{"x": x}, nil))
	return b.Bytes()
}

// read reads one of a hundred parts of the tensor.
func read(f *safetensors.File) ([]byte, error) {
	return safetensors.Append[byte](nil, must(must(f.Tensor("x")).Part(0, 99, 100)))
}

// TestReplaced checks that parts of an object can be read from every provider, until the object is
// replaced, even by one of the same size.
func TestReplaced(t *testing.T) {
	check := func(name string, d folder, replace func()) {
		f := must(d.open("o.safetensors"))
		require.Equal(t, bytes.Repeat([]byte{7}, 3000), must(read(f)), name)
		replace()
		err := errorOf(read(f))
		require.ErrorIs(t, err, remote.ErrChanged, name)
		require.ErrorContains(t, err, "o.safetensors", name)
	}
	for name, d := range folders(t) {
		require.NoError(t, d.WriteAll(t.Context(), "o.safetensors", shardOf(7), nil))
		check(name, d, func() {
			before := must(d.Attributes(t.Context(), "o.safetensors"))
			for after := *before; after.ModTime.Equal(before.ModTime) && after.ETag == before.ETag; after = *must(d.Attributes(t.Context(), "o.safetensors")) {
				time.Sleep(time.Millisecond) // a file has only a time as its version, in ticks of the file system
				require.NoError(t, d.WriteAll(t.Context(), "o.safetensors", shardOf(8), nil))
			}
		})
		require.ErrorIs(t, errorOf(d.open("other.safetensors")), fs.ErrNotExist, name)
	}
	for name, d := range readings(t, shardOf(7)) {
		check(name, d, func() { served.generation++ })
	}
}

// TestBadAnswers checks that an answer of another version or with another range is an error.
func TestBadAnswers(t *testing.T) {
	s, d := startStore(t)
	data := shardOf(7)
	require.NoError(t, d.WriteAll(t.Context(), "o.safetensors", data, nil))
	f := must(d.open("o.safetensors"))
	answered := func(status int, etag, contentRange string) error {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", etag)
			w.Header().Set("Content-Range", contentRange)
			w.WriteHeader(status)
			if status < 400 {
				w.Write(data[:3000])
			}
			return true
		}
		return errorOf(read(f))
	}
	size := len(data)
	etag := must(d.Attributes(t.Context(), "o.safetensors")).ETag
	err := answered(206, "another", fmt.Sprintf("bytes %d-%d/%d", size-3000, size-1, size))
	require.ErrorIs(t, err, remote.ErrChanged)
	require.ErrorContains(t, err, "another")
	require.ErrorIs(t, answered(206, etag, fmt.Sprintf("bytes %d-%d/%d", size-3000, size-1, size+1)), remote.ErrChanged)
	require.ErrorContains(t, answered(206, etag, fmt.Sprintf("bytes 0-2999/%d", size)), "answered with Content-Range")
	require.ErrorIs(t, answered(200, etag, ""), errors.ErrUnsupported)
	require.ErrorIs(t, answered(403, "", ""), fs.ErrPermission)
}

var errDisk = errors.New("the disk fails")

type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) { clear(b); return len(b), nil }

// writing returns a func that writes size zeros.
func writing(size int64) func(io.Writer) error {
	return func(w io.Writer) error { return errorOf(io.Copy(w, io.NewSectionReader(zeros{}, 0, size))) }
}

// TestFailedUpload checks that an upload that fails creates no object, and does not change an
// existing one.
func TestFailedUpload(t *testing.T) {
	for provider, d := range folders(t) {
		require.NoError(t, d.WriteAll(t.Context(), "shard", []byte("before"), nil))
		for _, size := range []int64{0, 1 << 10, 18 << 20} { // nothing, less than a part, and several parts
			err := d.create("shard", func(w io.Writer) error {
				return errors.Join(writing(size)(w), errDisk)
			})
			require.ErrorIs(t, err, errDisk)
			require.ErrorContains(t, err, `"shard"`)
		}
		require.Equal(t, []string{"shard"}, keys(t, d), provider)
		require.EqualValues(t, 6, must(d.Attributes(t.Context(), "shard")).Size, provider)
	}

	s, d := startStore(t)
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		completes := r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
		if completes {
			http.Error(w, "", http.StatusForbidden)
		}
		return completes
	}
	require.Error(t, d.create("shard", writing(20<<20)))
	require.Empty(t, keys(t, d))
}
