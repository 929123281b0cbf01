package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/gosafetensors/safetensors"
)

// A generator makes candidates. It makes the text of a header from the inside out,
// with a choice at every place between the usual spelling, others that are legal,
// and broken ones.
type generator struct {
	*rand.Rand
	seeds [][]byte
	plain bool // the candidate is spelled as writers do
	sound bool // it breaks no rule
}

func newGenerator(seed uint64, seeds [][]byte) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 0)), seeds: seeds}
}

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

// odd reports, in one of n cases, that a legal but unusual spelling is due.
func (g *generator) odd(n int) bool { return !g.plain && g.oneIn(n) }

// bad reports, in one of n cases, that breaking a rule is due.
func (g *generator) bad(n int) bool { return !g.sound && g.oneIn(n) }

// spoil returns a text that breaks a rule where that is due, in one of n cases, or none.
func (g *generator) spoil(n int, texts ...string) string {
	if !g.bad(n) {
		return ""
	}
	return pick(g, texts)
}

// header returns a header, and how many bytes of data it asks for.
func (g *generator) header() (text string, size uint64) {
	count := g.IntN(6)
	if g.oneIn(1000) {
		count = 400
	}
	var members []string
	if g.oneIn(3) {
		members = append(members, g.member(metadataKey, g.metadata()))
	}
	for i := range count {
		name := fmt.Sprintf("model.layers.%d.weight", i)
		if g.oneIn(3) {
			name = pick(g, names) + fmt.Sprint(i)
		}
		entry, end := g.entry(size)
		members = append(members, g.member(name, entry))
		if g.bad(40) { // a duplicate, of which the reference drops the first
			entry, end = g.entry(size)
			members = append(members, g.member(name, entry))
		}
		size = end
	}
	text = g.spoil(30, "\u00a0", "\ufeff", "\x00", "[", "{}") + g.space() + g.object(30, members)
	text += g.spoil(40, "\x00", "x", "{}", ",", "}", "\u00a0", `""`)
	if !g.odd(2) {
		text += strings.Repeat(" ", -len(text)&7)
	}
	return text, size
}

// names end in a number in a header, so that they are unique.
var names = []string{"", "a", "é", "日本", "😀", "\U0010ffff", "\uffff", "\u2028", "\x7f", "\x00", "\x1f", "\b\f\n\r\t", `"`, `\`, "/", metadataKey, "dtype", "e\u0301"}

// dtypes holds all dtypes.
var dtypes = slices.Collect(safetensors.DTypes())

// entry returns the entry of a tensor that starts at an offset, and its end.
func (g *generator) entry(begin uint64) (text string, end uint64) {
	dtype := dtypes[g.IntN(len(dtypes))]
	var shape []uint64
	n := uint64(1)
	for range g.IntN(4) {
		shape = append(shape, uint64(g.IntN(5)))
		n *= shape[len(shape)-1]
	}
	for i := range shape { // huge dimensions are legal after a zero
		if n == 0 && shape[i] != 0 && g.odd(3) {
			shape[i] = g.edge()
		}
	}
	if n*uint64(dtype.Bits())%8 != 0 && !g.bad(20) {
		shape = append(shape, 4)
		n *= 4
	}
	end = begin + n*uint64(dtype.Bits())/8
	offsets := []uint64{begin, end}
	if g.bad(40) {
		offsets[g.IntN(2)] += pick(g, []uint64{1, 8, 1<<64 - 1, 1<<63 - 8, 1 << 63})
	}
	if g.bad(80) {
		offsets = pick(g, [][]uint64{{end, begin}, {begin}, {}, {begin, end, end}})
	}
	if g.bad(40) {
		shape = append(shape, pick(g, []uint64{0, 1, 1, 2, 1 << 63, 1<<64 - 1}))
	}
	values := []string{g.dtype(dtype), g.integers(shape), g.integers(offsets)}
	if g.bad(40) {
		values[g.IntN(3)] = g.value()
	}
	if g.bad(40) {
		return g.list('[', values, ']'), end
	}
	fields := []string{g.member("dtype", values[0]), g.member("shape", values[1]), g.member("data_offsets", values[2])}
	if g.odd(3) {
		fields = append(fields, g.member(pick(g, []string{"x", "", "Shape", "dtype ", metadataKey}), g.value()))
	}
	if g.bad(60) {
		i := g.IntN(3)
		fields = slices.Delete(fields, i, i+1)
	}
	return g.object(30, fields), end
}

func (g *generator) dtype(d safetensors.DType) string {
	text := g.quote(d.String())
	object := g.list('{', []string{text + ":" + pick(g, []string{"null", "null", "1", "{}", "[]"})}, '}')
	return cmp.Or(g.spoil(40, object), g.spoil(60, strings.ToLower(text), `"`+d.String()+` "`, `"F128"`, `""`, "1"), text)
}

func (g *generator) metadata() string {
	if g.odd(8) {
		return "null"
	}
	if g.bad(20) {
		return g.value()
	}
	var members []string
	for i := range g.IntN(3) {
		value := cmp.Or(g.spoil(20, g.value()), g.quote(pick(g, names)))
		members = append(members, g.member(pick(g, names)+fmt.Sprint(i), value))
	}
	return g.object(6, members)
}

// value returns any JSON, as ignored fields may have.
func (g *generator) value() string {
	if g.odd(20) { // the reference reads 128 levels, of which the header takes two
		n := 120 + g.IntN(12)
		return strings.Repeat("[", n) + strings.Repeat("]", n)
	}
	var values, members []string
	switch g.IntN(6) {
	case 0:
		return pick(g, []string{"null", "true", "false"})
	case 1:
		return g.quote(pick(g, names))
	case 2:
		return g.integer(g.edge())
	case 3:
		return g.number()
	case 4:
		for range g.IntN(3) {
			values = append(values, g.value())
		}
		return g.list('[', values, ']')
	default:
		for range g.IntN(3) {
			members = append(members, g.member(pick(g, names), g.value()))
		}
		return g.list('{', members, '}')
	}
}

// edge returns an integer, often next to a power of two.
func (g *generator) edge() uint64 {
	if g.oneIn(2) {
		return uint64(g.IntN(20))
	}
	return 1<<pick(g, []int{8, 16, 31, 32, 53, 61, 62, 63, 64}) + uint64(g.IntN(3)) - 1
}

// number returns a number, often one at the limits of a float64.
func (g *generator) number() string {
	mantissa := pick(g, []string{"0", "1", "9", "17976931348623157", "17976931348623159", "18446744073709551616", "123456789012345678901"})
	exponent := 309 - len(mantissa) + g.IntN(3)
	return pick(g, []string{
		fmt.Sprintf("-%s.%d", mantissa, g.IntN(1000)),
		fmt.Sprintf("%se%d", mantissa, exponent),
		fmt.Sprintf("0.%sE+%d", mantissa, exponent+len(mantissa)),
		mantissa + strings.Repeat("0", g.IntN(330)),
	})
}

func (g *generator) integers(numbers []uint64) string {
	var values []string
	for _, n := range numbers {
		values = append(values, g.integer(n))
	}
	return g.list('[', values, ']')
}

func (g *generator) integer(n uint64) string {
	text := cmp.Or(g.spoil(80, "N.0", "-N", "0N", "+N", "Ne0", `"N"`, "N0", "N.", "N00000000000000000000", "null"), "N")
	return strings.Replace(text, "N", fmt.Sprint(n), 1)
}

func (g *generator) member(key, value string) string {
	return g.quote(key) + g.space() + ":" + g.space() + value
}

// object makes an object of members, in another order where that is odd, and repeats one of
// them in one of n cases.
func (g *generator) object(n int, members []string) string {
	if len(members) > 0 && g.bad(n) {
		members = append(members, pick(g, members))
	}
	if g.odd(2) {
		g.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	}
	return g.list('{', members, '}')
}

// list joins values to an array, or members to an object.
func (g *generator) list(begin byte, values []string, end byte) string {
	comma := cmp.Or(g.spoil(150, ",,", " ", ";", ":"), ",")
	text := string(begin) + g.space()
	for i, value := range values {
		if i > 0 {
			text += comma + g.space()
		}
		text += value + g.space()
	}
	return text + g.spoil(150, ",") + string(end)
}

func (g *generator) space() string {
	if g.odd(15) {
		return pick(g, []string{" ", "\n", "\t", "\r", "\r\n  "})
	}
	return g.spoil(1000, "\f", "\v", "\x00", "\u00a0", "\ufeff", "/**/")
}

// quote returns s as a JSON string, now and then a broken one.
func (g *generator) quote(s string) string {
	escape := g.odd(5)
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch short := strings.IndexRune("\"\\\b\f\n\r\t", r); {
		case short >= 0 && g.oneIn(2):
			b.WriteString(`\` + `"\bfnrt`[short:short+1])
		case r < ' ' || short >= 0 || escape && g.oneIn(2):
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, pick(g, []string{`\u%04x`, `\u%04X`}), unit)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteString(g.spoil(150, `\ud800`, `\udc00`, `\ud83d\u0041`, `\B`, `\x41`, `\U0041`, `\u12`, `\u123g`, `\'`,
		"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x01", "\t", "\n"))
	return b.String() + `"`
}
