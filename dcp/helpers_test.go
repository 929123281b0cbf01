package dcp

import (
	"bytes"
	"iter"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// pieces are the pieces of one rank, by the names of their tensors.
type pieces = map[string]Piece

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// random returns a tensor of random bits.
func random(rng *rand.Rand, dtype safetensors.DType, shape ...int) safetensors.Tensor {
	bits := dtype.Bits()
	for _, n := range shape {
		bits *= n
	}
	data := make([]byte, bits/8)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return must(safetensors.NewTensor(dtype, shape, data))
}

// written returns the file of a rank with these pieces.
func written(of pieces) []byte {
	var b bytes.Buffer
	if err := Write(&b, of, nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// parsed returns the file of each rank, in memory.
func parsed(ranks ...pieces) []*safetensors.File {
	files := make([]*safetensors.File, len(ranks))
	for i, of := range ranks {
		files[i] = must(safetensors.Parse(written(of)))
	}
	return files
}

// requireSame checks that two tensors agree in dtype, shape and bytes.
func requireSame(t testing.TB, want, got safetensors.Tensor, name ...any) {
	t.Helper()
	require.Equal(t, want.String(), got.String(), name...)
	a := must(safetensors.Append[byte](nil, want))
	require.True(t, bytes.Equal(a, must(safetensors.Append[byte](nil, got))), name...)
}

// loaded returns the tensors of a safetensors file.
func loaded(name string) map[string]safetensors.Tensor {
	return maps.Collect(must(safetensors.Load(name)).Tensors())
}

// requireTensors checks that a file has exactly the wanted tensors.
func requireTensors(t testing.TB, want map[string]safetensors.Tensor, f *safetensors.File) {
	t.Helper()
	got := maps.Collect(f.Tensors())
	require.Len(t, got, len(want))
	for name, x := range want {
		require.Contains(t, got, name)
		requireSame(t, x, got[name], name)
	}
}

// A recordingReader counts the bytes and the calls of reads. It fails with err unless that is nil.
type recordingReader struct {
	*bytes.Reader
	err error

	mu           sync.Mutex
	bytes, calls int
}

func (r *recordingReader) ReadAt(b []byte, off int64) (int, error) {
	r.mu.Lock()
	r.calls++
	r.bytes += len(b)
	r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	return r.Reader.ReadAt(b, off)
}

// A rangeReader reads all runs of a slice in one call.
type rangeReader struct{ *recordingReader }

func (r rangeReader) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	for off, b := range ranges {
		must(r.ReadAt(b, off))
		r.calls--
	}
	r.calls++
	return nil
}

// recorded opens the file of each rank through a recordingReader.
func recorded(ranks ...pieces) ([]*safetensors.File, []*recordingReader) {
	files := make([]*safetensors.File, len(ranks))
	readers := make([]*recordingReader, len(ranks))
	for i, of := range ranks {
		readers[i] = &recordingReader{Reader: bytes.NewReader(written(of))}
		files[i] = must(safetensors.NewFile(readers[i], readers[i].Size()))
	}
	return files, readers
}
