package objectstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestReplaced checks that a read fails once the object has been replaced, also by
// one of the same size, and that each provider with conditions is sent one.
func TestReplaced(t *testing.T) {
	s, amazon := startStore(t)
	writable := folders(t)
	writable["s3"] = amazon
	for name, d := range writable {
		create(t, d, "o", []byte("0123456789"))
		o := must(d.open("o"))
		b := make([]byte, 2)
		s.requests()
		must(o.ReadAt(b, 3))
		require.Equal(t, "34", string(b))
		if name == "s3" {
			require.Equal(t, o.ETag, s.requests()[0].Header.Get("If-Match"))
		}
		for o.ModTime.Equal(must(d.open("o")).ModTime) && o.ETag == must(d.open("o")).ETag {
			time.Sleep(time.Millisecond) // of a file there is only the time, in ticks of its system
			create(t, d, "o", []byte("abcdefghij"))
		}
		_, err := o.ReadAt(b, 3)
		require.ErrorIs(t, err, errChanged, name)
		require.ErrorContains(t, err, `"o"`, name)
	}

	for name, d := range readings(t, "0123456789") {
		o := must(d.open("o"))
		b := make([]byte, 2)
		must(o.ReadAt(b, 3))
		require.Equal(t, "34", string(b))
		served.generation++
		require.ErrorIs(t, errorOf(o.ReadAt(b, 3)), errChanged, name)
	}
}

// TestReadAt checks that ReadAt is that of an io.ReaderAt at every provider.
func TestReadAt(t *testing.T) {
	all := folders(t)
	for _, d := range all {
		create(t, d, "o", []byte("0123456789"))
	}
	maps.Copy(all, readings(t, "0123456789"))
	for name, d := range all {
		o := must(d.open("o"))
		require.EqualValues(t, 10, o.Size)
		for off := range o.Size + 2 {
			for n := 1; n < 12; n++ {
				got, want := make([]byte, n), make([]byte, n)
				read, err := o.ReadAt(got, off)
				wantRead, wantErr := strings.NewReader("0123456789").ReadAt(want, off)
				require.Equal(t, wantRead, read, "%s: %d at %d", name, n, off)
				require.Equal(t, want, got)
				require.Equal(t, wantErr, err)
			}
		}
		require.Error(t, errorOf(o.ReadAt(make([]byte, 1), -1)))
		if name != "google" && name != "azure" { // which serve one object under all names
			require.ErrorContains(t, errorOf(d.open("other/")), `"other/"`)
		}
	}
}

// TestBadAnswers checks that a truncated body is resumed, and that an answer of
// another version or with another range is an error.
func TestBadAnswers(t *testing.T) {
	s, d := startStore(t)
	create(t, d, "o", []byte("0123456789"))
	o := must(d.open("o"))
	s.requests()
	b := make([]byte, 8)
	s.breakOff(3)
	n := must(o.ReadAt(b, 1))
	require.Equal(t, "12345678", string(b[:n]))
	require.Len(t, s.requests(), 3)
	near, far := make([]byte, 2), make([]byte, 4)
	require.NoError(t, o.ReadRanges(maps.All(map[int64][]byte{0: near})))
	require.NoError(t, o.fetch([]span{{0, near}, {4, far}})) // the bodies end in the gap, and in the second span
	require.Equal(t, "01 4567", string(near)+" "+string(far))
	s.breakOff(0)
	require.ErrorIs(t, errorOf(o.ReadAt(b, 1)), io.ErrUnexpectedEOF)

	s.fault = func(w http.ResponseWriter, r *http.Request) bool { // as servers do that ignore If-Match
		w.Header().Set("ETag", "another")
		w.Header().Set("Content-Range", "bytes 3-4/10")
		w.WriteHeader(http.StatusPartialContent)
		io.WriteString(w, "34")
		return true
	}
	require.ErrorIs(t, errorOf(o.ReadAt(b[:2], 3)), errChanged)

	for contentRange, status := range map[string]int{"": 200, "bytes 3-4/11": 206, "bytes 2-3/10": 206} {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", o.ETag)
			w.Header().Set("Content-Range", contentRange)
			w.WriteHeader(status)
			io.WriteString(w, "34")
			return true
		}
		require.ErrorContains(t, errorOf(o.ReadAt(b[:2], 3)), fmt.Sprintf("asked for bytes 3-4/10, got %q", contentRange))
	}
}

// TestReadRanges checks that one request reads ranges that are close together, and
// several read those that are far apart or large.
func TestReadRanges(t *testing.T) {
	s, d := startStore(t)
	data := make([]byte, 20<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	create(t, d, "o", data)
	o := must(d.open("o"))
	s.requests()
	for _, c := range []struct {
		name             string
		off, n, gap, end int
		requests         int
	}{
		{"none", 0, 1, 0, 0, 0},
		{"one", 5, 100, 0, 105, 1},
		{"neighbours", 5, 100, 0, 1005, 1},
		{"columns", 64, 128, 896, 8 << 20, 1},
		{"columns, in parts", 64, 128, 896, 20 << 20, 3},
		{"gaps of 256 KiB", 0, 10, 256 << 10, 600_000, 1},
		{"larger gaps", 0, 10, 256<<10 + 1, 600_000, 3},
		{"large ranges", 1, 5 << 20, 10, 11 << 20, 2},
		{"to the end", 20<<20 - 30, 10, 0, 20 << 20, 1},
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
		require.Len(t, s.requests(), c.requests, c.name)
	}
	require.Error(t, o.ReadRanges(maps.All(map[int64][]byte{20<<20 - 1: make([]byte, 2)})))
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
		require.EqualValues(t, 6, must(d.open("shard")).Size, provider)
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
