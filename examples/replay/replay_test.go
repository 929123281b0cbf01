package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/examples/replay"
	"github.com/gosafetensors/safetensors/remote"
	"github.com/stretchr/testify/require"
)

const (
	shards = 50
	index  = "/model.safetensors.index.json"
)

// serve serves a new checkpoint of 50 shards and counts the requests.
func serve() (dir, url string, requests *atomic.Int64, stop func()) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	if err := write(dir, 1); err != nil {
		panic(err)
	}
	requests = new(atomic.Int64)
	files := http.FileServer(http.Dir(dir))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		files.ServeHTTP(w, r)
	}))
	return dir, s.URL, requests, func() { s.Close(); os.RemoveAll(dir) }
}

// write writes a checkpoint of 50 shards of 200 kB, all of one value.
func write(dir string, value float32) error {
	tensors := make(map[string]safetensors.Tensor)
	for i := range shards {
		values := make([]float32, 50_000)
		for j := range values {
			values[j] = value
		}
		var err error
		if tensors[fmt.Sprintf("layers.%02d.weight", i)], err = safetensors.NewTensor(safetensors.F32, []int{500, 100}, values); err != nil {
			return err
		}
	}
	return safetensors.WriteShards(dir, tensors, nil, 200_000)
}

func Example() {
	ctx := context.Background()
	_, url, requests, stop := serve()
	defer stop()

	// The writer of the checkpoint opens it once and puts the answers next to it.
	kept := &replay.Transport{Keep: true}
	f, err := (&remote.Client{HTTP: &http.Client{Transport: kept}}).Open(ctx, url+index)
	if err != nil {
		fmt.Println(err)
		return
	}
	f.Close()
	var object bytes.Buffer
	if err := kept.Encode(&object); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("opened with", requests.Swap(0), "requests")

	// Every rank gets the object, and opens the checkpoint without a request.
	answers := new(replay.Transport)
	if err := answers.Decode(&object); err != nil {
		fmt.Println(err)
		return
	}
	f, err = (&remote.Client{HTTP: &http.Client{Transport: answers}}).Open(ctx, url+index)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	fmt.Println("opened with", requests.Swap(0), "requests")
	t, err := f.Tensor("layers.07.weight")
	if err != nil {
		fmt.Println(err)
		return
	}
	part, err := t.Part(0, 3, 5)
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := safetensors.Append[float32](nil, part)
	fmt.Println("read", len(values), "values with", requests.Swap(0), "request", err)
	// Output:
	// opened with 51 requests
	// opened with 0 requests
	// read 10000 values with 1 request <nil>
}

// TestReplaced checks that answers of a checkpoint that has been replaced give an
// error, not a mixture.
func TestReplaced(t *testing.T) {
	dir, url, _, stop := serve()
	defer stop()
	kept := &replay.Transport{Keep: true}
	c := &remote.Client{HTTP: &http.Client{Transport: kept}}
	_, err := c.Open(t.Context(), url+index)
	require.NoError(t, err)
	kept.Keep = false
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	require.NoError(t, err)
	require.Len(t, files, shards)
	for _, file := range files { // other bytes under the same name
		require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)))
	}
	f, err := c.Open(t.Context(), url+index)
	require.NoError(t, err)
	for _, x := range f.Tensors() {
		_, err := safetensors.Append[float32](nil, x)
		require.ErrorIs(t, err, remote.ErrChanged)
	}
}

// TestMiss checks that what has no answer is asked for, and what failed is not kept.
func TestMiss(t *testing.T) {
	_, url, requests, stop := serve()
	defer stop()
	kept := &replay.Transport{Keep: true}
	c := &remote.Client{HTTP: &http.Client{Transport: kept}}
	for range 2 {
		_, err := c.Open(t.Context(), url+"/none.safetensors")
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	require.EqualValues(t, 2, requests.Swap(0))
	var object bytes.Buffer
	require.NoError(t, kept.Encode(&object))
	answers := new(replay.Transport)
	require.NoError(t, answers.Decode(&object))
	_, err := (&remote.Client{HTTP: &http.Client{Transport: answers}}).Open(t.Context(), url+index)
	require.NoError(t, err)
	require.EqualValues(t, 1+shards, requests.Load())
	require.Error(t, answers.Decode(bytes.NewReader([]byte("<html>"))))
}

// TestEncoded: a compressed answer stays one, so that remote refuses it as such. It is no
// broken file.
func TestEncoded(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write([]byte("\x1f\x8b"))
	}))
	defer s.Close()
	c := &remote.Client{HTTP: &http.Client{Transport: &replay.Transport{Keep: true}}}
	_, err := c.Open(t.Context(), s.URL+"/model.safetensors")
	require.ErrorContains(t, err, `Content-Encoding "gzip"`)
}

// headed is a file whose first bytes are known.
type headed struct {
	head []byte
	*os.File
	reads *atomic.Int64
}

func (h headed) ReadAt(p []byte, off int64) (int, error) {
	if end := off + int64(len(p)); end <= int64(len(h.head)) {
		return copy(p, h.head[off:end]), nil
	}
	h.reads.Add(1)
	return h.File.ReadAt(p, off)
}

// TestNewFile checks that the same can be done for any io.ReaderAt: if the first 64 KiB
// of each shard are known, opening reads nothing else.
func TestNewFile(t *testing.T) {
	dir, _, _, stop := serve()
	defer stop()
	index, err := os.Open(dir + index)
	require.NoError(t, err)
	defer index.Close()
	var reads atomic.Int64
	f, err := safetensors.OpenShards(index, func(shard string) (*safetensors.File, error) {
		file, err := os.Open(filepath.Join(dir, shard))
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { file.Close() })
		head := make([]byte, 64<<10)
		if _, err := file.ReadAt(head, 0); err != nil {
			return nil, err
		}
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		return safetensors.NewFile(headed{head, file, &reads}, info.Size())
	})
	require.NoError(t, err)
	require.Zero(t, reads.Load())
	for _, x := range f.Tensors() {
		values, err := safetensors.Append[float32](nil, x)
		require.NoError(t, err)
		require.Equal(t, float32(1), values[len(values)-1])
	}
	require.EqualValues(t, shards, reads.Load())
}
