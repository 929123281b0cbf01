package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestFailedUpload checks that an upload that fails, at either end, leaves neither
// an object nor parts of one behind.
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
				return false // only the completion fails
			}
			io.Copy(io.Discard, r.Body)
			http.Error(w, "", http.StatusForbidden)
			return true
		}
		require.ErrorContains(t, run(t.Context(), []string{"put", location, big}, io.Discard), "403", step)
		require.Empty(t, objects(t, d))
	}

	// A cancelled upload leaves nothing either.
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
	runs(t, "put", location, big) // can be repeated
	require.Len(t, objects(t, d), 2)
}

var errDisk = errors.New("the disk fails")

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestReadRanges checks that one request reads ranges that are close together, and
// several read those that are far apart or large.
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

// TestObject checks that ReadAt is that of an io.ReaderAt, and that a replaced
// object and an unexpected answer are errors.
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

	// Bodies truncated after some bytes.
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
