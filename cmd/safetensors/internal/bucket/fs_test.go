package bucket

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadAtEnd: no request asks for bytes that the object does not have.
func TestReadAtEnd(t *testing.T) {
	endpoint, requests := serve(t, says(200, "", "Content-Length", "10"), says(206, "6789", "Content-Range", "bytes 6-9/10"))
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	f := must(b.FS(key).Open("."))
	got := make([]byte, 10)
	n, err := f.(io.ReaderAt).ReadAt(got, 6)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "6789", string(got[:n]))
	require.Equal(t, "bytes=6-9", requests()[1].Header.Get("Range"))
	for _, off := range []int64{10, 11} {
		n, err = f.(io.ReaderAt).ReadAt(got, off)
		require.ErrorIs(t, err, io.EOF)
		require.Zero(t, n)
	}
	require.Len(t, requests(), 2)
}

// TestReadTogether: one request brings neighbors and the gap between them.
func TestReadTogether(t *testing.T) {
	endpoint, requests := serve(t, says(200, "", "Content-Length", "10"), says(206, "12345678", "Content-Range", "bytes 1-8/10"))
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	f := must(b.FS(key).Open("."))
	first, second := make([]byte, 2), make([]byte, 3)
	require.NoError(t, f.(*object).ReadRanges(func(yield func(int64, []byte) bool) { _ = yield(1, first) && yield(6, second) }))
	require.Equal(t, "12 678", string(first)+" "+string(second))
	require.Equal(t, "bytes=1-8", requests()[1].Header.Get("Range"))
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
