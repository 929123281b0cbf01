package safetensors

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"
)

// The float dtypes, those of at most 16 bits first, and those that can be
// converted to.
var (
	smallFloats = []DType{F4, F6_E2M3, F6_E3M2, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16}
	floats      = append(smallFloats[:len(smallFloats):len(smallFloats)], F32, F64)
	targets     = []DType{F8_E5M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16, F32, F64}
)

// slowDecode returns the value of a code, as the specifications put it.
func slowDecode(d DType, code uint64) float64 {
	var exp, man, bias int
	switch d {
	case F4:
		exp, man, bias = 2, 1, 1
	case F6_E2M3:
		exp, man, bias = 2, 3, 1
	case F6_E3M2:
		exp, man, bias = 3, 2, 3
	case F8_E5M2:
		exp, man, bias = 5, 2, 15
	case F8_E4M3:
		exp, man, bias = 4, 3, 7
	case F8_E4M3FNUZ:
		exp, man, bias = 4, 3, 8
	case F8_E5M2FNUZ:
		exp, man, bias = 5, 2, 16
	case F16:
		exp, man, bias = 5, 10, 15
	case BF16:
		exp, man, bias = 8, 7, 127
	case F8_E8M0:
		if code == 0xff {
			return math.NaN()
		}
		return math.Ldexp(1, int(code)-127)
	case F32:
		return float64(math.Float32frombits(uint32(code)))
	default:
		return math.Float64frombits(code)
	}
	sign := 1.0
	if code>>(exp+man) == 1 {
		sign = -1
	}
	e, m := int(code)>>man&(1<<exp-1), float64(code&(1<<man-1))
	switch {
	case (d == F8_E4M3FNUZ || d == F8_E5M2FNUZ) && code == 0x80, d == F8_E4M3 && code&0x7f == 0x7f:
		return math.NaN()
	case (d == F8_E5M2 || d == F16 || d == BF16) && e == 1<<exp-1:
		if m == 0 {
			return math.Inf(int(sign))
		}
		return math.NaN()
	case e == 0:
		return math.Copysign(math.Ldexp(m, 1-bias-man), sign)
	default:
		return math.Copysign(math.Ldexp(m+math.Ldexp(1, man), e-bias-man), sign)
	}
}

// finiteValues returns the values of the codes from 0 to the largest finite one.
func finiteValues(d DType) []float64 {
	var values []float64
	for code := uint64(0); ; code++ {
		v := slowDecode(d, code)
		if v-v != 0 || v < 0 || code > 0 && v == 0 { // not finite, or the sign bit
			return values
		}
		values = append(values, v)
	}
}

// A slowEncoder finds the nearest value by search.
type slowEncoder struct {
	d      DType
	values []float64
}

// encode returns the code of the nearest value, of two the even one. x is not
// a NaN.
func (s slowEncoder) encode(x float64) uint64 {
	switch s.d {
	case F64:
		return math.Float64bits(x)
	case F32:
		f, _ := big.NewFloat(x).Float32()
		return uint64(math.Float32bits(f))
	}
	last := len(s.values) - 1
	value := func(i int) float64 {
		if i > last {
			return 2*s.values[last] - s.values[last-1]
		}
		return s.values[i]
	}
	abs := math.Abs(x)
	i := sort.Search(last+1, func(i int) bool { return value(i+1) > abs })
	i = min(i, last)
	// The midpoint of two neighbours is a float64.
	if mid := (value(i) + value(i+1)) / 2; abs > mid || abs == mid && i%2 == 1 {
		i++
	}
	code := uint64(i)
	if math.Signbit(x) && !(code == 0 && (s.d == F8_E4M3FNUZ || s.d == F8_E5M2FNUZ)) {
		code |= 1 << (s.d.Bits() - 1)
	}
	return code
}

// slowConvert converts one element.
func (s slowEncoder) convert(from DType, code uint64) uint64 {
	if x := slowDecode(from, code); !math.IsNaN(x) {
		return s.encode(x)
	}
	// The payload, at the top of 52 bits, and made quiet.
	var payload uint64
	switch from {
	case F8_E5M2:
		payload = code << 50
	case F16:
		payload = code << 42
	case BF16:
		payload = code << 45
	case F32:
		payload = code << 29
	case F64:
		payload = code
	}
	payload = payload&(1<<52-1) | 1<<51
	sign := from != F8_E8M0 && code>>(from.Bits()-1) == 1
	var nan uint64
	switch s.d {
	case F8_E5M2:
		nan = 0x7c | payload>>50
	case F8_E4M3:
		nan = 0x7f
	case F8_E4M3FNUZ, F8_E5M2FNUZ:
		nan = 0x80
	case F16:
		nan = 0x7c00 | payload>>42
	case BF16:
		nan = 0x7f80 | payload>>45
	case F32:
		nan = 0x7f800000 | payload>>29
		if from == BF16 {
			nan = code << 16 & 0x7fffffff // as it is
		}
	case F64:
		nan = 0x7ff<<52 | payload
	}
	if sign {
		nan |= 1 << (s.d.Bits() - 1)
	}
	return nan
}

// pack lays codes of dtype d out as in a file.
func pack(d DType, codes []uint64) []byte {
	var b []byte
	var acc, n uint64
	for _, code := range codes {
		if d == F64 {
			b = binary.LittleEndian.AppendUint64(b, code)
			continue
		}
		acc |= code << n
		for n += uint64(d.Bits()); n >= 8; n -= 8 {
			b = append(b, byte(acc))
			acc >>= 8
		}
	}
	return b
}

// unpack is the inverse of pack.
func unpack(d DType, b []byte) []uint64 {
	var codes []uint64
	var acc uint64
	var n int
	for i := 0; i < len(b); i++ {
		if d == F64 {
			codes = append(codes, binary.LittleEndian.Uint64(b[i:]))
			i += 7
			continue
		}
		acc |= uint64(b[i]) << n
		for n += 8; n >= d.Bits(); n -= d.Bits() {
			codes = append(codes, acc&(1<<d.Bits()-1))
			acc >>= d.Bits()
		}
	}
	return codes
}

// requireConvert compares the conversion of codes with the slow one, by the
// loops and by what convert makes of them.
func requireConvert(t *testing.T, to, from DType, codes []uint64) {
	t.Helper()
	s := slowEncoder{to, nil}
	if to.Bits() <= 16 {
		s.values = finiteValues(to)
	}
	src := pack(from, codes)
	dst := make([]byte, len(codes)*to.Bits()/8)
	check := func(name string) {
		t.Helper()
		got := unpack(to, dst)
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

func TestConvertEveryCode(t *testing.T) {
	for _, from := range smallFloats {
		for _, to := range targets {
			if from != to {
				requireConvert(t, to, from, allCodes(from))
			}
		}
	}
}

// edges returns the bits of values of dtype d, F32 or F64, at and next to the
// values of dtype of and the midpoints between them, in both signs, and of
// infinities and NaNs.
func edges(d, of DType) []uint64 {
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

func TestConvertRounding(t *testing.T) {
	for _, to := range targets {
		if to.Bits() <= 16 {
			requireConvert(t, to, F32, edges(F32, to))
			requireConvert(t, to, F64, edges(F64, to))
		}
	}
}

// A value that rounds up to a midpoint of BF16 in float32, and would from
// there to the even neighbour above.
func TestConvertRoundsOnce(t *testing.T) {
	x := 1 + 1.0/128 + 1.0/256 - 1.0/(1<<40) // below the midpoint above an odd code
	dst := make([]byte, 2)
	convert(dst, BF16, pack(F64, []uint64{math.Float64bits(x)}), F64, false)
	require.Equal(t, []uint64{0x3f81}, unpack(BF16, dst))
}

func TestConvertF32F64(t *testing.T) {
	requireConvert(t, F64, F32, edges(F32, F16))
	requireConvert(t, F32, F64, edges(F64, F16))
	rng := rand.New(rand.NewPCG(1, 2))
	var singles, doubles []uint64
	for range 20000 {
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

func TestConvertRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var singles, doubles []uint64
	for range 50000 {
		singles = append(singles, uint64(rng.Uint32()))
		// Spread over the exponents of float32.
		doubles = append(doubles, rng.Uint64()&^(0x7ff<<52)|(800+rng.Uint64N(400))<<52)
	}
	for _, to := range targets {
		if to != F32 {
			requireConvert(t, to, F32, singles)
		}
		if to != F64 {
			requireConvert(t, to, F64, doubles)
		}
	}
}

func TestConvertF16IsX448(t *testing.T) {
	src := pack(F16, allCodes(F16))
	wide := make([]byte, 4<<16)
	for _, toF32 := range []func(){
		func() { convert(wide, F32, src, F16, false) },
		func() { portableToF32(wide, src, F16) },
	} {
		clear(wide)
		toF32()
		for h, got := range unpack(F32, wide) {
			if want := math.Float32bits(float16.Frombits(uint16(h)).Float32()); uint32(got) != want {
				require.Failf(t, "wrong value", "%#x is %#x, want %#x", h, got, want)
			}
		}
	}

	rng := rand.New(rand.NewPCG(5, 6))
	singles := edges(F32, F16)
	for range 1 << 20 {
		x := uint64(rng.Uint32())
		// The second has an exponent near those of F16.
		singles = append(singles, x, x&^(0xff<<23)|(100+x>>23&63)<<23)
	}
	src = pack(F32, singles)
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
	w, g := unpack(d, want), unpack(d, got)
	require.Len(t, g, len(w))
	sign := uint64(1) << (d.Bits() - 1)
	for i := range w {
		if w[i] != g[i] && !(math.IsNaN(slowDecode(d, w[i])) && math.IsNaN(slowDecode(d, g[i])) && w[i]&sign == g[i]&sign) {
			require.Failf(t, "wrong code", "%v element %d: %#x, want %#x", d, i, g[i], w[i])
		}
	}
}

// The vectors are those of ml_dtypes and numpy: testdata/convert/generate.py.
func TestConvertVectors(t *testing.T) {
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
			convert(got, F32, pack(d, allCodes(d)), d, false)
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
			want := contains(floats, from) && (contains(targets, to) || from == to)
			require.Equal(t, want, convertible(from, to), "%v to %v", from, to)
		}
	}
}

func contains(ds []DType, d DType) bool {
	for _, v := range ds {
		if v == d {
			return true
		}
	}
	return false
}

// exact is what comparing every code says.
func TestExact(t *testing.T) {
	for from := DType(0); from <= U64+1; from++ {
		for to := DType(0); to <= U64+1; to++ {
			want := contains(floats, from) && (from == to || to == F64)
			if contains(smallFloats, from) && contains(floats, to) {
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
	for _, d := range floats {
		dst := make([]byte, len(src))
		convert(dst, d, src, d, false)
		require.Equal(t, src, dst)
	}
}
