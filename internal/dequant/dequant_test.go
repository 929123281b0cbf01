package dequant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var random = rand.New(rand.NewPCG(1, 2))

// numbers returns random floats, NaN and infinities among them.
func numbers(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(random.Uint32())
		if i%3 > 0 {
			v[i] = float32(random.NormFloat64())
		}
	}
	return v
}

func bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func requireSame(t *testing.T, want, got []float32, title string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		same := math.Float32bits(want[i]) == math.Float32bits(got[i]) || want[i] != want[i] && got[i] != got[i]
		require.True(t, same, "%s: element %d is %g, want %g", title, i, got[i], want[i])
	}
}

// slowCode returns code k of a bit stream.
func slowCode(b []byte, k, bits int) (code int) {
	for i := range bits {
		code |= int(b[(k*bits+i)/8]>>((k*bits+i)%8)&1) << i
	}
	return code
}

// TestUnpack compares Unpack, for codes of 1 to 8 bits, with and without an Order, and for lines of
// up to 99 elements, with a loop that takes the bits of one code at a time.
func TestUnpack(t *testing.T) {
	table := (*Table)(numbers(256))
	for bits := 1; bits <= 8; bits++ {
		for n := range 100 {
			some := [8]int(random.Perm(8))
			src := bytes((n + 7) / 8 * bits)
			for _, order := range []*[8]int{&some, nil} {
				if order == nil {
					src = src[:(n*bits+7)/8]
				}
				want := make([]float32, n)
				for k := range (n + 7) / 8 * 8 {
					e := k
					if order != nil {
						e = k/8*8 + order[k%8]
					}
					if e < n {
						want[e] = table[slowCode(src, k, bits)]
					}
				}
				got := make([]float32, n)
				Packing{Bits: bits, Order: order}.Unpack(got, src, table)
				requireSame(t, want, got, fmt.Sprint(bits, " bits, ", n, order))
			}
		}
	}
}

// TestUnpackDown compares UnpackDown, for codes that start at any bit of a word, with a loop that
// joins the words of both rows.
func TestUnpackDown(t *testing.T) {
	table := (*Table)(numbers(256))
	for bits := 1; bits <= 8; bits++ {
		for n := range 40 {
			low, high := bytes(4*n), bytes(4*n)
			shift := random.IntN(32)
			want := make([]float32, n)
			for i := range want {
				both := uint64(binary.LittleEndian.Uint32(low[4*i:])) | uint64(binary.LittleEndian.Uint32(high[4*i:]))<<32
				want[i] = table[both>>shift&(1<<bits-1)]
			}
			if shift+bits <= 32 {
				high = nil
			}
			got := make([]float32, n)
			UnpackDown(got, low, high, shift, bits, table)
			requireSame(t, want, got, fmt.Sprint(bits, " bits at ", shift, ", ", n))
		}
	}
}

// TestGroups compares Mul, Add and Sub, for groups of many sizes and any start within a group, with
// one operation for each element.
func TestGroups(t *testing.T) {
	for _, op := range []struct {
		name string
		fast func(dst, v []float32, group, skip int)
		slow func(x, v float32) float32
	}{
		{"Mul", Mul, func(x, v float32) float32 { return x * v }},
		{"Add", Add, func(x, v float32) float32 { return x + v }},
		{"Sub", Sub, func(x, v float32) float32 { return x - v }},
	} {
		for range 2000 {
			n, group := random.IntN(200), 1+random.IntN(70)
			if random.IntN(2) == 0 {
				group = 8 * (1 + random.IntN(9))
			}
			skip := random.IntN(group)
			x, v := numbers(n), numbers((skip+n+group-1)/group)
			want := slices.Clone(x)
			for i := range want {
				want[i] = op.slow(want[i], v[(skip+i)/group])
			}
			op.fast(x, v, group, skip)
			requireSame(t, want, x, fmt.Sprint(op.name, n, " in groups of ", group, " from ", skip))
		}
	}
}
