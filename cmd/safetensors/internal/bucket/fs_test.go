package bucket

import (
	"context"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/remote"
	"github.com/stretchr/testify/require"
)

// TestRead: what package remote needs for its guarantees comes from each store: the range and the
// tag of an answer, and errors that are not tried again.
func TestRead(t *testing.T) {
	start := strings.Repeat("x", 100_008) // is said to be compressed: what is stored is what is read
	for _, scheme := range []string{"s3", "gs", "azblob"} {
		t.Run(scheme, func(t *testing.T) {
			b, requests := answering(t, scheme, says(206, start, "Content-Range", "bytes 0-100007/200000", "ETag", `"a"`, "Content-Encoding", "gzip"),
				breaksOff(150_000, 150_010, 4, 200_000), says(206, "456789", "Content-Range", "bytes 150004-150009/200000", "ETag", `"a"`),
				says(206, "0123456789", "Content-Range", "bytes 150000-150009/200000", "ETag", `"b"`), says(403, ""),
				says(206, "x", "Content-Range", "bytes 0-0/1"), says(416, ""), says(200, "", "Content-Length", "0", "ETag", `"c"`), says(416, ""), says(200, "", "Content-Length", "1"))
			f := must(b.Open("x"))
			require.EqualValues(t, 200_000, must(f.Stat()).Size())
			got := make([]byte, 10)
			must(f.(io.ReaderAt).ReadAt(got, 150_000))
			require.Equal(t, "xxxx456789", string(got))
			sent := requests()[2].Header
			require.Equal(t, "bytes=150004-150009", sent.Get("Range")+sent.Get("X-Ms-Range"))
			read := func() error { return f.(object).ReadRanges(maps.All(map[int64][]byte{150_000: got})) }
			require.ErrorIs(t, read(), remote.ErrChanged)
			require.EqualError(t, read(), scheme+"://models/x: permission denied: 403 Forbidden")
			require.Len(t, requests(), 5)

			ended, end := context.WithCancel(t.Context())
			end() // as after a long pause
			resp, err := b.RoundTrip(must(http.NewRequestWithContext(ended, http.MethodGet, "http://bucket/x", nil)))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Empty(t, must(io.ReadAll(must(b.Open("x")))))
			require.EqualError(t, errorOf(b.Open("x")), scheme+"://models/x: 416 Requested Range Not Satisfiable")
		})
	}
}

// TestFileOfAStore: the error of a file that a client reads is not one of the object.
func TestFileOfAStore(t *testing.T) {
	login := &storeError{0, "nobody is logged in", &fs.PathError{Op: "open", Path: "token", Err: fs.ErrPermission}}
	o := object{b: &Bucket{ctx: t.Context(), url: "s3://models"}, key: "x"}
	require.EqualError(t, o.fail(&fs.PathError{Op: "GET", Path: "http://bucket/x", Err: login}), "s3://models/x: nobody is logged in")
}
