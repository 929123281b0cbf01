package mem

import (
	"bytes"
	"io"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExtend extends slices to sizes around the one from which Allocate does not use make, and
// around the one from which pages are huge.
func TestExtend(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 1025, hugePagesFrom/4 - 1, hugePagesFrom / 4, hugePagesFrom/4 + 1} {
		for _, old := range [][]uint32{nil, {1, 2, 3}} {
			out := Extend(old, n)
			require.Len(t, out, len(old)+n)
			require.Equal(t, old, append([]uint32(nil), out[:len(old)]...))
			for i := range out {
				out[i] = uint32(i)
			}
			spare := out[len(out):cap(out)]
			require.Equal(t, make([]uint32, len(spare)), append([]uint32{}, spare...), "as with append")
		}
	}
	large := Extend([]uint32(nil), hugePagesFrom/4)
	again := Extend(large, 1)
	require.Greater(t, cap(again)-len(again), hugePagesFrom/20, "append has room to go on")
	require.Zero(t, slices.Max(again[len(again):cap(again)]), "spare memory is clear")
}

// TestSliceOfChecksAlignment: SliceOf shares memory that is aligned for the type, and refuses other
// memory.
func TestSliceOfChecksAlignment(t *testing.T) {
	b := BytesOf([]uint64{1, 2})
	s, ok := SliceOf[uint64](b)
	require.True(t, ok)
	require.Equal(t, []uint64{1, 2}, s)
	require.Equal(t, 2, cap(s))
	_, ok = SliceOf[uint64](b[1:9])
	require.False(t, ok)
	bytes, ok := SliceOf[uint8](b[1:9])
	require.True(t, ok)
	require.Equal(t, b[1:9], bytes)
}

// TestContains tries the addresses at and next to both ends of a slice.
func TestContains(t *testing.T) {
	b := make([]byte, 16)
	first := reflect.ValueOf(b).Pointer()
	for off, want := range map[int]bool{-1: false, 0: true, 15: true, 16: false} {
		require.Equal(t, want, Contains(b, first+uintptr(off)), off)
	}
}

// TestBlocksKeepTheirSize: a freed Block is reused only for sizes of its own class, so that a small
// Block never holds the memory of a large one.
func TestBlocksKeepTheirSize(t *testing.T) {
	for _, n := range []int64{0, 1, BufferSize, BufferSize + 1, 2*BufferSize + 1, BlockSize} {
		b := NewBlock(n)
		require.Len(t, b.Bytes, int(n))
		require.Less(t, int64(cap(b.Bytes)), max(2*n, BufferSize+1))
		b.Free()
	}
	(*Block)(nil).Free()
}

// TestCheckSize: a size above the address space or above the memory of the machine is refused
// before it is allocated.
func TestCheckSize(t *testing.T) {
	require.NoError(t, CheckSize(1<<20))
	require.ErrorContains(t, CheckSize(math.MaxInt64), "exceed the address space")
	switch {
	case runtime.GOARCH == "wasm":
		require.ErrorContains(t, CheckSize(1<<32), "exceed the address space", "its addresses have 32 bits")
	case slices.Contains([]string{"darwin", "linux", "windows"}, runtime.GOOS):
		require.Greater(t, physical(), int64(64<<20))
		require.Less(t, physical(), int64(1<<46))
	}
}

// TestSwap: Swap gives the bytes of a little-endian file on every host, and Swap again gives back
// the numbers.
func TestSwap(t *testing.T) {
	b := BytesOf([]uint32{0x04030201, 0x08070605})
	Swap[uint32](b)
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8}, b, "as in a file, on any host")
	Swap[uint32](b)
	require.Equal(t, BytesOf([]uint32{0x04030201, 0x08070605}), b)
	require.Zero(t, SwappedUnit[uint8]())
	if bigEndian {
		require.Equal(t, 4, SwappedUnit[complex64]())
		require.Equal(t, 8, SwappedUnit[float64]())
	} else {
		require.Zero(t, SwappedUnit[float64]())
	}
}

// TestSwapped reads every window, whether it consists of whole numbers or contains parts of
// numbers.
func TestSwapped(t *testing.T) {
	want := []byte("cbafedihg")
	s := Swapped{bytes.NewReader([]byte("abcdefghi")), 3}
	for off := range len(want) + 3 {
		for n := range len(want) + 4 {
			p := make([]byte, n)
			got, err := s.ReadAt(p, int64(off))
			there := want[min(off, len(want)):min(off+n, len(want))]
			require.Equal(t, string(there), string(p[:got]), "%d from %d", n, off)
			if got < n {
				require.Equal(t, io.EOF, err)
			} else {
				require.NoError(t, err)
			}
		}
	}
}
