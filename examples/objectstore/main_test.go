package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/stretchr/testify/require"
)

const location = "s3://models/llama/step-2000"

// A store is an S3 server on the loopback interface, with an empty bucket named
// models. It checks signatures, and counts what goes through.
type store struct {
	http.Handler
	fault func(http.ResponseWriter, *http.Request) bool // reports whether it has answered

	mu  sync.Mutex
	log []*exchange // in the order in which they began
}

// An exchange is a request, its body aside, and how much was sent back.
type exchange struct {
	method, key, query, byteRange string
	sent                          int64
}

// startStore starts a store and makes it that of the environment.
func startStore(t *testing.T) (*store, folder) {
	s := &store{Handler: gofakes3.New(s3mem.New(),
		gofakes3.WithV4Auth(map[string]string{"key": "secret"}),
		gofakes3.WithLogger(gofakes3.DiscardLog())).Server()}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3":         server.URL,
		"AWS_ACCESS_KEY_ID":           "key",
		"AWS_SECRET_ACCESS_KEY":       "secret",
		"AWS_SESSION_TOKEN":           "",
		"AWS_REGION":                  "us-east-1",
		"AWS_PROFILE":                 "",
		"AWS_CONFIG_FILE":             os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_MAX_ATTEMPTS":            "1",
	} {
		t.Setenv(name, value)
	}
	d, err := openFolder(t.Context(), location)
	require.NoError(t, err)
	_, err = d.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &d.bucket})
	require.NoError(t, err)
	s.exchanges()
	return s, d
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &countingWriter{w, s, &exchange{
		method:    r.Method,
		key:       strings.TrimPrefix(r.URL.Path, "/models/llama/step-2000/"),
		query:     r.URL.RawQuery,
		byteRange: r.Header.Get("Range"),
	}}
	s.mu.Lock()
	s.log = append(s.log, c.exchange)
	s.mu.Unlock()
	if s.fault == nil || !s.fault(c, r) {
		s.Handler.ServeHTTP(c, r)
	}
}

// exchanges returns what has been counted, and begins anew.
func (s *store) exchanges() []*exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// A countingWriter counts before it writes, so that what a client has received
// is counted.
type countingWriter struct {
	http.ResponseWriter
	store    *store
	exchange *exchange
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.store.mu.Lock()
	w.exchange.sent += int64(len(b))
	w.store.mu.Unlock()
	return w.ResponseWriter.Write(b)
}

// objects returns the keys in the bucket, and requires that no upload is left
// over.
func objects(t *testing.T, d folder) []string {
	listed, err := d.client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &d.bucket})
	require.NoError(t, err)
	var keys []string
	for _, o := range listed.Contents {
		keys = append(keys, strings.TrimPrefix(*o.Key, d.prefix+"/"))
	}
	uploads, err := d.client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &d.bucket})
	if err != nil { // the server has never seen one
		require.ErrorContains(t, err, "NoSuchUpload")
		return keys
	}
	require.Empty(t, uploads.Uploads)
	return keys
}

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

	require.Equal(t, `"layers.0.weight"  F32  [512 512]
"layers.1.weight"  F32  [512 512]
"step"             I64  []
"layers.2.weight"  F32  [512 512]
`, runs(t, "list", location))
	s.exchanges()

	// One rank's rows: the index, of each shard its size and its header, and of
	// one shard the rows.
	file := filepath.Join(t.TempDir(), "part.safetensors")
	require.Equal(t, file+": \"layers.1.weight\" F32 [64 512]\n",
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
		{"-rank 6 -of 7 -dim 0", "layers.2.weight", []safetensors.Range{safetensors.Span(6*512/7, 512)}},
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

func headerSize(t *testing.T, d folder, name string) int64 {
	o, err := d.open(name)
	require.NoError(t, err)
	h, err := safetensors.ReadHeader(io.NewSectionReader(o, 0, o.size))
	require.NoError(t, err)
	return h.Size
}

func bucketSize(t *testing.T, d folder) (size int64) {
	listed, err := d.client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &d.bucket})
	require.NoError(t, err)
	for _, o := range listed.Contents {
		size += *o.Size
	}
	return size
}

// What is put and got back is the same, however many parts the uploads had.
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

// An upload that fails, at whichever end, leaves neither an object nor parts of
// one behind.
func TestFailedUpload(t *testing.T) {
	s, d := startStore(t)
	big := filepath.Join(t.TempDir(), "model.safetensors")
	tensor, err := safetensors.NewTensor(safetensors.U8, []int{20 << 20}, make([]byte, 20<<20))
	require.NoError(t, err)
	require.NoError(t, safetensors.WriteFile(big, map[string]safetensors.Tensor{"t": tensor}, nil))

	for _, size := range []int64{1 << 10, 18 << 20} { // less than a part, and several
		err := d.create("shard", func(w io.Writer) error {
			if _, err := io.CopyN(w, zeros{}, size); err != nil {
				return err
			}
			return errDisk
		})
		require.ErrorIs(t, err, errDisk)
		require.ErrorContains(t, err, "s3://models/llama/step-2000/shard")
		require.Empty(t, objects(t, d))
	}

	for _, step := range []string{"uploads", "partNumber=1", "partNumber=3", "uploadId"} {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete || !strings.Contains(r.URL.RawQuery, step) || r.Method == http.MethodGet {
				return false
			}
			if step == "uploadId" && r.Method == http.MethodPut {
				return false // it is the completion that fails
			}
			io.Copy(io.Discard, r.Body)
			http.Error(w, "", http.StatusForbidden)
			return true
		}
		require.ErrorContains(t, run(t.Context(), []string{"put", location, big}, io.Discard), "403", step)
		require.Empty(t, objects(t, d))
	}

	// Nor does one that is cancelled.
	ctx, cancel := context.WithCancel(t.Context())
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.RawQuery, "partNumber=2") {
			cancel()
		}
		return false
	}
	require.ErrorIs(t, run(ctx, []string{"put", location, big}, io.Discard), context.Canceled)
	require.Empty(t, objects(t, d))

	s.fault = nil
	runs(t, "put", location, big) // which can be repeated
	require.Len(t, objects(t, d), 2)
}

var errDisk = errors.New("the disk fails")

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Ranges that are near one another come in one request; what lies far apart, or
// is large, does not.
func TestReadRanges(t *testing.T) {
	s, d := startStore(t)
	data := make([]byte, 4<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	require.NoError(t, d.create("o", func(w io.Writer) error { _, err := w.Write(data); return err }))
	o, err := d.open("o")
	require.NoError(t, err)
	s.exchanges()
	for _, c := range []struct {
		name             string
		off, n, gap, end int
		requests         int
	}{
		{"none", 0, 1, 0, 0, 0},
		{"one", 5, 100, 0, 105, 1},
		{"neighbours", 5, 100, 0, 1005, 1},
		{"columns", 64, 128, 896, 1 << 20, 1},
		{"columns, in parts", 64, 128, 896, 4 << 20, 4},
		{"gaps of 256 KiB", 0, 10, 256 << 10, 600_000, 1},
		{"larger gaps", 0, 10, 256<<10 + 1, 600_000, 3},
		{"large ranges", 1, 1500 << 10, 10, 3 << 20, 2},
		{"to the end", 4<<20 - 30, 10, 0, 4 << 20, 1},
	} {
		var got, want [][]byte
		err := o.ReadRanges(func(yield func(int64, []byte) bool) {
			for off := c.off; off+c.n <= c.end; off += c.n + c.gap {
				got, want = append(got, make([]byte, c.n)), append(want, data[off:][:c.n])
				if !yield(int64(off), got[len(got)-1]) {
					return
				}
			}
		})
		require.NoError(t, err, c.name)
		require.True(t, slices.EqualFunc(want, got, bytes.Equal), c.name)
		require.Len(t, s.exchanges(), c.requests, c.name)
	}
	err = o.ReadRanges(maps.All(map[int64][]byte{4<<20 - 1: make([]byte, 2)}))
	require.ErrorIs(t, err, io.EOF)
}

// An object that is replaced while it is open is an error, and so is an answer
// that is not what was asked for.
func TestObject(t *testing.T) {
	s, d := startStore(t)
	create := func(text string) {
		require.NoError(t, d.create("o", func(w io.Writer) error { _, err := io.WriteString(w, text); return err }))
	}
	create("0123456789")
	o, err := d.open("o")
	require.NoError(t, err)
	require.EqualValues(t, 10, o.size)
	for off := range o.size + 2 {
		for n := 1; n < 12; n++ {
			b := make([]byte, n)
			want := make([]byte, n)
			read, err := o.ReadAt(b, off)
			wantRead, wantErr := strings.NewReader("0123456789").ReadAt(want, off)
			require.Equal(t, wantRead, read, "%d at %d", n, off)
			require.Equal(t, want, b)
			require.Equal(t, wantErr, err, "%d at %d", n, off)
		}
	}
	_, err = o.ReadAt(make([]byte, 1), -1)
	require.Error(t, err)

	answer := func(status int, contentRange, body string) {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", o.etag)
			w.Header().Set("Content-Range", contentRange)
			w.Header().Set("Content-Length", "2")
			w.WriteHeader(status)
			io.WriteString(w, body)
			return true
		}
	}
	answer(http.StatusOK, "", "01")
	_, err = o.ReadAt(make([]byte, 2), 3)
	require.ErrorContains(t, err, "asked for bytes 3-4/10")
	answer(http.StatusPartialContent, "bytes 3-4/11", "34")
	_, err = o.ReadAt(make([]byte, 2), 3)
	require.ErrorContains(t, err, "asked for bytes 3-4/10")

	// Bodies that break off after so many bytes.
	breakOff := func(after int) {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			whole := httptest.NewRecorder()
			s.Handler.ServeHTTP(whole, r)
			maps.Copy(w.Header(), whole.Header())
			w.WriteHeader(whole.Code)
			w.Write(whole.Body.Bytes()[:min(after, whole.Body.Len())])
			return true
		}
	}
	s.exchanges()
	breakOff(3)
	b := make([]byte, 8)
	n, err := o.ReadAt(b, 1)
	require.NoError(t, err)
	require.Equal(t, "12345678", string(b[:n]))
	require.Len(t, s.exchanges(), 3)
	breakOff(0)
	n, err = o.ReadAt(b, 1)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Zero(t, n)

	s.fault = nil
	create("abcdefghij")
	_, err = o.ReadAt(make([]byte, 2), 3)
	require.ErrorContains(t, err, "has changed since it was opened")
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
	fails("is there already", "put", location, dir)

	fails("usage:")
	fails("usage:", "list", "llama")
	fails("usage:", "list", location, "more")
	fails("usage:", "remove", location)
	fails("layers.9.weight", "slice", location, "layers.9.weight", "file")
	fails("no rank 8 of 8", "slice", "-rank", "8", "-of", "8", location, "layers.1.weight", "file")
	fails("no dimension 2", "slice", "-rank", "3", "-of", "8", "-dim", "2", location, "layers.1.weight", "file")

	const missing = "model-00002-of-00002.safetensors"
	_, err := d.client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &d.bucket, Key: d.key(missing)})
	require.NoError(t, err)
	err = run(t.Context(), []string{"list", location}, io.Discard)
	require.ErrorContains(t, err, missing)
	require.NotContains(t, err.Error(), "00001-of")
}
