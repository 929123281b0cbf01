package remote

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

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// openFS opens the file called name next to a URL.
func openFS(t *testing.T, c *Client, url, name string) *file {
	f := must(must(c.FS(t.Context(), url)).Open(name))
	t.Cleanup(func() { f.Close() })
	return f.(*file)
}

// TestFS reads a file of FS in every way.
func TestFS(t *testing.T) {
	s := newServer(t)
	s.modified = time.Unix(1e9, 0).UTC()
	for _, size := range []int{0, 1, firstRead, firstRead + 1, 1 << 20} {
		data := pattern(size)
		s.add("/dir/a b:c.bin", data)
		c, _ := newClientOf(t, s)
		for _, base := range []string{"/dir/", "/dir/model.safetensors", "/dir/a%20b:c.bin?signature=x"} {
			f := openFS(t, c, s.URL+base, "a b:c.bin")
			info := must(f.Stat())
			require.Equal(t, int64(size), info.Size())
			require.Equal(t, s.modified, info.ModTime())
			require.Equal(t, s.etag, info.Sys().(http.Header).Get("ETag"))
			s.reset(nil)
			must(f.ReadAt(make([]byte, min(size, firstRead)), 0))
			require.Empty(t, s.ranges(), "the first bytes are here")
			for _, off := range []int{0, firstRead - 1, firstRead, size - 10, size - 1, size, size + 1} {
				for _, length := range []int{0, 1, 10, 1000} {
					got := make([]byte, length)
					n, err := f.ReadAt(got, int64(off))
					if off < 0 {
						require.EqualError(t, err, "negative offset")
						require.Zero(t, n)
						continue
					}
					require.Equal(t, data[min(size, off):min(size, off+length)], got[:n])
					if n < length {
						require.Equal(t, io.EOF, err)
					} else {
						require.NoError(t, err)
					}
				}
			}
			s.reset(nil)
			require.True(t, bytes.Equal(data, must(io.ReadAll(f))))
			require.LessOrEqual(t, len(s.ranges()), 1)

			f = openFS(t, c, s.URL+base, "a b:c.bin")
			s.reset(nil)
			require.True(t, bytes.Equal(data, must(io.ReadAll(f))))
			if rest := fmt.Sprintf("bytes=%d-%d", firstRead, size-1); size > firstRead {
				require.Equal(t, []string{rest}, s.ranges())
			} else {
				require.Empty(t, s.ranges())
			}
		}
	}
	s.add("/dir/model.safetensors", craft(100, 3_000_000))
	f := must(safetensors.OpenFS(must(new(Client).FS(t.Context(), s.URL+"/dir/")), "model.safetensors"))
	defer f.Close()
	s.reset(nil)
	require.Equal(t, pattern(3_000_000), bytesOf(must(f.Tensor("t"))))
	require.Len(t, s.ranges(), 1)
}

// TestFSReads: if an answer breaks off, Read continues with bytes of the same file, or fails. A
// server without range requests suffices for Read, unless its answer breaks off.
func TestFSReads(t *testing.T) {
	const long = 1 << 20
	data := pattern(long)
	broken := func(n, bytes int) fault { return first(n, sendPart(abort, data, bytes)) }
	// whole answers with n bytes of the file, and says how long it is, unless that is -1.
	whole := func(n, length int, etag string, end http.HandlerFunc) fault {
		header := []string{"ETag", etag}
		if length >= 0 {
			header = append(header, "Content-Length", fmt.Sprint(length))
		}
		return always(reply(end, data[:n], 200, header...))
	}
	sized, chunked := whole(long, long, "", done), whole(long, -1, "", done)
	for _, c := range []struct {
		rule       string
		size       int64
		open, read fault
		n          int   // number of bytes that Read returns in all
		at         []int // offsets at which its requests begin, after the bytes that Open has read
		pauses     int
		is         error
		text       string
	}{
		{"no fault", long, nil, nil, long, []int{0}, 0, nil, ""},
		{"broken twice", long, nil, broken(2, 100_000), long, []int{0, 100_000, 200_000}, 0, nil, ""},
		{"broken, then after a byte, for ever", long, nil, broken(1, 5000).then(broken(1000, 1)), firstRead + 5007, []int{0, 5000, 5001, 5002, 5003, 5004, 5005, 5006}, 7, io.ErrUnexpectedEOF, "after 105015 bytes (tried 8 times)"},
		{"broken, then changed", long, nil, broken(1, 1000).then(always(statusOf(412))), firstRead + 1000, []int{0, 1000}, 1, ErrChanged, ""},
		{"broken before the answer", long, nil, first(2, abort), long, []int{0, 0, 0}, 1, nil, ""},
		{"forbidden", long, nil, always(statusOf(403)), firstRead, []int{0}, 0, fs.ErrPermission, ""},

		{"whole", long, sized, sized, long, []int{0}, 0, nil, ""},
		{"whole, then of no stated length", long, sized, chunked, long, []int{0}, 0, nil, ""},
		{"whole, broken", long, sized, whole(1000, long, "", abort), 1000, []int{0}, 0, io.ErrUnexpectedEOF, "after 1000 bytes"},
		{"whole, stalled", long, sized, whole(1000, long, "", hang), 1000, []int{0}, 0, nil, "the connection stalled after 1000 bytes"},
		{"whole, another ETag", long, whole(long, long, `"1"`, done), whole(long, long, `"2"`, done), 0, []int{0}, 0, ErrChanged, ""},
		{"whole, shorter", long, whole(long, long, `"1"`, done), whole(1000, long-1, `"1"`, abort), 0, []int{0}, 0, ErrChanged, "it has 1048575 bytes, had 1048576"},
		{"whole, refused at first", long, sized, first(1, statusOf(503)).then(sized), long, []int{0, 0}, 1, nil, ""},

		{"unknown length", -1, chunked, chunked, long, []int{0}, 0, nil, ""},
		{"unknown length, broken", -1, chunked, whole(1000, -1, "", abort), 1000, []int{0}, 0, io.ErrUnexpectedEOF, "after 1000 bytes"},
		{"unknown length, stalled", -1, chunked, whole(1000, -1, "", hang), 1000, []int{0}, 0, nil, "the connection stalled"},
		{"unknown length, another ETag", -1, whole(long, -1, `"1"`, done), whole(long, -1, `"2"`, done), 0, []int{0}, 0, ErrChanged, ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := newServer(t)
			url := s.add("/x.bin", data[:max(c.size, 0)])
			client, clock := newClientOf(t, s)
			s.fault = c.open
			f := openFS(t, client, url, "x.bin")
			require.Equal(t, c.size, must(f.Stat()).Size())
			s.reset(c.read)
			if strings.Contains(c.text, "stalled") {
				f.pace.stall = time.Second
			}
			clock.pauses = nil
			got, err := io.ReadAll(io.LimitReader(f, 2*long)) // a limit, because a Read that started again would never end
			require.True(t, bytes.Equal(data[:c.n], got))
			if c.is == nil && c.text == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.text)
			}
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			if err != nil && c.open != nil && c.n > 0 {
				require.Error(t, errorOf(io.ReadFull(f, make([]byte, 1))), "another answer would begin again")
			}
			require.Len(t, clock.pauses, c.pauses)
			var ranges []string
			for _, at := range c.at {
				ranges = append(ranges, fmt.Sprintf("bytes=%d-%d", firstRead+at, long-1))
			}
			if c.open == nil {
				require.Equal(t, ranges, s.ranges())
				return
			}
			require.Equal(t, make([]string, len(c.at)), s.ranges())
			n, err := f.ReadAt(make([]byte, 1), 0)
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.Zero(t, n)
			require.ErrorIs(t, f.ReadRanges(func(func(int64, []byte) bool) {}), errors.ErrUnsupported)
		})
	}
}

// TestFSRefusals: the errors of a file system name the URL without its secrets, and are those of
// package fs.
func TestFSRefusals(t *testing.T) {
	s := newServer(t)
	fsys := must(new(Client).FS(t.Context(), strings.Replace(s.URL, "//", "//user:secret@", 1)+"/dir/x?key=secret"))
	for name, want := range map[string]error{"x": fs.ErrNotExist, "../x": fs.ErrInvalid, ".": errors.ErrUnsupported} {
		err := errorOf(fsys.Open(name))
		require.ErrorIs(t, err, want, name)
		require.NotContains(t, err.Error(), "secret")
		require.ErrorAs(t, err, new(*fs.PathError))
	}
	require.ErrorContains(t, errorOf(fsys.Open("x")), s.URL+"/dir/x: ")
	require.ErrorIs(t, errorOf(fs.Stat(fsys, "x")), errors.ErrUnsupported)
	require.ErrorIs(t, errorOf(fs.ReadDir(fsys, ".")), errors.ErrUnsupported)
	require.ErrorContains(t, errorOf(new(Client).FS(t.Context(), "file:///x")), "safetensors: ")
}
