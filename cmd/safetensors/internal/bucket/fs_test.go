package bucket

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/remote"
	"github.com/stretchr/testify/require"
)

// TestRead: what package remote needs for its guarantees comes from each store: the range and the
// tag of an answer, and errors that are not tried again.
func TestRead(t *testing.T) {
	start := strings.Repeat("x", 100_008)
	for _, scheme := range []string{"s3", "gs", "azblob"} {
		t.Run(scheme, func(t *testing.T) {
			endpoint, requests := serve(t, says(206, start, "Content-Range", "bytes 0-100007/200000", "ETag", `"a"`),
				breaksOff(150_000, 150_010, 4, 200_000), says(206, "456789", "Content-Range", "bytes 150004-150009/200000", "ETag", `"a"`),
				says(206, "0123456789", "Content-Range", "bytes 150000-150009/200000", "ETag", `"b"`), says(403, ""),
				says(416, ""), says(200, "", "Content-Length", "0", "ETag", `"c"`), says(416, ""), says(200, "", "Content-Length", "1"))
			b, key := at(t, scheme, endpoint, "x")
			f := must(b.Open(key))
			require.EqualValues(t, 200_000, must(f.Stat()).Size())
			got := make([]byte, 10)
			must(f.(io.ReaderAt).ReadAt(got, 150_000))
			require.Equal(t, "xxxx456789", string(got))
			read := func() error { return f.(object).ReadRanges(maps.All(map[int64][]byte{150_000: got})) }
			require.ErrorIs(t, read(), remote.ErrChanged)
			require.EqualError(t, read(), scheme+"://models/x: permission denied: 403 Forbidden")
			require.Len(t, requests(), 5)

			require.Empty(t, must(io.ReadAll(must(b.Open(key)))))
			require.EqualError(t, errorOf(b.Open(key)), scheme+"://models/x: 416 Requested Range Not Satisfiable")
		})
	}
}

// TestStoredCompressed: the bytes of an object are those that are stored, whatever its encoding.
func TestStoredCompressed(t *testing.T) {
	var stored bytes.Buffer
	z := gzip.NewWriter(&stored)
	io.WriteString(z, "0123456789")
	z.Close()
	for _, scheme := range []string{"s3", "gs", "azblob"} {
		endpoint, _ := serve(t, says(206, stored.String(), "Content-Encoding", "gzip", "Content-Range", fmt.Sprintf("bytes 0-%d/%d", stored.Len()-1, stored.Len())))
		b, key := at(t, scheme, endpoint, "x")
		got, err := b.Start(key, int64(stored.Len()))
		require.NoError(t, err, scheme)
		require.Equal(t, stored.Bytes(), got, scheme)
	}
}
