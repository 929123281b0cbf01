package safetensors

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"
)

// requireConvert compares the conversion of codes with the slow one, by the
// loops and by what convert makes of them.
func requireConvert(t *testing.T, to, from DType, codes []uint64) {
	t.Helper()
	s := slowEncoder{to, nil}
	if to.Bits() <= 16 {
		s.values = finiteValues(to)
	}
	src := packCodes(from, codes)
	dst := make([]byte, len(codes)*to.Bits()/8)
	check := func(name string) {
		t.Helper()
		got := unpackCodes(to, dst)
		require.Len(t, got, len(codes))
		for i, code := range codes {
			if want := s.convert(from, code); got[i] != want {
				require.Failf(t, "wrong code", "%s %v to %v: %#x to %#x, want %#x", name, from, to, code, got[i], want)
			}
		}
		clear(dst)
	}
	convert(dst, to, src, from, false)
	check("convert")
	switch {
	case to == F32 && from != F32:
		portableToF32(dst, src, from)
		check("portable")
	case from == F32 && to != F32:
		portableFromF32(dst, to, src)
		check("portable")
	}
}

// allCodes returns every code of a dtype of at most 16 bits.
func allCodes(d DType) []uint64 {
	codes := make([]uint64, 1<<d.Bits())
	for i := range codes {
		codes[i] = uint64(i)
	}
	return codes
}

func TestConvertEveryCode(t *testing.T) { withKernels(t, testConvertEveryCode) }

func testConvertEveryCode(t *testing.T) {
	for _, from := range smallFloats {
		for _, to := range floatTargets {
			if from != to {
				requireConvert(t, to, from, allCodes(from))
			}
		}
	}
}

// floatEdges returns the bits of values of dtype d, F32 or F64, at and next to
// the values of dtype of and the midpoints between them, in both signs, and of
// infinities and NaNs.
func floatEdges(d, of DType) []uint64 {
	var codes []uint64
	values := finiteValues(of)
	last := len(values) - 1
	values = append(values, 2*values[last]-values[last-1])
	sign := uint64(1) << (d.Bits() - 1)
	add := func(x float64) {
		bits := math.Float64bits(x)
		if d == F32 {
			bits = uint64(math.Float32bits(float32(x)))
		}
		codes = append(codes, bits, bits+1, bits|sign, bits+1|sign)
		if bits > 0 {
			codes = append(codes, bits-1, (bits-1)|sign)
		}
	}
	for i, v := range values {
		add(v)
		if i > 0 {
			add((values[i-1] + v) / 2)
		}
	}
	add(2 * values[last])
	add(math.MaxFloat32)
	add(math.MaxFloat64)
	add(math.SmallestNonzeroFloat64)
	add(math.SmallestNonzeroFloat32)
	inf := uint64(math.Float32bits(float32(math.Inf(1))))
	if d == F64 {
		inf = math.Float64bits(math.Inf(1))
	}
	for i := 0; i < d.Bits(); i++ {
		codes = append(codes, inf|1<<i, inf|1<<i|sign, (inf|1<<i)-1)
	}
	return codes
}

func TestConvertRounding(t *testing.T) { withKernels(t, testConvertRounding) }

func testConvertRounding(t *testing.T) {
	for _, to := range floatTargets {
		if to.Bits() <= 16 {
			requireConvert(t, to, F32, floatEdges(F32, to))
			requireConvert(t, to, F64, floatEdges(F64, to))
		}
	}
}

// In float32, x would be the midpoint of two BF16, and from there go up to the
// even one.
func TestConvertRoundsOnce(t *testing.T) {
	x := 1 + 0x1p-7 + 0x1p-8 - 0x1p-40
	dst := make([]byte, 2)
	convert(dst, BF16, packCodes(F64, []uint64{math.Float64bits(x)}), F64, false)
	require.Equal(t, []uint64{0x3f81}, unpackCodes(BF16, dst))
}

func TestConvertF32F64(t *testing.T) {
	requireConvert(t, F64, F32, floatEdges(F32, F16))
	requireConvert(t, F32, F64, floatEdges(F64, F16))
	rng := rand.New(rand.NewPCG(1, 2))
	var singles, doubles []uint64
	for range 8000 {
		x := rng.Uint32()
		singles = append(singles, uint64(x))
		f := math.Float32frombits(x)
		next := math.Nextafter32(f, float32(math.Inf(1)))
		mid := math.Float64bits((float64(f) + float64(next)) / 2)
		doubles = append(doubles, mid-1, mid, mid+1, rng.Uint64())
	}
	for _, x := range []float64{
		math.MaxFloat32, 0x1.ffffffp127, 0x1.fffffefffffffp127, 0x1p128,
		0x1p-149, 0x1p-150, 0x1.0000000000001p-150, 0x1.8p-149, 0x1.fffffep-127, 0x1.ffffffp-127, 0x1p-126, 0x1p-1074,
	} {
		doubles = append(doubles, math.Float64bits(x), math.Float64bits(-x))
	}
	requireConvert(t, F64, F32, singles)
	requireConvert(t, F32, F64, doubles)
}

func TestConvertRandom(t *testing.T) { withKernels(t, testConvertRandom) }

func testConvertRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var singles, doubles []uint64
	for range 50000 {
		singles = append(singles, uint64(rng.Uint32()))
		// Spread over the exponents of float32.
		doubles = append(doubles, rng.Uint64()&^(0x7ff<<52)|(800+rng.Uint64N(400))<<52)
	}
	for _, to := range floatTargets {
		if to != F32 {
			requireConvert(t, to, F32, singles)
		}
		if to != F64 {
			requireConvert(t, to, F64, doubles)
		}
	}
}

func TestConvertF16IsX448(t *testing.T) { withKernels(t, testConvertF16IsX448) }

func testConvertF16IsX448(t *testing.T) {
	src := packCodes(F16, allCodes(F16))
	wide := make([]byte, 4<<16)
	for _, toF32 := range []func(){
		func() { convert(wide, F32, src, F16, false) },
		func() { portableToF32(wide, src, F16) },
	} {
		clear(wide)
		toF32()
		for h, got := range unpackCodes(F32, wide) {
			if want := math.Float32bits(float16.Frombits(uint16(h)).Float32()); uint32(got) != want {
				require.Failf(t, "wrong value", "%#x is %#x, want %#x", h, got, want)
			}
		}
	}

	rng := rand.New(rand.NewPCG(5, 6))
	singles := floatEdges(F32, F16)
	for range 1 << 20 {
		x := uint64(rng.Uint32())
		// The second has an exponent near those of F16.
		singles = append(singles, x, x&^(0xff<<23)|(100+x>>23&63)<<23)
	}
	src = packCodes(F32, singles)
	dst := make([]byte, 2*len(singles))
	for _, fromF32 := range []func(){
		func() { convert(dst, F16, src, F32, false) },
		func() { portableFromF32(dst, F16, src) },
	} {
		clear(dst)
		fromF32()
		for i, x := range singles {
			got := binary.LittleEndian.Uint16(dst[2*i:])
			if want := float16.Fromfloat32(math.Float32frombits(uint32(x))).Bits(); got != want {
				require.Failf(t, "wrong code", "%#x to %#x, want %#x", x, got, want)
			}
		}
	}
}

// requireSame compares codes of d, and NaNs as NaNs of the same sign.
func requireSame(t *testing.T, d DType, want, got []byte) {
	t.Helper()
	w, g := unpackCodes(d, want), unpackCodes(d, got)
	require.Len(t, g, len(w))
	sign := uint64(1) << (d.Bits() - 1)
	for i := range w {
		if w[i] != g[i] && !(math.IsNaN(slowDecode(d, w[i])) && math.IsNaN(slowDecode(d, g[i])) && w[i]&sign == g[i]&sign) {
			require.Failf(t, "wrong code", "%v element %d: %#x, want %#x", d, i, g[i], w[i])
		}
	}
}

// The vectors are those of ml_dtypes and numpy: testdata/convert/generate.py.
func TestConvertVectors(t *testing.T) { withKernels(t, testConvertVectors) }

func testConvertVectors(t *testing.T) {
	names, err := filepath.Glob("testdata/convert/*code")
	require.NoError(t, err)
	require.Len(t, names, 8+6)
	for _, name := range names {
		var d DType
		base := filepath.Base(name)
		ext := filepath.Ext(base)
		require.NoError(t, d.UnmarshalText([]byte(base[:len(base)-len(ext)])))
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		if ext == ".decode" {
			got := make([]byte, len(data))
			convert(got, F32, packCodes(d, allCodes(d)), d, false)
			requireSame(t, F32, data, got)
			continue
		}
		var src, want []byte
		for size := d.Bits() / 8; len(data) > 0; data = data[4+size:] {
			src = append(src, data[:4]...)
			want = append(want, data[4:4+size]...)
		}
		got := make([]byte, len(want))
		convert(got, d, src, F32, false)
		requireSame(t, d, want, got)
		wide := make([]byte, 2*len(src))
		convert(wide, F64, src, F32, false)
		clear(got)
		convert(got, d, wide, F64, false)
		requireSame(t, d, want, got)
	}
}

func TestConvertible(t *testing.T) {
	for from := DType(0); from <= U64+1; from++ {
		for to := DType(0); to <= U64+1; to++ {
			want := slices.Contains(allFloats, from) && (slices.Contains(floatTargets, to) || from == to)
			require.Equal(t, want, convertible(from, to), "%v to %v", from, to)
		}
	}
}

// exact is what comparing every code says.
func TestExact(t *testing.T) {
	for from := DType(0); from <= U64+1; from++ {
		for to := DType(0); to <= U64+1; to++ {
			want := slices.Contains(allFloats, from) && (from == to || to == F64)
			if slices.Contains(smallFloats, from) && slices.Contains(allFloats, to) {
				want = from == to || to == F32 || to == F64 || slowExact(from, to)
			}
			require.Equal(t, want, exact(from, to), "%v in %v", from, to)
		}
	}
}

func slowExact(from, to DType) bool {
	type value struct {
		x   float64
		neg bool
	}
	values := map[value]bool{}
	key := func(d DType, code uint64) value {
		x := slowDecode(d, code)
		if math.IsNaN(x) {
			return value{neg: d != F8_E8M0 && code>>(d.Bits()-1) == 1, x: -1e300} // in place of NaN
		}
		return value{x, math.Signbit(x)}
	}
	for _, code := range allCodes(to) {
		values[key(to, code)] = true
	}
	for _, code := range allCodes(from) {
		if !values[key(from, code)] {
			return false
		}
	}
	return true
}

func TestConvertSameDTypeCopies(t *testing.T) {
	src := []byte("signaling or not, twelve bytes!!")[:24]
	for _, d := range allFloats {
		dst := make([]byte, len(src))
		convert(dst, d, src, d, false)
		require.Equal(t, src, dst)
	}
}
