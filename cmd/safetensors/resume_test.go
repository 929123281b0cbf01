//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A cutHub is a hub with a repository of one large file, which it sends up to some byte.
type cutHub struct {
	content atomic.Pointer[[]byte]
	end     atomic.Int64  // after which nothing comes; 0 for all
	sent    atomic.Int64  // bytes
	hold    chan struct{} // if not nil: a send says that a connection is held from now on
}

func (h *cutHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content := *h.content.Load()
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	if !strings.Contains(r.URL.Path, "/resolve/") {
		json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": []any{map[string]any{
			"rfilename": "model.safetensors", "size": len(content), "blobId": gitSum("the pointer"), "lfs": map[string]any{"sha256": sum, "size": len(content)},
		}}})
		return
	}
	h.send(w, r, func(w http.ResponseWriter) {
		w.Header().Set("ETag", `"`+sum+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}

// send lets serve send a file, up to the byte after which nothing comes.
func (h *cutHub) send(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter)) {
	if end := h.end.Load(); end > 0 && h.sent.Load() >= end { // no other try helps
		http.Error(w, "no more", http.StatusForbidden)
		return
	}
	serve(&cutWriter{w, h, r})
}

// A cutWriter cuts the connection, or holds it, when the hub has sent all that it sends.
type cutWriter struct {
	http.ResponseWriter
	h *cutHub
	r *http.Request
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if end := c.h.end.Load(); end > 0 && c.h.sent.Load() >= end {
		c.ResponseWriter.(http.Flusher).Flush()
		if c.h.hold != nil {
			select {
			case c.h.hold <- struct{}{}:
			case <-c.r.Context().Done():
			}
			<-c.r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	n, err := c.ResponseWriter.Write(p)
	c.h.sent.Add(int64(n))
	return n, err
}

// largeModel returns a model of 40 MiB.
func largeModel(t *testing.T, seed byte) []byte {
	t.Helper()
	data := make([]byte, 40<<20)
	for i := range data {
		data[i] = byte(i*7) ^ byte(i>>9) ^ seed
	}
	x := must(safetensors.NewTensor(safetensors.U8, []int{len(data)}, data))
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{"x": x}, map[string]string{"format": "pt"}))
	return b.Bytes()
}

// startCutHub serves the content as the hub of the command. With hold, connections are held where they would be cut.
func startCutHub(t *testing.T, content []byte, hold bool) *cutHub {
	startHub(t, ".") // for the environment
	h := &cutHub{}
	if hold {
		h.hold = make(chan struct{})
	}
	h.content.Store(&content)
	t.Setenv("HF_ENDPOINT", serve(t, h.ServeHTTP))
	return h
}

// kill copies SRC to dst, and kills the copy when a connection is held and the partial file has a note.
func (h *cutHub) kill(t *testing.T, src string) {
	t.Helper()
	r := start(t, "cp", src, "dst")
	<-h.hold
	require.Eventually(t, func() bool { // the note is created and then written
		notes := must(filepath.Glob("dst/.safetensors-part-*.note.tmp"))
		return len(notes) > 0 && must(os.Stat(notes[0])).Size() > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, r.Process.Kill())
	r.Wait()
}

const mib = 1 << 20

// TestCopyGoesOn: a copy from a hub whose connection breaks, or that is killed, goes on within the file. It begins again
// if the file is another one meanwhile.
func TestCopyGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		killed, changed bool
		least, most     int64 // MiB that the second copy reads
	}{
		"cut":                 {false, false, 14, 17},
		"killed":              {true, false, 14, 25}, // it was noted after 16 MiB
		"cut, and changed":    {false, true, 40, 42},
		"killed, and changed": {true, true, 40, 42},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			content := largeModel(t, 0)
			h := startCutHub(t, content, c.killed)
			h.end.Store(25 * mib)
			if c.killed {
				h.kill(t, "hf://owner/name")
			} else {
				require.NotZero(t, runs(t, "cp", "hf://owner/name", "dst").code)
			}
			require.NoFileExists(t, "dst/model.safetensors")
			require.NotZero(t, runs(t, "ls", "dst").code, "a partial file is no model")
			if c.changed {
				content = largeModel(t, 1)
				h.content.Store(&content)
			}
			h.end.Store(0)
			h.sent.Store(0)
			succeeds(t, "cp", "hf://owner/name", "dst")
			require.True(t, bytes.Equal(must(os.ReadFile("dst/model.safetensors")), content))
			require.Equal(t, []string{"model.safetensors"}, list(t, "dst"))
			require.GreaterOrEqual(t, h.sent.Load(), c.least*mib)
			require.LessOrEqual(t, h.sent.Load(), c.most*mib)
		})
	}
}

// TestCopyOfBucketGoesOn: a copy of a model of two shards from a bucket, which is killed within the larger shard, goes on
// there. If that shard has another ETag meanwhile, and the same size, the copy needs --force and begins it again.
func TestCopyOfBucketGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		changed     bool
		least, most int64 // MiB that the second copy reads
	}{"killed": {false, 14, 25}, "killed, and changed": {true, 40, 42}} {
		t.Run(name, func(t *testing.T) {
			h, fake := &cutHub{hold: make(chan struct{})}, fakeS3()
			s := startStore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, ".safetensors") {
					fake.ServeHTTP(w, r)
					return
				}
				h.send(w, r, func(w http.ResponseWriter) { fake.ServeHTTP(w, r) })
			}))
			put := func(name string, content []byte) {
				must(s.client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("models"), Key: aws.String("llama/" + name), Body: bytes.NewReader(content)}))
			}
			const small, large = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
			want := map[string][]byte{"model.safetensors.index.json": []byte(`{"metadata":{},"weight_map":{"a":"` + small + `","x":"` + large + `"}}`)}
			require.NoError(t, safetensors.WriteFile("small.safetensors", map[string]safetensors.Tensor{"a": counting(t, 8)}, nil))
			want[small], want[large] = must(os.ReadFile("small.safetensors")), largeModel(t, 0)
			for name, content := range want {
				put(name, content)
			}
			h.end.Store(25 * mib)
			h.kill(t, "s3://models/llama")
			require.NoFileExists(t, "dst/"+large)
			if c.changed {
				want[large] = largeModel(t, 1)
				put(large, want[large])
			}
			h.end.Store(0)
			h.sent.Store(0)
			again := []string{"cp", "s3://models/llama", "dst"}
			if c.changed { // the small shard in dst is of another model now
				require.Contains(t, fails(t, 1, again...), "dst/"+small+" exists; --force replaces it")
				again = append(again, "--force")
			}
			succeeds(t, again...)
			for name, content := range want {
				require.True(t, bytes.Equal(must(os.ReadFile(filepath.Join("dst", name))), content), name)
			}
			require.Len(t, list(t, "dst"), len(want))
			require.GreaterOrEqual(t, h.sent.Load(), c.least*mib)
			require.LessOrEqual(t, h.sent.Load(), c.most*mib)
		})
	}
}
