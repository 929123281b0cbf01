package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/stretchr/testify/require"
)

// TestBitcast checks that Bitcast keeps the bytes and scales the last dimension.
func TestBitcast(t *testing.T) {
	x := must(NewTensor(U8, []int{2, 8}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}))
	for d, last := range map[DType]int{I8: 8, BOOL: 8, F4: 16, U16: 4, F32: 2, C64: 1, I64: 1} {
		y := must(x.Bitcast(d))
		require.Equal(t, []int{2, last}, y.Shape(), d)
		require.Equal(t, appended[byte](x), appended[byte](y), d)
		require.Equal(t, x, must(y.Bitcast(U8)), d)
	}
}

// TestConvert checks rounding in one and two conversions.
func TestConvert(t *testing.T) {
	x := must(NewTensor(F64, []int{4}, []float64{1, 1 + 0x1p-8 + 0x1p-30, math.Inf(-1), 1e300}))
	direct := must(x.Convert(BF16))
	bits := must(Append[uint16](nil, direct))
	require.Equal(t, []uint16{0x3f80, 0x3f81, 0xff80, 0x7f80}, bits)

	// Two conversions round twice: F32 drops the bit that breaks the tie.
	twice := must(x.Convert(F32))
	twice = must(twice.Convert(BF16))
	bits = must(Append[uint16](nil, twice))
	require.Equal(t, []uint16{0x3f80, 0x3f80, 0xff80, 0x7f80}, bits)
	require.Equal(t, []float64{1, 1, math.Inf(-1), math.Inf(1)}, must(Append[float64](nil, twice)))

	// A tensor can be converted to several dtypes, each apart from the others.
	half := must(twice.Convert(F16))
	must(twice.Convert(F32))
	bits = must(Append[uint16](nil, half))
	require.Equal(t, []uint16{0x3c00, 0x3c00, 0xfc00, 0x7c00}, bits)

	must(View[float64](must(x.Convert(F64))))
	require.ErrorIs(t, errorOf(View[uint16](direct)), errors.ErrUnsupported)
}

// repeating returns a tensor of n elements of d whose bytes repeat a random period of
// that many elements, a multiple of 8.
func repeating(d DType, period, n int) Tensor {
	random := rand.New(rand.NewPCG(uint64(d), uint64(period)))
	data := make([]byte, n*d.Bits()/8)
	for i := range data {
		if p := period * d.Bits() / 8; i < p {
			data[i] = byte(random.Uint32())
		} else {
			data[i] = data[i-p]
		}
	}
	return must(NewTensor(d, []int{n}, data))
}

// TestConvertInBlocks converts tensors in memory to more bytes than a block has, so
// that all blocks but the first start within the tensor.
func TestConvertInBlocks(t *testing.T) {
	const period = 8 * 1009 // no block starts where a period does
	pairs := []struct{ from, to DType }{{F4, F32}, {F32, BF16}, {F6_E2M3, F16}, {F8_E4M3, BF16}, {BF16, F32}}
	if testing.Short() {
		pairs = pairs[:2]
	}
	for _, c := range pairs {
		t.Run(fmt.Sprintf("%v to %v", c.from, c.to), func(t *testing.T) {
			n := mem.BlockSize*8/c.to.Bits() + 3*period + 4
			x := must(repeating(c.from, period, n).Convert(c.to))
			require.Greater(t, x.Size(), int64(mem.BlockSize))
			once := must(repeating(c.from, period, period).Convert(c.to))
			want := bytes.Repeat(appended[byte](once), n/period+1)[:x.Size()]
			require.True(t, bytes.Equal(want, bytesOfTensor(t, x)))
			y := must(must(Load(writeTemp(t, map[string]Tensor{"x": x}))).Tensor("x"))
			require.True(t, bytes.Equal(want, appended[byte](y)), "WriteFile")
		})
	}
}
