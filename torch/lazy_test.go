package torch

import (
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors/internal/testplatform"
)

// virtual is a file of zeros after its head. It counts the bytes that are read.
type virtual struct {
	head []byte
	size int64
	read atomic.Int64
}

func (v *virtual) ReadAt(p []byte, off int64) (int, error) {
	n := max(0, min(int64(len(p)), v.size-off))
	clear(p[:n])
	if off < int64(len(v.head)) {
		copy(p[:n], v.head[off:])
	}
	v.read.Add(n)
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// newVirtual returns a legacy file of one tensor with this storage.
func newVirtual(elements int64, shape, strides string) *virtual {
	s := "(" + str("storage") + "c" + float4 + "\n" + str("0") + str("cpu") + num(elements) + "NtQ"
	object := dictOf(tensorOf(s, 0, shape, strides))
	head := legacyOf(object, "\x80\x02]\x8c\x010a.", num(elements)[2:])
	return &virtual{head: head, size: int64(len(head)) + 4*elements}
}

// TestReadsOnlyWhatIsNeeded opens a file of 5 GiB, and reads the end of its tensor.
func TestReadsOnlyWhatIsNeeded(t *testing.T) {
	const elements = 5 << 28
	v := newVirtual(elements, nums(elements), nums(1))
	c := must(openAll(v, v.size, ""))
	require.Less(t, v.read.Swap(0), int64(10_000))
	n, err := c.tensors["w"].ReadAt(make([]byte, 100), 4*elements-70)
	require.Equal(t, 70, n)
	require.Equal(t, io.EOF, err)
	require.EqualValues(t, 70, v.read.Load())
}

// TestTransposedMemory writes a transposed tensor of 256 MiB: its matrix is held once, and
// read once.
func TestTransposedMemory(t *testing.T) {
	const side = 8 << 10
	v := newVirtual(side*side, nums(side, side), nums(1, side))
	c := must(openAll(v, v.size, ""))
	before := allocated()
	n := must(c.tensors["w"].WriteTo(io.Discard))
	require.EqualValues(t, 4*side*side, n)
	if !testplatform.RaceEnabled { // the detector has a sync.Pool drop what it gets
		require.Less(t, allocated()-before, uint64(384<<20))
	}
	require.Less(t, v.read.Load(), int64(5*side*side))
}
