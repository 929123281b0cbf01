package apitest_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestReshapeWithoutReading: where strides can express the new shape, it stays a slice of
// its data: parts of it that are contiguous there have a View, and nothing else is read.
func TestReshapeWithoutReading(t *testing.T) {
	x := counting(U32, 6, 12)
	heads := must(must(x.Slice(All(), Span(0, 8))).Reshape(2, 3, 4, 2))
	row := must(View[uint32](must(heads.Slice(At(1), At(2)))))
	require.Equal(t, []uint32{60, 61, 62, 63, 64, 65, 66, 67}, row)
	swapped := must(must(must(x.Reshape(2, 3, 12)).Transpose(1, 0, 2)).Reshape(3, 2, 3, 4))
	row = must(View[uint32](must(swapped.Slice(At(2), At(1), At(0)))))
	require.Equal(t, []uint32{60, 61, 62, 63}, row)

	joined := must(Concat(1, must(heads.Slice(All(), Span(0, 1))), must(heads.Slice(All(), Span(1, 3)))))
	require.Equal(t, heads, joined, "parts are the tensor again")
	flat := must(must(x.Transpose()).Reshape(72))
	joined = must(Concat(0, must(flat.Part(0, 0, 2)), must(flat.Part(0, 1, 2))))
	require.Equal(t, flat, joined)
	_, err := View[uint32](flat)
	require.ErrorContains(t, err, "its elements were not contiguous before Reshape")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// TestReshapePartReadsItsBytes: a part of what Reshape reads through asks a reader for
// its own rows only.
func TestReshapePartReadsItsBytes(t *testing.T) {
	x := counting(U32, 8, 1024, 64)
	r := &recordingReader{ReaderAt: bytes.NewReader(appended[byte](x))}
	y := must(must(must(NewTensorAt(U32, x.Shape(), r)).Transpose(0, 2, 1)).Reshape(8*64, 1024))
	want := appended[uint32](must(must(x.Transpose(0, 2, 1)).Reshape(8*64, 1024)))
	part := must(y.Part(0, 3, 8))
	require.Zero(t, r.bytes)
	require.Equal(t, want[3*64*1024:4*64*1024], appended[uint32](part))
	require.EqualValues(t, 64*1024*4, r.bytes)
	r.bytes = 0
	must(Append[uint32](nil, must(part.Slice(All(), Span(0, 512)))))
	require.EqualValues(t, 64*1024*4, r.bytes, "nor do columns of it")
	r.bytes = 0
	must(y.ReadAt(make([]byte, 4096), 4096*100))
	require.LessOrEqual(t, r.bytes, int64(64*1024*4), "a window does not read the rest")
	for name, z := range map[string]Tensor{"whole": y, "converted": must(must(y.Bitcast(F32)).Convert(F64))} {
		r.bytes = 0
		must(z.WriteTo(io.Discard))
		require.EqualValues(t, x.Size(), r.bytes, "each byte is read once: %s", name)
	}
}
