package float

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectorPairs lists the conversions that have assembly on some processor.
var vectorPairs = []struct{ from, to Format }{
	{I8, F32}, {U8, F32}, {I16, F32}, {U16, F32},
	{BF16, F32}, {F16, F32}, {E5M2, F32}, {E4M3, F32}, {E4M3FNUZ, F32}, {F32, BF16}, {F32, F16},
}

// kernelTests are the tests that run once for each kernel, on processors that have several.
var kernelTests = map[string]func(*testing.T){
	"Convert": TestConvert, "DecodeVectors": TestDecodeVectors, "RoundVectors": TestRoundVectors,
	"Integers": TestConvertIntegers, "Anywhere": TestConvertAnywhere, "NonTemporal": TestConvertNonTemporal,
}

// requireVector compares Convert with the loops for n elements. The offsets move src and dst
// relative to an address that is usually a multiple of 64. It also checks that no byte next to dst
// changes.
func requireVector(t *testing.T, from, to Format, random []byte, n, srcOffset, dstOffset int, nonTemporal bool) {
	const guard = 64
	src := random[srcOffset:][:n*from.Bits()/8]
	size := n * to.Bits() / 8
	want := bytes.Repeat([]byte{0xa5}, guard+dstOffset+size+guard)
	got := bytes.Clone(want)
	dst := want[guard+dstOffset:][:size]
	if to == F32 {
		portableToF32(dst, src, from)
	} else {
		portableFromF32(dst, to, src)
	}
	Convert(got[guard+dstOffset:][:size], to, src, from, nonTemporal)
	if !bytes.Equal(want, got) {
		require.Failf(t, "differs from the loops", "%v to %v, n %d, offsets %d and %d, nonTemporal %v",
			from, to, n, srcOffset, dstOffset, nonTemporal)
	}
}

// randomFloats returns n random bytes. They contain every code of at most 8 bits. NaNs, infinities,
// zeros and subnormals of the wider formats are more frequent than in uniformly random bytes.
func randomFloats(n int) []byte {
	rng := rand.New(rand.NewPCG(7, 8))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
		if rng.Uint32()%4 == 0 {
			b[i] |= 0x7f // NaNs and infinities
		}
		if rng.Uint32()%4 == 0 {
			b[i] &= 0x80 // zeros and subnormals
		}
	}
	return b
}

// TestConvertAnywhere converts any number of elements, from and to any alignment.
func TestConvertAnywhere(t *testing.T) {
	random := randomFloats(2048)
	for _, p := range vectorPairs {
		for _, nonTemporal := range []bool{false, true} {
			for n := range 301 {
				requireVector(t, p.from, p.to, random, n, 0, 0, nonTemporal)
				requireVector(t, p.from, p.to, random, n, n%7, n%61, nonTemporal)
				requireVector(t, p.from, p.to, random, n, n%64, n*4%64, nonTemporal)
			}
			for offset := range 64 {
				for _, n := range []int{15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 127, 200} {
					requireVector(t, p.from, p.to, random, n, 1, offset, nonTemporal)
					requireVector(t, p.from, p.to, random, n, offset, 0, nonTemporal)
				}
			}
		}
	}
}

// TestConvertNonTemporal converts every code of at most 16 bits, and F32 numbers at every edge, in
// whole blocks.
func TestConvertNonTemporal(t *testing.T) {
	for _, p := range vectorPairs {
		if p.to == F32 {
			requireVector(t, p.from, p.to, packCodes(p.from, allCodes(p.from)), 1<<p.from.Bits(), 0, 4, true)
		} else {
			src := packCodes(F32, floatEdges(F32, p.to))
			requireVector(t, p.from, p.to, src, len(src)/4, 0, 2, true)
		}
	}
}
