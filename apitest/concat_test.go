package apitest_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// bytesOfTensor returns the bytes of a tensor, read in four ways that must agree.
func bytesOfTensor(t testing.TB, x Tensor) []byte {
	t.Helper()
	all := appended[byte](x)
	var written bytes.Buffer
	require.EqualValues(t, len(all), must(x.WriteTo(&written)))
	require.True(t, bytes.Equal(all, written.Bytes()), "WriteTo")
	// A window that starts and ends anywhere.
	random := rand.New(rand.NewPCG(uint64(len(all)), 1))
	for range 4 {
		off := random.Int64N(int64(len(all)) + 1)
		p := make([]byte, random.Int64N(int64(len(all))-off+1))
		require.Equal(t, len(p), must(x.ReadAt(p, off)))
		require.True(t, bytes.Equal(all[off:][:len(p)], p), "ReadAt %d bytes at %d", len(p), off)
	}
	return all
}

// TestReadAtIsAReaderAt: a tensor is a source of another one.
func TestReadAtIsAReaderAt(t *testing.T) {
	x := counting(U32, 5)
	require.Equal(t, appended[byte](x), must(io.ReadAll(io.NewSectionReader(x, 0, x.Size()))))
	require.Equal(t, []uint32{0, 1, 2, 3, 4}, appended[uint32](must(NewTensorAt(U32, []int{5}, x))))
	n, err := x.ReadAt(make([]byte, 8), 1<<40)
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
	require.ErrorContains(t, errorOf(x.ReadAt(make([]byte, 1), -1)), "negative offset")
}

// TestReaderFaults checks what the error says of a reader that fails.
func TestReaderFaults(t *testing.T) {
	for _, c := range []struct {
		rule string
		r    io.ReaderAt
		is   error
		want string
	}{
		{"it ends early", bytes.NewReader(make([]byte, 10)), io.ErrUnexpectedEOF, "reading 16 bytes at byte 0 of the file: unexpected EOF"},
		{"it fails", &failingReader{ReaderAt: bytes.NewReader(make([]byte, 16))}, errReader, "reading 16 bytes at byte 0"},
		{"it lies about n", readerAtFunc(func(p []byte, _ int64) (int, error) { return len(p) + 1, nil }), nil, "read 17 of 16 bytes"},
		{"it returns a negative n", readerAtFunc(func(p []byte, _ int64) (int, error) { return -1, nil }), nil, "read -1 of 16 bytes"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := Append[uint32](nil, must(NewTensorAt(U32, []int{4}, c.r)))
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}

type readerAtFunc func([]byte, int64) (int, error)

func (f readerAtFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// TestWideJoinedWritesFail writes long pieces, one of which cannot be read: the file
// is not written.
func TestWideJoinedWritesFail(t *testing.T) {
	const size = 400_000
	for failing := range 3 {
		pieces := make([]Tensor, 3)
		for i := range pieces {
			r := &failingReader{ReaderAt: bytes.NewReader(make([]byte, size)), left: size}
			if i == failing {
				r.left = size / 2
			}
			pieces[i] = must(NewTensorAt(U8, []int{size}, r))
		}
		joined := must(Concat(0, pieces...))
		dir := t.TempDir()
		require.ErrorIs(t, WriteFile(filepath.Join(dir, "x"), map[string]Tensor{"x": joined}, nil), errReader)
		requireEmptyDir(t, dir)
	}
}

// TestPartsOfTwo joins the first half of one tensor with the second half of another:
// where they are says nothing about what they are of.
func TestPartsOfTwo(t *testing.T) {
	constant := func(c byte) []Tensor {
		stored := must(NewTensor(U8, []int{4}, bytes.Repeat([]byte{c}, 4)))
		computed := must(NewTensorFunc(U8, []int{4}, func(dst []byte) error {
			copy(dst, bytes.Repeat([]byte{c}, 4))
			return nil
		}))
		return []Tensor{stored, computed}
	}
	for i, x := range constant(1) {
		for k, y := range constant(2) {
			joined := must(Concat(0, must(x.Slice(Span(0, 2))), must(y.Slice(Span(2, 4)))))
			require.Equal(t, []byte{1, 1, 2, 2}, appended[byte](joined), "%d %d", i, k)
		}
	}

	// The halves of one tensor, one of them rounded twice.
	x := must(NewTensor(F32, []int{2}, []float32{1e9, 1e9}))
	once := must(must(x.Slice(Span(0, 1))).Convert(BF16))
	twice := must(must(x.Slice(Span(1, 2))).Convert(F16))
	twice = must(twice.Convert(BF16))
	require.Equal(t, []uint16{0x4e6e, 0x7f80}, appended[uint16](must(Concat(0, once, twice))))
}
