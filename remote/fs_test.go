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

// openFS opens name next to a URL.
func openFS(t *testing.T, c *Client, url, name string) *file {
	f := must(must(c.FS(t.Context(), url)).Open(name))
	t.Cleanup(func() { f.Close() })
	return f.(*file)
}

// TestFS reads a file of a file system in every way.
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
						require.Equal(t, errNegative, err)
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
		}
	}
	s.add("/dir/model.safetensors", craft(100, 3_000_000))
	f := must(safetensors.OpenFS(must(new(Client).FS(t.Context(), s.URL+"/dir/")), "model.safetensors"))
	defer f.Close()
	s.reset(nil)
	require.Equal(t, pattern(3_000_000), bytesOf(must(f.Tensor("t"))))
	require.Len(t, s.ranges(), 1)
}

// TestFSContinues: an answer that breaks off goes on with the same file, or not at all.
func TestFSContinues(t *testing.T) {
	s := newServer(t)
	data := pattern(1 << 20)
	url := s.add("/x.bin", data)
	c, clock := newClientOf(t, s)
	broken := func(n, bytes int) fault { return first(n, breakAfter(data, bytes)) }
	f := openFS(t, c, url, "x.bin")
	s.reset(broken(2, 100_000))
	require.True(t, bytes.Equal(data, must(io.ReadAll(f))))
	require.Equal(t, []string{"bytes=0-1048575", "bytes=100000-1048575", "bytes=200000-1048575"}, s.ranges())

	s.reset(nil)
	f = openFS(t, c, url, "x.bin")
	s.reset(broken(1000, 1))
	got, err := io.ReadAll(f)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, data[:maxTries], got, "each try brings a byte")
	require.Len(t, s.ranges(), maxTries)
	require.NotEmpty(t, clock.pauses)

	s.reset(nil)
	f = openFS(t, c, url, "x.bin")
	s.reset(broken(1, 1000))
	buf := make([]byte, 1000)
	must(io.ReadFull(f, buf))
	s.mu.Lock()
	s.etag = `"v2"`
	s.mu.Unlock()
	require.ErrorIs(t, errorOf(io.ReadAll(f)), ErrChanged)
}

// TestFSWithoutRanges: a server without range requests is good enough for Read.
func TestFSWithoutRanges(t *testing.T) {
	data := pattern(1 << 20)
	for _, length := range []int64{int64(len(data)), -1} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			s := newServer(t)
			whole := func(n int, length int64, etag string) fault {
				return always(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("ETag", etag)
					if length > 0 {
						w.Header().Set("Content-Length", fmt.Sprint(length))
					}
					w.WriteHeader(http.StatusOK)
					w.(http.Flusher).Flush()
					w.Write(data[:n])
					if w.(http.Flusher).Flush(); n < len(data) {
						panic(http.ErrAbortHandler)
					}
				})
			}
			s.reset(whole(len(data), length, ""))
			c, _ := newClientOf(t, s)
			f := openFS(t, c, s.URL+"/x.bin", "x.bin")
			require.Equal(t, length, must(f.Stat()).Size())
			require.True(t, bytes.Equal(data, must(io.ReadAll(f))))
			require.ErrorIs(t, errorOf(f.ReadAt(make([]byte, 1), 0)), errors.ErrUnsupported)
			require.ErrorIs(t, f.ReadRanges(func(func(int64, []byte) bool) {}), errors.ErrUnsupported)

			f = openFS(t, c, s.URL+"/x.bin", "x.bin")
			s.reset(whole(1000, length, ""))
			got, err := io.ReadAll(f)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.True(t, bytes.Equal(data[:1000], got))
			require.Len(t, s.ranges(), 1)

			s.reset(whole(len(data), length, ""))
			f = openFS(t, c, s.URL+"/x.bin", "x.bin")
			s.reset(always(func(w http.ResponseWriter, r *http.Request) {
				w.Write(data[:1000])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}))
			f.pace.stall = 100 * time.Millisecond
			got, err = io.ReadAll(io.LimitReader(f, 2000))
			require.ErrorContains(t, err, "the connection stalled")
			require.True(t, bytes.Equal(data[:1000], got), "another answer would begin again")

			changes := []fault{whole(1000, length, `"2"`)}
			if length > 0 {
				changes = append(changes, whole(1000, length-1, `"1"`))
			}
			for _, changed := range changes {
				s.reset(whole(len(data), length, `"1"`))
				f = openFS(t, c, s.URL+"/x.bin", "x.bin")
				s.reset(changed)
				require.ErrorIs(t, errorOf(f.Read(make([]byte, 1))), ErrChanged)
			}
		})
	}
}

// TestFSOfRefusedRanges has a server that refuses ranges beyond the end and ignores those that
// do not begin at 0.
func TestFSOfRefusedRanges(t *testing.T) {
	s := newServer(t)
	data := pattern(1000)
	url := s.add("/x", data)
	s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			r.Header.Del("Range")
		}
		return first(1, statusOf(416))(n, w, r)
	}
	c, _ := newClientOf(t, s)
	require.Equal(t, data, must(io.ReadAll(openFS(t, c, url, "x"))))
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

	data := pattern(1 << 20)
	s.add("/dir/x", data)
	f := must(fsys.Open("x"))
	defer f.Close()
	s.reset(always(statusOf(http.StatusForbidden)))
	require.ErrorIs(t, errorOf(f.Read(make([]byte, 1))), fs.ErrPermission)
}
