package safetensors

import (
	"bytes"
	"math"
	"testing"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/stretchr/testify/require"
)

// zeros is a file of any size.
type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) {
	clear(b)
	return len(b), nil
}

// TestTransposedParts checks the parts that are held in memory while tensors behind a reader are
// transposed.
func TestTransposedParts(t *testing.T) {
	const big, large = 1 << 12, math.MaxInt32
	for _, c := range []struct {
		rule        string
		dtype       DType
		shape, dims []int
		bytes       int64 // size of a part
	}{
		{"a matrix", F32, []int{big, big}, []int{1, 0}, 4 * big * big},
		{"one matrix after another", F32, []int{128, big, big}, []int{0, 2, 1}, 4 * big * big},
		{"small matrices together, in a block", U8, []int{big, 1 << 8, 1 << 8}, []int{0, 2, 1}, mem.BlockSize},
		{"as many as there are", U8, []int{10, 1 << 8, 1 << 8}, []int{0, 2, 1}, 10 << 16},
		{"several leading dimensions stay", BF16, []int{3, 5, big, big}, []int{0, 1, 3, 2}, 2 * big * big},
		{"a large matrix in panels", U8, []int{1 << 20, 1 << 16}, []int{1, 0}, mostInMemory},
		{"panels of whole rows", U8, []int{1<<20 + 1, 1 << 16}, []int{1, 0}, mostInMemory / (1<<20 + 1) * (1<<20 + 1)},
		{"panels of three dimensions", F32, []int{big, big, big}, []int{2, 1, 0}, mostInMemory},
		{"a part of a dimension", U8, []int{2, large, 8}, []int{2, 1, 0}, mostInMemory},
		{"rows of any length", U8, []int{2, 2, large}, []int{1, 0, 2}, large},
	} {
		t.Run(c.rule, func(t *testing.T) {
			y := must(must(NewTensorAt(c.dtype, c.shape, zeros{})).Transpose(c.dims...))
			parts := must(y.stream(new(computations), nil)).(*transposedStream)
			require.Equal(t, c.bytes, parts.most*parts.step)
			require.Equal(t, y.Size(), parts.bytes)
		})
	}
}

// TestTransposedPartsAreDropped: a part is dropped when it has been read, and its
// memory is used again.
func TestTransposedPartsAreDropped(t *testing.T) {
	data := make([]byte, 4*1000*9000) // a matrix of these is larger than a block
	for i := range data {
		data[i] = byte(i ^ i>>8)
	}
	x := must(NewTensorAt(U8, []int{4, 1000, 9000}, bytes.NewReader(data)))
	y := must(x.Transpose(0, 2, 1))
	s := must(y.open())
	defer s.release()
	parts := s.(*transposedStream)
	b := make([]byte, 1<<20)
	var memory []uint64
	for pos := int64(0); pos < y.Size(); pos += int64(len(b)) {
		b = b[:min(int64(len(b)), y.Size()-pos)]
		require.NoError(t, s.readAt(b, pos))
		i, k := pos/9000000, pos%9000000
		require.Equal(t, data[i*9000000+k%1000*9000+k/1000], b[0])
		require.LessOrEqual(t, len(parts.parts), 1)
		for _, p := range parts.parts {
			if memory == nil {
				memory = p.words
			}
			require.Same(t, &memory[0], &p.words[0])
		}
	}
	require.Empty(t, parts.parts)
	require.Len(t, parts.memory.free, 1)
	require.Zero(t, parts.memory.used)

	var held cache // the tensor may be read in any order, and twice
	again := must(y.stream(new(computations), &held)).(*transposedStream)
	defer again.release()
	for range 2 {
		require.NoError(t, again.readAt(make([]byte, y.Size()), 0))
	}
	require.Len(t, again.parts, 4)
	held.freeAll()
	require.Empty(t, again.parts)
	require.Zero(t, again.memory.used)
}

// TestMakeRoom: makeRoom frees parts that nobody reads, until the remaining parts take less than
// the limit.
func TestMakeRoom(t *testing.T) {
	s := &transposedStream{most: 2, step: mostInMemory / 8, memory: new(resultPool), parts: map[int64]*transposedPart{}}
	for i := range int64(9) {
		c := &computation{memory: s.memory, words: must(s.memory.get(8, nil))}
		s.parts[2*i] = &transposedPart{computedStream: &computedStream{computation: c}, first: 2 * i}
	}
	s.parts[4].readers, s.parts[6].readers = 1, 1
	s.makeRoom(mostInMemory)
	require.Len(t, s.parts, 3)
	require.Contains(t, s.parts, int64(4))
	require.Contains(t, s.parts, int64(6))
	require.Equal(t, 3, s.memory.used)
	s.drop()
	require.Len(t, s.parts, 2)
}
