package strided

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

type counting struct {
	io.ReaderAt
	bytes atomic.Int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.bytes.Add(int64(len(p)))
	return c.ReaderAt.ReadAt(p, off)
}

// TestUnpackedOnce reads a transposed matrix of a compressed source in small pieces:
// its bytes are unpacked once for each time that all of it is read.
func TestUnpackedOnce(t *testing.T) {
	const n, begin = 100, 8
	data := make([]byte, begin+n*n*4)
	for i := range data {
		data[i] = byte(i * i >> 3)
	}
	layout := Layout{Offset: begin, Width: 4, Shape: []int{n, n}, Strides: []int64{4, 4 * n}}
	r := &counting{ReaderAt: bytes.NewReader(data)}
	packed, err := NewTensor(safetensors.F32, []int{n, n}, Source{R: r, Size: int64(len(data)), Packed: 1000}, layout)
	require.NoError(t, err)
	plain, err := NewTensor(safetensors.F32, []int{n, n}, Source{R: bytes.NewReader(data), Size: int64(len(data))}, layout)
	require.NoError(t, err)
	want, err := safetensors.Append[byte](nil, plain)
	require.NoError(t, err)
	for round := range 3 {
		r.bytes.Store(0)
		got := make([]byte, len(want))
		for off := 0; off < len(got); off += 64 {
			_, err := packed.ReadAt(got[off:min(off+64, len(got))], int64(off))
			require.NoError(t, err)
		}
		require.True(t, bytes.Equal(want, got))
		require.EqualValues(t, n*n*4, r.bytes.Load(), "round %d", round)
	}
	got, err := safetensors.Append[byte](nil, packed)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))

	broken, err := NewTensor(safetensors.F32, []int{n, n}, Source{R: bytes.NewReader(data[:n]), Size: int64(len(data)), Packed: 1000}, layout)
	require.NoError(t, err)
	_, err = safetensors.Append[byte](nil, broken)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
