package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// withPrefix returns a file with that header and so many bytes of data.
func withPrefix(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// parseBoth parses a header by the fast path and by the general one alone, and
// checks that they agree.
func parseBoth(t testing.TB, text []byte, dataSize int64) (*table, error) {
	fast, err := parseHeader(bytes.Clone(text), dataSize)
	p := newParser(bytes.Clone(text))
	p.slow = true
	slow, slowErr := p.parse(dataSize)
	require.Equal(t, slowErr, err, "%q", text)
	if err == nil {
		require.Equal(t, slow.header(), fast.header(), "%q", text)
		require.True(t, json.Valid(text), "%q", text)
		checkTable(t, fast, dataSize)
	}
	return fast, err
}

// checkTable checks what a validated table promises.
func checkTable(t testing.TB, h *table, dataSize int64) {
	end := int64(0)
	names := make(map[string]bool)
	for i := range h.entries {
		e := &h.entries[i]
		require.Equal(t, end, e.begin)
		require.LessOrEqual(t, e.begin, e.end)
		end = e.end
		size, broken := checkShape(e.dtype(), h.shape(e))
		require.Empty(t, broken)
		require.Equal(t, size, e.end-e.begin)
		require.False(t, names[h.name(i)])
		names[h.name(i)] = true
		require.Equal(t, i, h.names.lookup(h.name(i), h.name))
	}
	if dataSize >= 0 {
		require.Equal(t, dataSize, end)
	}
}

func TestFastPathAgrees(t *testing.T) {
	for _, c := range conformanceCases(t) {
		if length, err := checkHeaderLength(append(c.File, make([]byte, 8)...), int64(len(c.File))); err == nil {
			text := c.File[prefixSize:][:length]
			_, err := parseBoth(t, text, int64(len(c.File))-prefixSize-length)
			require.Equal(t, c.Want == "accept", err == nil, c.Name)
			parseBoth(t, text, -1)
		}
	}
}

// TestMutations changes headers a little, at random and with what is likely to
// be a border case, and checks that fast and general path agree.
func TestMutations(t *testing.T) {
	seeds := []string{
		`{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}`,
		`{"__metadata__":{"k":"v"},"a":{"dtype":"BF16","shape":[12345678,0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}  `,
		`{"b":{"data_offsets":[100,116],"x":[{"y":-1.5e3}],"dtype":"F8_E4M3FNUZ","shape":[16]},"a\n\u00e9":{"dtype":"F4","shape":[200],"data_offsets":[0,100]}}`,
		`{"w":{"dtype":"I64","shape":[1234567890123],"data_offsets":[0,9876543120984]}}`,
		`{"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"b":{"dtype":"F8_E4M3","shape":[],"data_offsets":[12,13]},` +
			`"c":{"dtype":"F8_E4M3FNUZ","shape":[1,1,1,1,1,1,1,1,3],"data_offsets":[13,16]},"d":{"dtype":"F8_E5M2FNUZ","shape":[0],"data_offsets":[16,16]},` +
			`"e":{"dtype":"F6_E2M3","shape":[123456784],"data_offsets":[16,92592604]},"f":{"dtype":"U8","shape":[10],"data_offsets":[92592604,92592614]}}`,
	}
	pieces := []string{
		"0", "1", "9", "00", "01", "-", "+", ".", "e", "E5", `"`, `\`, `\u0041`, `\ud800`, `\ud83d\ude00`, ",", ":", "[", "]", "{", "}",
		" ", "\n", "\x00", "\x1f", "\x7f", "\xff", "é", "null", "true", `"a"`, `"dtype"`, `"shape"`, `"F32"`, `"U8"`, "F16", "123456789012345678",
		"9223372036854775807", "9223372036854775808", "18446744073709551616", "1e400", `"x":1,`, `"__metadata__":null,`, "[0,0]", "[]",
		"U8", "BF16", "F8_E4M3", "FNUZ", "F8_E4M3F", "__metadata__",
	}
	random := rand.New(rand.NewPCG(1, 2))
	accepted, fast := 0, 0
	n := 300_000
	if testing.Short() || raceEnabled {
		n = 20_000
	}
	for range n {
		text := []byte(seeds[random.IntN(len(seeds))])
		for range 1 + random.IntN(3) {
			at := random.IntN(len(text))
			piece := pieces[random.IntN(len(pieces))]
			switch random.IntN(5) {
			case 0: // insert
				text = append(text[:at:at], append([]byte(piece), text[at:]...)...)
			case 1: // overwrite
				text = append(text[:at:at], append([]byte(piece), text[min(len(text), at+len(piece)):]...)...)
			case 2: // one byte
				text[at] = byte(random.IntN(256))
			case 3: // delete
				text = append(text[:at:at], text[min(len(text), at+1+random.IntN(4)):]...)
			case 4: // repeat
				to := at + random.IntN(len(text)-at)
				text = append(text[:to:to], text[at:]...)
			}
			if len(text) == 0 {
				text = []byte("{")
			}
		}
		if _, err := parseBoth(t, text, -1); err == nil {
			accepted++
		}
		p := newParser(text)
		p.Pos = 1
		if p.canonical(); len(p.t.entries) > 1 {
			fast++
		}
	}
	require.Greater(t, accepted, n/100, "too few mutations are accepted to show anything")
	require.Greater(t, fast, n/10, "the fast path is taken too rarely to show anything")
}

// TestSpelledDTypes changes the names of all dtypes in each place, among them to
// those of others.
func TestSpelledDTypes(t *testing.T) {
	for d := range dtypes {
		for _, row := range dtypes {
			name := row.name
			for i := range name {
				for _, other := range []string{name[:i] + name[i+1:], name[:i] + "X" + name[i+1:], name[:i] + `"` + name[i+1:], name + name[i:], name} {
					// The first entry is what the parser expects of the second.
					text := fmt.Sprintf(`{"a":{"dtype":"%s","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"%s","shape":[0],"data_offsets":[0,0]},`+
						`"c":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, DType(d), other)
					parseBoth(t, []byte(text), 0)
				}
			}
		}
	}
}

// TestNearlyCanonical has entries that are canonical up to some point.
func TestNearlyCanonical(t *testing.T) {
	const entry = `"a":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}`
	for i, c := range []struct{ old, new string }{
		{`"a"`, `"__metadata__"`},
		{`"a"`, `"a\u0000"`},
		{`"a":`, `"a" :`},
		{`"U8"`, `"U8" `},
		{`"U8"`, `"u8"`},
		{`[2,3]`, `[2 ,3]`},
		{`[2,3]`, `[2,03]`},
		{`[2,3]`, `[2,3,]`},
		{`[2,3]`, `[2,-3]`},
		{`[2,3]`, `[0000000000000000002,3]`},
		{`[2,3]`, `[6,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]`},
		{`[2,3],`, `[2,3] ,`},
		{`[0,6]`, `[0 ,6]`},
		{`[0,6]`, `[00,6]`},
		{`[0,6]`, `[0,6.0]`},
		{`[0,6]`, `[0,6,6]`},
		{`[0,6]`, `[0,7]`},
		{`[0,6]}`, `[0,6],"x":1}`},
		{`[0,6]}`, `[0,6]} `},
	} {
		changed := strings.Replace(entry, c.old, c.new, 1)
		require.NotEqual(t, entry, changed)
		rest := `,"b":{"dtype":"U8","shape":[1],"data_offsets":[6,7]},"c":{"dtype":"U8","shape":[1],"data_offsets":[7,8]}}`
		parsed, err := parseBoth(t, []byte("{"+changed+rest), 8)
		if i == 0 {
			require.Error(t, err) // __metadata__ is never a tensor
		} else if err == nil {
			require.Len(t, parsed.entries, 3)
		}
	}
}

// TestEverySmallChange takes every prefix and every change of a byte of a small
// file: whatever the verdict, there is no panic, and what is accepted holds what
// a table promises.
func TestEverySmallChange(t *testing.T) {
	file := withPrefix(`{"__metadata__":{"k":"v"},"b":{"dtype":"F16","shape":[2,1],"data_offsets":[1,5]},"aé":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 5)
	for n := range file {
		_, err := Parse(file[:n:n])
		require.Error(t, err)
	}
	changed := bytes.Clone(file)
	for i := range changed {
		for c := range 256 {
			changed[i] = byte(c)
			f, err := Parse(changed)
			if err == nil {
				checkTable(t, f.parts[0].table, int64(len(changed))-f.parts[0].size())
			}
		}
		changed[i] = file[i]
	}
}

func TestErrors(t *testing.T) {
	entry := func(fields string) string { return `{"a":{` + fields + `}}` }
	for _, c := range []struct{ name, header, want string }{
		{"empty header", ``, `safetensors: the header is empty, it must be a JSON object (at byte 8)`},
		{"leading space", ` {}`, `safetensors: the header does not start with '{' but with ' ' (at byte 8)`},
		{"invalid UTF-8", "{\"\xff\"}", `safetensors: the header is not valid UTF-8 (at byte 10)`},
		{"behind the object", `{}x`, `safetensors: expected the end of the header, found 'x' (at byte 10)`},
		{"no colon", `{"a"}`, `safetensors: expected ':', found '}' (at byte 12)`},
		{"not an entry", `{"a":1}`, `safetensors: tensor "a": expected an object, the entry of a tensor, found '1' (at byte 13)`},
		{"metadata value", `{"__metadata__":{"k":1}}`, `safetensors: expected a string metadata value, found '1' (at byte 29)`},
		{"metadata twice", `{"__metadata__":{},"__metadata__":{}}`, `safetensors: duplicate __metadata__ (at byte 42)`},
		{"metadata key twice", `{"__metadata__":{"k":"v","\u006b":"w"}}`, `safetensors: duplicate metadata key "k" (at byte 34)`},
		{"name twice", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`,
			`safetensors: tensor "a": duplicate tensor name (at byte 62)`},
		{"no dtype", entry(`"shape":[0],"data_offsets":[0,0]`), `safetensors: tensor "a": the entry has no dtype (at byte 46)`},
		{"field twice", entry(`"shape":[0],"shape":[0]`), `safetensors: tensor "a": duplicate field "shape" (at byte 26)`},
		{"unknown dtype", entry(`"dtype":"F31","shape":[0],"data_offsets":[0,0]`), `safetensors: tensor "a": unknown dtype "F31" (at byte 23)`},
		{"size", entry(`"dtype":"F32","shape":[2,2],"data_offsets":[0,12]`), `safetensors: tensor "a": data offsets [0,12] hold 12 bytes, F32 [2,2] needs 16 (at byte 13)`},
		{"reversed", entry(`"dtype":"F32","shape":[0],"data_offsets":[4,0]`), `safetensors: tensor "a": data offsets [4,0] end before they start (at byte 13)`},
		{"sub-byte", entry(`"dtype":"F4","shape":[3],"data_offsets":[0,2]`), `safetensors: tensor "a": F4 [3] has 12 bits, which do not fill whole bytes (at byte 13)`},
		{"overflow", entry(`"dtype":"U8","shape":[1073741824,1073741824,1073741824],"data_offsets":[0,0]`), `safetensors: tensor "a": the number of elements of shape [1073741824,1073741824,1073741824] overflows 64 bits (at byte 13)`},
		{"overflow of bits", entry(`"dtype":"U64","shape":[1073741824,1073741824],"data_offsets":[0,0]`), `safetensors: tensor "a": the number of bits of U64 [1073741824,1073741824] overflows 64 bits (at byte 13)`},
		{"leading zero", entry(`"dtype":"U8","shape":[01],"data_offsets":[0,1]`), `safetensors: tensor "a": a dimension has a leading zero (at byte 36)`},
		{"float", entry(`"dtype":"U8","shape":[1.0],"data_offsets":[0,1]`), `safetensors: tensor "a": a dimension is not written as an integer (at byte 36)`},
		{"large offset", entry(`"dtype":"U8","shape":[1],"data_offsets":[0,9223372036854775808]`), `safetensors: tensor "a": a data offset is above 9223372036854775807 (at byte 57)`},
		{"hole", entry(`"dtype":"U8","shape":[1],"data_offsets":[3,4]`), `safetensors: tensor "a": data offsets start at 3, but the tensors before it end at 0: a hole of 3 bytes (at byte 10)`},
		{"truncated", entry(`"dtype":"U8","shape":[9],"data_offsets":[0,9]`), `safetensors: the data buffer is truncated: the tensors need 9 bytes, the file has 4 (at byte 65)`},
		{"rest", `{}`, `safetensors: the tensors end at 0, but the data buffer has 4 bytes: 4 belong to no tensor (at byte 10)`},
		{"control character", "{\"a\n\"}", `safetensors: control character '\n' in a string (at byte 11)`},
		{"surrogate", `{"\udc00"}`, `safetensors: lone surrogate \udc00 in a string (at byte 10)`},
		{"no end", `{"a`, `safetensors: the string that starts here does not end (at byte 9)`},
		{"nested too deep", entry(`"x":` + strings.Repeat("[", 126)), `safetensors: tensor "a": objects and arrays are nested deeper than 127 levels (at byte 143)`},
		{"number", entry(`"x":1e309`), `safetensors: tensor "a": number exceeds the range of a 64-bit float (at byte 18)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(withPrefix(c.header, 4))
			require.EqualError(t, err, c.want)
		})
	}
}

func TestNotSafetensors(t *testing.T) {
	for _, c := range []struct{ content, want string }{
		{"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n", "Git LFS pointer"},
		{"<!DOCTYPE html><html></html>", "HTML page"},
		{"\n\n<html>\n", "HTML page"},
		{"PK\x03\x04\x00\x00\x08\x08\x00\x00", "zip archive"},
		{"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j", "Python pickle"},
		{"GGUF\x03\x00\x00\x00\x01\x00", "GGUF"},
		{`{"weight_map":{}}`, "JSON text"},
		{"somewhat else", "header length"},
	} {
		for _, open := range []func([]byte) error{
			func(b []byte) error { _, err := Parse(b); return err },
			func(b []byte) error { _, err := ReadHeader(bytes.NewReader(b)); return err },
			func(b []byte) error { _, err := NewFile(bytes.NewReader(b), int64(len(b))); return err },
		} {
			var broken *FormatError
			require.ErrorAs(t, open([]byte(c.content)), &broken)
			require.Contains(t, broken.Reason, c.want)
		}
	}
}

// TestIgnoredNumbers has numbers around the largest float64, as the reference
// judges them: it multiplies the digits that fit 64 bits by a power of ten.
func TestIgnoredNumbers(t *testing.T) {
	for number, ok := range map[string]bool{
		"0": true, "-0": true, "-0.0e-0": true, "1E+2": true, "18446744073709551616": true,
		"1.7976931348623157e308": true, "1.7976931348623158e308": false,
		"-1e309": false, "0e99999999999": true, "1e-99999999999": true, "1e99999999999": false, "0.00001e314": false,
		"0.00001e313": true, strings.Repeat("9", 308): true, strings.Repeat("9", 310): false, strings.Repeat("9", 310) + "e-5": true,
		"1.": false, ".5": false, "1e": false, "1e+": false, "-": false, "01": false, "-01": false, "0x1": false, "+1": false,
	} {
		_, err := Parse(withPrefix(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":`+number+`}}`, 1))
		require.Equal(t, ok, err == nil, "%s: %v", number, err)
	}
}

func TestReadHeader(t *testing.T) {
	file := withPrefix(`{"__metadata__":{"k":"v"},"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}`, 4)
	want := &Header{
		Metadata: map[string]string{"k": "v"},
		Tensors:  []TensorInfo{{Name: "a", DType: F16, Shape: []int{2}, DataOffsets: [2]int64{0, 4}}},
		Size:     int64(len(file) - 4),
	}
	for _, r := range []io.Reader{bytes.NewReader(file), iotest.OneByteReader(bytes.NewReader(file)), iotest.DataErrReader(bytes.NewReader(file))} {
		h, err := ReadHeader(r)
		require.NoError(t, err)
		require.Equal(t, want, h)
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Len(t, rest, 4)
	}
	failure := errors.New("failure")
	for n := range want.Size {
		_, err := ReadHeader(bytes.NewReader(file[:n]))
		if n < prefixSize {
			require.ErrorContains(t, err, fmt.Sprintf("file of %d bytes", n))
		} else {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		_, err = ReadHeader(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(failure)))
		require.ErrorIs(t, err, failure)
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestClaims has small inputs that claim to be large: memory is allocated for
// what is there, not for what is claimed.
func TestClaims(t *testing.T) {
	const limit = 1 << 20
	for _, length := range []uint64{maxHeaderLength, maxHeaderLength + 1, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		file := append(binary.LittleEndian.AppendUint64(nil, length), `{"a":{"dtype":"U8"`...)
		require.Less(t, allocated(func() {
			_, err := Parse(file)
			require.Error(t, err)
			_, err = ReadHeader(bytes.NewReader(file))
			require.Error(t, err)
			_, err = NewFile(bytes.NewReader(file), int64(len(file)))
			require.Error(t, err)
		}), uint64(limit), length)
	}
	large := withPrefix(`{"a":{"dtype":"U8","shape":[1000000000000],"data_offsets":[0,1000000000000]}}`, 10)
	require.Less(t, allocated(func() {
		_, err := Parse(large)
		require.Error(t, err)
	}), uint64(limit))
}

func TestHostileHeaders(t *testing.T) {
	n := 20_000_000
	if testing.Short() {
		n = 1_000_000
	}
	for name, header := range map[string]string{
		"nested arrays":         `{"a":` + strings.Repeat("[", n),
		"nested ignored arrays": `{"a":{"x":` + strings.Repeat("[", n),
		"nested objects":        `{"a":{"x":` + strings.Repeat(`{"":`, n/4),
		"garbage":               strings.Repeat("\x00\x01\x02{", n/4),
		"one string":            `{"` + strings.Repeat("a", n),
		"white space":           `{` + strings.Repeat(" ", n),
		"zero dimensions":       `{"a":{"dtype":"U8","shape":[` + strings.Repeat("0,", n/2) + `0],"data_offsets":[0,1]}}`,
		"digits":                `{"a":{"x":` + strings.Repeat("9", n) + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(withPrefix(header, 0))
			require.Error(t, err)
			require.Less(t, len(err.Error()), 2000)
		})
	}
}

func TestParseAllocations(t *testing.T) {
	for layers, most := range map[int]float64{80: 10, 2000: 10} {
		text, size := headerText(t, llama70B(layers))
		allocs := testing.AllocsPerRun(10, func() {
			_, err := parseHeader(text, size)
			require.NoError(t, err)
		})
		if raceEnabled {
			continue // it allocates, too
		}
		require.LessOrEqual(t, allocs, most)
		heap := allocated(func() {
			_, err := parseHeader(text, size)
			require.NoError(t, err)
		})
		require.Less(t, float64(heap), 0.7*float64(len(text)), "beside the text itself")
	}
}
