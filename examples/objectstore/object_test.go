package objectstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
)

// create makes an object of data.
func create(t *testing.T, d folder, name string, data []byte) {
	require.NoError(t, d.create(name, blob.WriterOptions{}, func(w io.Writer) error { return errorOf(w.Write(data)) }))
}

// writing returns a func that writes zeros.
func writing(size int64) func(io.Writer) error {
	return func(w io.Writer) error { return errorOf(io.CopyN(w, zeros{}, size)) }
}

// writeShard makes an object of one tensor that is larger than what opening it reads.
func writeShard(t *testing.T, fill byte) []byte {
	x := must(safetensors.NewTensor(safetensors.U8, []int{300, 1000}, bytes.Repeat([]byte{fill}, 300_000)))
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{"x": x}, nil))
	return b.Bytes()
}

// read reads one of a hundred parts of the tensor.
func read(f *safetensors.File) ([]byte, error) {
	return safetensors.Append[byte](nil, must(must(f.Tensor("x")).Part(0, 99, 100)))
}

// TestReplaced checks that every provider serves parts of an object, until it is replaced by
// another one, also of the same size.
func TestReplaced(t *testing.T) {
	for name, d := range folders(t) {
		create(t, d, "o.safetensors", writeShard(t, 7))
		f := must(d.open("o.safetensors"))
		require.Equal(t, bytes.Repeat([]byte{7}, 3000), must(read(f)), name)
		before := must(d.Attributes(t.Context(), "o.safetensors"))
		for after := *before; after.ModTime.Equal(before.ModTime) && after.ETag == before.ETag; after = *must(d.Attributes(t.Context(), "o.safetensors")) {
			time.Sleep(time.Millisecond) // of a file there is only the time, in ticks of its system
			create(t, d, "o.safetensors", writeShard(t, 8))
		}
		_, err := read(f)
		require.ErrorIs(t, err, remote.ErrChanged, name)
		require.ErrorContains(t, err, "o.safetensors", name)
		require.ErrorIs(t, errorOf(d.open("other.safetensors")), fs.ErrNotExist, name)
	}
	for name, d := range readings(t, writeShard(t, 7)) {
		f := must(d.open("o.safetensors"))
		require.Equal(t, bytes.Repeat([]byte{7}, 3000), must(read(f)), name)
		served.generation++
		require.ErrorIs(t, errorOf(read(f)), remote.ErrChanged, name)
	}
}

// TestBadAnswers checks that a truncated body is resumed, and that an answer of
// another version or with another range is an error.
func TestBadAnswers(t *testing.T) {
	s, d := startStore(t)
	data := writeShard(t, 7)
	create(t, d, "o.safetensors", data)
	f := must(d.open("o.safetensors"))
	s.requests()
	s.breakOff(2000)
	require.Equal(t, bytes.Repeat([]byte{7}, 3000), must(read(f)))
	require.Len(t, s.requests(), 2)

	size := len(data)
	whole := fmt.Sprintf("bytes %d-%d/%d", size-3000, size-1, size)
	etag := must(d.Attributes(t.Context(), "o.safetensors")).ETag
	for _, c := range []struct {
		status             int
		etag, contentRange string
		want               error
		text               string
	}{
		{206, "another", whole, remote.ErrChanged, "another"},
		{206, etag, fmt.Sprintf("bytes %d-%d/%d", size-3000, size-1, size+1), remote.ErrChanged, ""},
		{206, etag, fmt.Sprintf("bytes 0-2999/%d", size), nil, "answered with Content-Range"},
		{200, etag, "", errors.ErrUnsupported, "range"},
	} {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", c.etag)
			w.Header().Set("Content-Range", c.contentRange)
			w.WriteHeader(c.status)
			w.Write(data[:3000])
			return true
		}
		_, err := read(f)
		require.ErrorContains(t, err, c.text)
		if c.want != nil {
			require.ErrorIs(t, err, c.want)
		}
	}
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		http.Error(w, "", http.StatusForbidden)
		return true
	}
	require.ErrorIs(t, errorOf(read(f)), fs.ErrPermission)
}

var errDisk = errors.New("the disk fails")

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestFailedUpload checks that an upload that fails leaves no object behind, nor
// touches the one that there was.
func TestFailedUpload(t *testing.T) {
	for provider, d := range folders(t) {
		create(t, d, "shard", []byte("before"))
		for _, size := range []int64{0, 1 << 10, 18 << 20} { // less than a part, and several
			for _, name := range []string{"shard", "other"} {
				err := d.create(name, blob.WriterOptions{}, func(w io.Writer) error {
					return errors.Join(writing(size)(w), errDisk)
				})
				require.ErrorIs(t, err, errDisk)
				require.ErrorContains(t, err, fmt.Sprintf("%q", name))
			}
		}
		require.Equal(t, []string{"shard"}, keys(t, d), provider)
		require.EqualValues(t, 6, must(d.Attributes(t.Context(), "shard")).Size, provider)
	}

	s, d := startStore(t)
	for _, step := range []string{"uploads", "partNumber=1", "partNumber=3", "uploadId"} {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			fails := strings.Contains(r.URL.RawQuery, step) && (step != "uploadId" || r.Method == http.MethodPost)
			if fails {
				io.Copy(io.Discard, r.Body)
				http.Error(w, "", http.StatusForbidden)
			}
			return fails
		}
		require.Error(t, d.create("shard", blob.WriterOptions{}, writing(20<<20)), step)
		s.fault = nil
		require.Empty(t, keys(t, d), step)
	}
}
