package safetensors

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/stretchr/testify/require"
)

// TestDTypes checks the names of all dtypes, and that no other value of type DType has a name.
func TestDTypes(t *testing.T) {
	all := slices.Collect(DTypes())
	for d := range 256 {
		d := DType(d)
		text, err := d.MarshalText()
		require.Equal(t, d.valid(), slices.Contains(all, d))
		if !d.valid() {
			require.Error(t, err)
			require.Zero(t, d.Bits())
			require.Contains(t, d.String(), "DType(")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, d.String(), string(text))
		var back DType
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, d, back)
		require.EqualError(t, back.UnmarshalText(bytes.ToLower(text)), fmt.Sprintf("safetensors: unknown dtype %q; did you mean %q?", bytes.ToLower(text), text))
		require.Equal(t, d, back, "unchanged by the error")
	}
	require.EqualError(t, new(DType).UnmarshalText(nil), `safetensors: unknown dtype ""`)
}

// TestDTypeOrder: DTypes has the order in which version 0.8 of the reference lists tensors in
// files. If two dtypes had the same position, the order of their tensors would be random.
func TestDTypeOrder(t *testing.T) {
	require.Equal(t, []DType{
		BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ,
		I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64,
	}, slices.Collect(DTypes()))
	before := DType(0)
	for d := range DTypes() {
		require.Negative(t, compareDTypes(before, d), "%v", d)
		before = d
	}
}

// TestDTypeSizes: elements fill whole bytes, unless the row of a dtype says that the last byte is
// padded. No dtype of the reference is yet; U3 will be, with 8 elements in 3 bytes.
func TestDTypeSizes(t *testing.T) {
	padded := dtypeRow{name: "U3", bits: 3, padded: true}
	for n, want := range []int64{0, 1, 1, 2, 2, 2, 3, 3, 3, 4} {
		size, ok := padded.bytes(uint64(n))
		require.True(t, ok)
		require.Equal(t, want, size, n)
		whole := dtypeRow{name: "U3", bits: 3}
		size, ok = whole.bytes(uint64(n))
		require.Equal(t, n%8 == 0, ok, n)
		if ok {
			require.Equal(t, want, size, n)
		}
	}
	for _, row := range []dtypeRow{padded, {bits: 4}, {bits: 64}} {
		most := math.MaxUint64 / uint64(row.bits) &^ 7
		size, ok := row.bytes(most)
		require.True(t, ok)
		require.EqualValues(t, most/8*uint64(row.bits), size)
		for _, more := range []uint64{math.MaxUint64, math.MaxUint64/uint64(row.bits) + 1} {
			_, ok = row.bytes(more)
			require.False(t, ok, "%d bits, %d elements", row.bits, more)
		}
	}
	_, ok := dtypes[0].bytes(0)
	require.False(t, ok)
	for d := range DTypes() {
		require.False(t, dtypes[d].padded, "%v is the first padded dtype: CONTRIBUTING.md says what has to round up for it", d)
	}
}

// TestDTypeFloat checks that each float dtype, and each integer that Append converts,
// has a format of its own.
func TestDTypeFloat(t *testing.T) {
	seen := map[float.Format]DType{}
	for d := range DTypes() {
		f := d.float()
		converted := !slices.Contains([]DType{BOOL, C64, I64, U64}, d)
		require.Equal(t, converted, f != float.None, "%v", d)
		if converted {
			require.Equal(t, d.Bits(), f.Bits(), "%v", d)
			require.NotContains(t, seen, f, "%v", d)
			seen[f] = d
		}
		require.Equal(t, strings.HasPrefix(d.String(), "F") || d == BF16, d.IsFloat(), "%v", d)
	}
	require.Len(t, seen, int(float.U32))
	require.Equal(t, float.None, DType(0).float())
	require.Equal(t, float.None, DType(len(dtypes)).float())
	require.False(t, DType(0).IsFloat())
	require.False(t, DType(255).IsFloat())
}
