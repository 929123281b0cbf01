package convert

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// codes returns a tensor of all codes of a dtype of 8 or 16 bits.
func codes(d safetensors.DType) safetensors.Tensor {
	var data []byte
	for i := range 1 << d.Bits() {
		if data = append(data, byte(i)); d.Bits() == 16 {
			data = append(data, byte(i>>8))
		}
	}
	return must(safetensors.NewTensor(d, []int{1 << d.Bits()}, data))
}

// naive counts the values beyond the range of a dtype one by one.
func naive(from, to safetensors.Tensor) (n int64) {
	before := must(safetensors.Append[float64](nil, from))
	after := must(safetensors.Append[float64](nil, to))
	for i, x := range before {
		infinite := math.IsInf(after[i], 0) && !math.IsInf(x, 0)
		invalid := math.IsNaN(after[i]) && !math.IsNaN(x)
		saturated := to.DType() == safetensors.F8_E4M3 && math.Abs(x) > 448
		if infinite || invalid || saturated {
			n++
		}
	}
	return n
}

// TestEveryCode converts every code of each small dtype to every other dtype, and compares the
// count of values beyond its range with one by one.
func TestEveryCode(t *testing.T) {
	wide := must(safetensors.NewTensor(safetensors.F64, []int{9}, []float64{
		math.MaxFloat64, -math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32, 65504, 65520, 3.4e38,
	}))
	sources := []safetensors.Tensor{wide, must(wide.Convert(safetensors.F32))}
	for d := range safetensors.DTypes() {
		if d.IsFloat() && (d.Bits() == 8 || d.Bits() == 16) {
			sources = append(sources, codes(d))
		}
	}
	total := int64(0)
	for _, from := range sources {
		for to := range safetensors.DTypes() {
			want, err := from.Convert(to)
			got, count, countErr := Counted(from, to)
			if err != nil {
				require.ErrorIs(t, countErr, errors.ErrUnsupported)
				continue
			}
			require.NoError(t, countErr)
			require.Zero(t, count.Total(), "nothing was read")
			var a, b bytes.Buffer
			must(want.WriteTo(&a))
			must(got.WriteTo(&b))
			require.True(t, bytes.Equal(a.Bytes(), b.Bytes()), "%v to %v", from, to)
			n := naive(from, want)
			require.Equal(t, n, count.Total(), "%v to %v", from, to)
			total += n
		}
	}
	require.Greater(t, total, int64(1000))
}

// TestBlocks reads a tensor of several blocks, twice.
func TestBlocks(t *testing.T) {
	values := make([]float32, 3*(blocks.Elements/2+5))
	values[0], values[len(values)-1] = 1e6, -1e6
	x := must(safetensors.NewTensor(safetensors.F32, []int{3, len(values) / 3}, values))
	y, count, err := Counted(x, safetensors.F16)
	require.NoError(t, err)
	require.Greater(t, len(count.blocks), 1)
	for range 2 {
		must(y.WriteTo(new(bytes.Buffer)))
		require.EqualValues(t, 2, count.Total())
	}
	got := must(safetensors.Append[float32](nil, must(y.Slice(safetensors.At(2)))))
	require.True(t, math.IsInf(float64(got[len(got)-1]), -1))
}

// TestFailure: an error of the source comes out.
func TestFailure(t *testing.T) {
	x := must(safetensors.NewTensorAt(safetensors.F32, []int{4}, bytes.NewReader(nil)))
	y, _, err := Counted(x, safetensors.F16)
	require.NoError(t, err)
	_, err = y.WriteTo(new(bytes.Buffer))
	require.Error(t, err)
}

// TestFailingCount: an error of the second read, which counts the values beyond the range, is the error of the tensor.
func TestFailingCount(t *testing.T) {
	for _, d := range []safetensors.DType{safetensors.F16, safetensors.F8_E4M3, safetensors.F8_E4M3FNUZ} {
		reads, failure := 0, errors.New("unplugged")
		from := must(safetensors.NewTensorFunc(safetensors.F32, []int{1}, func(dst []float32) error {
			dst[0] = 1e6
			if reads++; reads > 1 {
				return failure
			}
			return nil
		}))
		to, _, err := Counted(from, d)
		require.NoError(t, err)
		_, err = safetensors.Append[byte](nil, to)
		require.ErrorIs(t, err, failure, d)
	}
}

// TestCountPlaces compares count with countEach for a single code at each place, of either sign, and for codes next to it.
func TestCountPlaces(t *testing.T) {
	for _, code := range []string{"\x7e", "\x7c", "\x00\x7c", "\x80\x7f", "\x00\x00\x80\x7f"} {
		size := len(code)
		for n := 0; n <= 96; n += size {
			for at := 0; at < n; at += size {
				for _, sign := range []byte{0, 0x80} {
					codes := make([]byte, n)
					copy(codes[at:], code)
					codes[at+size-1] |= sign
					require.EqualValues(t, 1, count(codes, code), "%x at %d of %d", code, at, n)
					require.EqualValues(t, 1, countEach(codes, code))
					for k := range size { // a neighbor of the code in each byte
						for _, change := range []byte{1, 0xff} {
							other := bytes.Clone(codes)
							other[at+k] += change
							require.Equal(t, countEach(other, code), count(other, code), "%x at %d of %d", other[at:at+size], at, n)
						}
					}
				}
			}
			require.EqualValues(t, n/size, count([]byte(strings.Repeat(code, n/size)), code))
		}
	}
}
