package stats

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// totals returns counts by code.
func totals(counts []count) map[uint16]int64 {
	all := map[uint16]int64{}
	for _, c := range counts {
		all[c.code] += c.n
	}
	return all
}

func TestCounter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := new(counter)
	for _, sizes := range [][]int{{}, {0}, {1}, {2}, {3}, {1001}, {2 * few}, {2*few + 1}, {2*few + 2}, {200_003}, {100_000, 50}, {50, 100_000, 7}} {
		codes, halves := map[uint16]int64{}, map[uint16]int64{}
		for _, size := range sizes {
			b := make([]byte, size, size+1)
			for i := range b {
				b[i] = byte(rng.Uint32()) & 0x5a
			}
			c.addCodes(b)
			if size%2 == 1 {
				b = append(b, 0)
			}
			for i := 0; i < len(b); i += 2 {
				codes[binary.LittleEndian.Uint16(b[i:])]++
			}
		}
		require.Equal(t, codes, totals(c.drain()), "%d", sizes)
		for _, size := range sizes {
			b := make([]byte, size&^3)
			for i := range b {
				b[i] = byte(rng.Uint32()) & 0x5a
			}
			c.addUpper(b)
			for i := 0; i < len(b); i += 4 {
				halves[binary.LittleEndian.Uint16(b[i+2:])]++
			}
		}
		require.Equal(t, halves, totals(c.drain()), "%d", sizes)
		require.Empty(t, c.drain())
	}
}

// TestCounterIsFull counts more than fits into a table.
func TestCounterIsFull(t *testing.T) {
	c := new(counter)
	zeros := make([]byte, 4*few)
	c.addCodes(zeros)
	c.even[0], c.odd[0], c.pending = math.MaxUint32-few, 0, math.MaxUint32-few
	c.addCodes(zeros)
	c.addCodes(zeros)
	require.Equal(t, map[uint16]int64{0: math.MaxUint32 - few + 4*few}, totals(c.drain()))
}
