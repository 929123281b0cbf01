package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// skip skips one value, which must be the whole text.
func skip(text string) error {
	s := &Scanner{Text: []byte(text)}
	if err := s.CheckUTF8("the text"); err != nil {
		return err
	}
	if err := s.Skip(0); err != nil {
		return err
	}
	return s.End("the text")
}

// TestSurrogates tries all pairs of escapes at the limits of the surrogates.
func TestSurrogates(t *testing.T) {
	limits := []rune{0, 0xd7ff, 0xd800, 0xd801, 0xdbfe, 0xdbff, 0xdc00, 0xdc01, 0xdffe, 0xdfff, 0xe000, 0xffff}
	for _, a := range limits {
		for _, b := range limits {
			text := fmt.Sprintf(`"\u%04x\u%04X"`, a, b)
			want, pair := []rune{a, b}, utf16.DecodeRune(a, b)
			if pair != utf8.RuneError {
				want = []rune{pair}
			}
			s := &Scanner{Text: []byte(text)}
			got, err := s.String("a string")
			if pair == utf8.RuneError && (utf16.IsSurrogate(a) || utf16.IsSurrogate(b)) {
				require.ErrorContains(t, err, "lone surrogate", text)
				continue
			}
			require.NoError(t, err, text)
			require.Equal(t, string(want), string(s.Bytes(got)), text)
		}
	}
}

// TestSkipRefuses has a text that breaks each rule of the grammar, with the error and its position.
func TestSkipRefuses(t *testing.T) {
	for _, c := range []struct{ rule, text, want string }{
		{"a value is missing", ``, `expected a value, found the end of the text (at byte 0)`},
		{"a comma at the end", `[1,]`, `expected a value, found ']' (at byte 3)`},
		{"a comma is missing", `[1 2]`, `expected ',' or ']', found '2' (at byte 3)`},
		{"a key is a string", `{1:2}`, `expected a string, found '1' (at byte 1)`},
		{"a colon is missing", `{"a" 1}`, `expected ':', found '1' (at byte 5)`},
		{"text after the value", `1 x`, `expected the end of the text, found 'x' (at byte 2)`},
		{"literals are lower case", `True`, `expected a value, found 'T' (at byte 0)`},
		{"leading zero", `01`, `invalid number (at byte 0)`},
		{"no digit after the point", `1.`, `invalid number: no digits after the point (at byte 0)`},
		{"no digit in the exponent", `1e+`, `invalid number: no digits in the exponent (at byte 0)`},
		{"beyond float64", `1e309`, `number exceeds the range of a 64-bit float (at byte 0)`},
		{"an exponent beyond 64 bits", `1e18446744073709551617`, `number exceeds the range of a 64-bit float (at byte 0)`},
		{"control character", "\"a\nb\"", `control character '\n' in a string (at byte 2)`},
		{"string without end", `"abc`, `the string that starts here does not end (at byte 0)`},
		{"unknown escape", `"\x"`, `invalid escape in a string (at byte 1)`},
		{"escape at the end", `"\`, `the text ends within an escape (at byte 1)`},
		{"short \\u", `"\u12"`, `\u is not followed by four hexadecimal digits (at byte 1)`},
		{"lone high surrogate", `"\ud800x"`, `lone surrogate \ud800 in a string (at byte 1)`},
		{"lone low surrogate", `"\udc00"`, `lone surrogate \udc00 in a string (at byte 1)`},
		{"UTF-8", "\"\xff\"", `the text is not valid UTF-8 (at byte 1)`},
		{"nesting", strings.Repeat("[", 128), `objects and arrays are nested deeper than 127 levels (at byte 127)`},
	} {
		t.Run(c.rule, func(t *testing.T) { require.EqualError(t, skip(c.text), c.want) })
	}
	require.NoError(t, skip(strings.Repeat("[", 127)+strings.Repeat("]", 127)))
}

// FuzzSkip compares the verdicts with those of encoding/json. Skip is stricter on
// UTF-8, surrogates, nesting and the range of numbers, and in nothing else.
func FuzzSkip(f *testing.F) {
	for _, seed := range []string{
		`null`, `true`, ` false `, `0`, `-0.5e-3`, `-1.0E+10`, `"a\u00e9\ud83d\ude00\n"`, `[]`, `[1,2 , 3]`, `{}`, "\t[\n1\r]",
		`{"a":[1,-2.5e3,"\u00e9\n",null,true,{}]}`, `[[],{}," "]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		err := skip(text)
		if err == nil {
			require.True(t, json.Valid([]byte(text)))
			return
		}
		if json.Valid([]byte(text)) {
			var broken *Error
			require.ErrorAs(t, err, &broken)
			require.Regexp(t, "UTF-8|surrogate|nested|range", broken.Reason)
		}
	})
}

// TestOverflows tries, for each power of ten, the integers around the largest one whose product
// with it does not overflow.
func TestOverflows(t *testing.T) {
	for exponent := 280; exponent < 312; exponent++ {
		power, _ := strconv.ParseFloat(fmt.Sprint("1e", exponent), 64)
		most := uint64(min(math.MaxFloat64/power, 1<<63))
		for digits := most - min(most, 2050); digits < most+2050; digits++ {
			require.Equal(t, math.IsInf(float64(digits)*power, 0), overflows(digits, exponent), "%de%d", digits, exponent)
		}
	}
}

// TestDecimalAgreesWithInteger: for every text, Decimal returns the number that Integer returns, or
// leaves the text to it.
func TestDecimalAgreesWithInteger(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	texts := []string{"", "0", "00", "01", "9", "-1", "+1", "1.0", "1e3", "x",
		strings.Repeat("9", 18), strings.Repeat("9", 19), strconv.FormatInt(math.MaxInt64, 10)}
	for range 1000 {
		texts = append(texts, strconv.FormatUint(random.Uint64()>>random.IntN(64), 10))
	}
	for _, text := range texts {
		n, digits := Decimal([]byte(text + ","))
		s := &Scanner{Text: []byte(text + ",")}
		want, err := s.Integer("n", math.MaxInt64)
		if digits == 0 || s.Text[digits] != ',' {
			continue // Decimal left the text to Integer, or a fraction or an exponent follows, which the caller sees
		}
		require.NoError(t, err, text)
		require.Equal(t, want, n, text)
		require.Equal(t, s.Pos, digits, text)
	}
	n, err := (&Scanner{Text: []byte("9223372036854775807")}).Integer("n", math.MaxInt64)
	require.NoError(t, err)
	require.Equal(t, int64(math.MaxInt64), n, "the largest")
}

// TestAppendString: encoding/json reads back what AppendString and AppendASCII write, for every
// ASCII character and some others.
func TestAppendString(t *testing.T) {
	all := make([]byte, 0, 128)
	for c := range 128 {
		all = append(all, byte(c))
	}
	for _, value := range []string{"", "plain", "longer than eight", `"`, `\`, "\x00\x1f\x7f", "é😀\u2028<>&", string(all)} {
		for _, text := range [][]byte{AppendString(nil, value), AppendASCII(nil, value)} {
			var back string
			require.NoError(t, json.Unmarshal(text, &back))
			require.Equal(t, value, back)
			s := &Scanner{Text: text}
			span, err := s.String("a string")
			require.NoError(t, err)
			require.Equal(t, value, string(s.Bytes(span)))
		}
	}
	require.Equal(t, `"\b\t\n\u000b\f\r\u001f\"\\/`+"\x7fé\"", string(AppendString(nil, "\b\t\n\v\f\r\x1f\"\\/\x7fé")))
	require.Equal(t, `"\u007f\u00e9\ud83d\ude00"`, string(AppendASCII(nil, "\x7fé😀")))
}

// TestReserveIsCapped: Reserve never makes room for more elements than the rest of the text can
// contain, however many the start suggests.
func TestReserveIsCapped(t *testing.T) {
	s := &Scanner{Text: make([]byte, 1000), Pos: 10}
	require.LessOrEqual(t, cap(Reserve(s, []int(nil), 1, 10)), 1+990/10+8)
	s.Pos = 1000
	require.LessOrEqual(t, cap(Reserve(s, []int(nil), 1, 1)), 8)
}

// TestAppendPlain compares AppendPlain with AppendString for every byte at every position.
func TestAppendPlain(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				s := []byte(strings.Repeat("x", length))
				s[at] = byte(c)
				b, ok := AppendPlain([]byte("before"), string(s))
				require.Equal(t, length >= 8 && c >= ' ' && c < 0x80 && c != '"' && c != '\\', ok, "%q", s)
				if ok {
					require.Equal(t, "before"+string(AppendString(nil, string(s))), string(b))
				} else {
					require.Equal(t, "before", string(b))
				}
			}
		}
	}
}

// TestPlainLength: each byte ends the plain bytes or not, wherever it stands in texts of all lengths up to
// three blocks.
func TestPlainLength(t *testing.T) {
	for length := range 50 {
		for at := range length {
			for c := range 256 {
				b := bytes.Repeat([]byte{'a'}, length+16)[:length] // what follows a text does not count
				b[at] = byte(c)
				copy(b[length:cap(b)], `"`)
				want := length
				if c < ' ' || c == '"' || c == '\\' {
					want = at
				}
				if n := PlainLength(b); n != want {
					t.Fatalf("%d bytes, byte %#x at %d: %d, want %d", length, c, at, n, want)
				}
			}
		}
	}
}
