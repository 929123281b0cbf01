package float

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireConvert converts codes with Convert and with the loops, and compares both results with
// those of the slow conversion.
func requireConvert(t *testing.T, to, from Format, codes []uint64) {
	t.Helper()
	s := slowEncoder{f: to}
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
	Convert(dst, to, src, from, false)
	check("Convert")
	switch {
	case to == F32 && from != F32:
		portableToF32(dst, src, from)
		check("portable")
	case from == F32 && to != F32:
		portableFromF32(dst, to, src)
		check("portable")
	}
}

// allCodes returns every code of a format of at most 16 bits.
func allCodes(f Format) []uint64 {
	codes := make([]uint64, 1<<f.Bits())
	for i := range codes {
		codes[i] = uint64(i)
	}
	return codes
}

// floatEdges returns codes of format f, which is F32 or F64, with both signs: the values of the
// narrower format to, the midpoints between them, the neighbours of both, infinities and NaNs.
func floatEdges(f, to Format) []uint64 {
	var codes []uint64
	values := finiteValues(to)
	last := len(values) - 1
	values = append(values, 2*values[last]-values[last-1])
	sign := uint64(1) << (f.Bits() - 1)
	add := func(x float64) {
		bits := math.Float64bits(x)
		if f == F32 {
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
	if f == F64 {
		inf = math.Float64bits(math.Inf(1))
	}
	for i := range f.Bits() {
		codes = append(codes, inf|1<<i, inf|1<<i|sign, (inf|1<<i)-1)
	}
	return codes
}

// TestConvert converts every code of the formats of at most 16 bits. For F32 and F64 it converts
// numbers at the edges of rounding, and random numbers.
func TestConvert(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var singles, doubles, between []uint64
	for i := range 50_000 {
		x := rng.Uint32()
		singles = append(singles, uint64(x))
		// The exponents cover those of float32, and some beyond them.
		doubles = append(doubles, rng.Uint64()&^(0x7ff<<52)|(800+rng.Uint64N(400))<<52)
		if i%6 == 0 {
			f := math.Float32frombits(x)
			next := math.Nextafter32(f, float32(math.Inf(1)))
			mid := math.Float64bits((float64(f) + float64(next)) / 2)
			between = append(between, mid-1, mid, mid+1, rng.Uint64())
		}
	}
	for _, x := range []float64{
		math.MaxFloat32, 0x1.ffffffp127, 0x1.fffffefffffffp127, 0x1p128,
		0x1p-149, 0x1p-150, 0x1.0000000000001p-150, 0x1.8p-149, 0x1.fffffep-127, 0x1.ffffffp-127, 0x1p-126, 0x1p-1074,
	} {
		between = append(between, math.Float64bits(x), math.Float64bits(-x))
	}
	requireConvert(t, F32, F64, between)
	for _, to := range targetFormats {
		for _, from := range smallFormats {
			if from != to {
				codes := allCodes(from)
				requireConvert(t, to, from, append(codes, codes[:16]...)) // so many codes that they take several chunks, of which the last is not full
			}
		}
		of := F16
		if to.Bits() <= 16 {
			of = to
		}
		if to != F32 {
			requireConvert(t, to, F32, append(floatEdges(F32, of), singles...))
		}
		if to != F64 {
			requireConvert(t, to, F64, append(floatEdges(F64, of), doubles...))
		}
	}
}

// requireSame compares codes of format f. NaNs are equal if their signs are.
func requireSame(t *testing.T, f Format, want, got []byte) {
	t.Helper()
	w, g := unpackCodes(f, want), unpackCodes(f, got)
	require.Len(t, g, len(w))
	sign := uint64(1) << (f.Bits() - 1)
	for i := range w {
		if w[i] != g[i] && !(math.IsNaN(slowDecode(f, w[i])) && math.IsNaN(slowDecode(f, g[i])) && w[i]&sign == g[i]&sign) {
			require.Failf(t, "wrong code", "%v element %d: %#x, want %#x", f, i, g[i], w[i])
		}
	}
}

// readVectors returns the contents of the files testdata/*.ext. The keys are their names without
// the extension. testdata/generate.py describes and writes these files.
func readVectors(t *testing.T, ext string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/*" + ext)
	require.NoError(t, err)
	vectors := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		vectors[strings.TrimSuffix(filepath.Base(path), ext)] = data
	}
	return vectors
}

func formatNamed(t *testing.T, name string) Format {
	t.Helper()
	for f, s := range formatNames {
		if s == name {
			return f
		}
	}
	require.Failf(t, "no such format", "%q", name)
	return None
}

// TestDecodeVectors decodes every code of each small format, and compares the numbers with those
// that ml_dtypes and PyTorch give.
func TestDecodeVectors(t *testing.T) {
	vectors := readVectors(t, ".decode")
	require.Len(t, vectors, 8)
	for name, want := range vectors {
		f := formatNamed(t, name)
		got := make([]byte, len(want))
		Convert(got, F32, packCodes(f, allCodes(f)), f, false)
		requireSame(t, F32, want, got)
	}
}

// TestRoundVectors rounds numbers at and around every boundary between two codes, and compares the
// codes with those that ml_dtypes and PyTorch give.
func TestRoundVectors(t *testing.T) {
	vectors := readVectors(t, ".round")
	require.Len(t, vectors, 6+7) // 6 files of roundings from F32, and 7 from F64
	for name, data := range vectors {
		source, target, _ := strings.Cut(name, "-")
		from, to := formatNamed(t, source), formatNamed(t, target)
		in, out := from.Bits()/8, to.Bits()/8
		require.Zero(t, len(data)%(in+out))
		require.Greater(t, len(data)/(in+out), 2000)
		var src, want []byte
		for ; len(data) > 0; data = data[in+out:] {
			src = append(src, data[:in]...)
			want = append(want, data[in:in+out]...)
		}
		got := make([]byte, len(want))
		Convert(got, to, src, from, false)
		requireSame(t, to, want, got)
		if from == F32 {
			wide := make([]byte, 2*len(src))
			Convert(wide, F64, src, F32, false)
			clear(got)
			Convert(got, to, wide, F64, false)
			requireSame(t, to, want, got)
			portableFromF32(got, to, src)
			requireSame(t, to, want, got)
		}
	}
}

// TestConvertible compares Convertible, for all pairs of formats, with a list.
func TestConvertible(t *testing.T) {
	for from := None; from <= U32; from++ {
		for to := None; to <= U32; to++ {
			want := slices.Contains(allFormats, from) && slices.Contains(targetFormats, to) || from == to && from != None
			require.Equal(t, want, Convertible(from, to), "%v to %v", from, to)
		}
	}
}

// TestExact checks Exact with every code of the formats of at most 16 bits, and with numbers of the
// other formats that need all of their bits.
func TestExact(t *testing.T) {
	largest := map[Format]uint64{F32: 0x7f7fffff, F64: 0x7fefffffffffffff, I32: 1<<31 - 1, U32: 1<<32 - 1}
	for from := F4; from <= U32; from++ {
		codes := []uint64{largest[from]}
		if from.Bits() <= 16 {
			codes = allCodes(from)
		}
		single := true
		for _, code := range codes {
			x := slowDecode(from, code)
			single = single && (float64(float32(x)) == x || math.IsNaN(x))
		}
		require.Equal(t, single, Exact(from, F32), from)
		require.True(t, Exact(from, F64), from)
		require.False(t, Exact(from, F16), from)
	}
	require.False(t, Exact(None, F64))
}

// TestConvertIntegers converts every integer of up to 16 bits, and integers of 32 bits at the edges
// of their range. It tries different numbers of elements.
func TestConvertIntegers(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	edges := []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<31 + 1, 1<<32 - 1, 1<<24 + 1, 1 << 16}
	for range 4000 {
		edges = append(edges, uint64(rng.Uint32()))
	}
	for _, from := range integers {
		codes := edges
		if from.Bits() <= 16 {
			codes = allCodes(from)
		}
		for n := range 41 {
			some := codes[len(codes)/2:][:n]
			if n == 40 {
				some = codes
			}
			requireConvert(t, F64, from, some)
			if Exact(from, F32) {
				requireConvert(t, F32, from, some)
			}
		}
	}
}

// TestConvertSameFormatCopies: a conversion to the same format keeps every bit, even of signaling
// NaNs.
func TestConvertSameFormatCopies(t *testing.T) {
	src := []byte("signaling or not, twelve bytes!!")[:24]
	for _, f := range allFormats {
		dst := make([]byte, len(src))
		Convert(dst, f, src, f, false)
		require.Equal(t, src, dst)
	}
}
