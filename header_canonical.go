package safetensors

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
)

// This file is the fast path of the parser. All known writers spell entries in
// one way: the fields in the order dtype, shape, data_offsets, without white
// space and escapes,
//
//	,"name":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}
//
// The fast path reads entries of that spelling and nothing else. At the first
// surprise it leaves the entry to the general path in header_parse.go: it may
// skip work, but never decides that something is wrong.
//
// Each part of an entry has a method that takes the position where the part
// starts and returns where it ends, or 0 if it is not canonical. Two things cost
// time here: the number of instructions, and waiting for the length of one part
// before the next can be read. So tokens are compared with constants, in place,
// which the compiler does up to 16 bytes; and what the previous entry predicts
// (its dtype, its end offset) is compared, not parsed again.

// canonicalEntry reads a comma and the entry after it. If it returns false, it has read
// nothing.
func (p *parser) canonicalEntry() bool {
	const before = `,"`
	at := p.Pos + len(before)
	if at > len(p.Text) || string(p.Text[p.Pos:at]) != before {
		return false
	}
	n := jsonscan.PlainLength(p.Text[at:])
	if n == len(metadataKey) && string(p.Text[at:at+n]) == metadataKey {
		return false
	}
	e := p.next(jsonscan.Span{Off: uint32(at), Len: uint32(n)})
	if at = p.canonicalDType(at + n); at == 0 {
		return false
	}
	if at = p.canonicalShape(at); at != 0 {
		at = p.canonicalOffsets(at, e)
	}
	if at == 0 || p.add(e) != "" {
		p.t.dims = p.t.dims[:p.first]
		return false
	}
	p.Pos = at
	return true
}

// window is the lookahead in bytes that canonicalDType and canonicalOffsets
// demand. It exceeds anything they read, so one bounds check covers each.
const window = 64

// canonicalDType reads from the closing quote of the name to the opening bracket
// of the shape.
func (p *parser) canonicalDType(at int) int {
	const before, after = `":{"dtype":"`, `","shape":[`
	if len(p.Text)-at < window {
		return 0
	}
	b := (*[window]byte)(p.Text[at:])
	if string(b[:len(before)]) != before {
		return 0
	}
	n := p.spelledDType(b[len(before):])
	if c := b[len(before)+n:]; n == 0 || len(c) < len(after) || string(c[:len(after)]) != after {
		return 0
	}
	return at + len(before) + n + len(after)
}

// spellings tells the dtypes whose names are shorter than eight bytes apart by one
// word of text.
var spellings = func() (all [len(dtypes)]spelling) {
	for d, row := range dtypes {
		if n := len(row.name); 0 < n && n < 8 {
			all[d] = spelling{length: n, shift: uint(8 * (7 - n))}
			all[d].text = binary.LittleEndian.Uint64([]byte(row.name + `"       `)[:8]) << all[d].shift
		}
	}
	return all
}()

// A spelling is the name of a dtype and the closing quote after it. Names too
// long for a word have the zero spelling. It matches eight zero bytes only, and as a
// name of length 0, which is not canonical.
type spelling struct {
	text   uint64 // in the high bytes, its first byte in the lowest of them
	shift  uint   // shifts what follows the quote out of a word of text
	length int    // of the name
}

func (s *spelling) is(text uint64) bool { return text<<(s.shift&63) == s.text }

// spelledDType reads the dtype at the start of b into p.dtype and returns the
// length of its name, or 0.
func (p *parser) spelledDType(b []byte) int {
	text := binary.LittleEndian.Uint64(b)
	if s := &spellings[p.dtype]; s.is(text) { // the dtype of the previous entry is the likeliest
		return s.length
	}
	for d := range spellings {
		if s := &spellings[d]; s.is(text) {
			p.dtype = DType(d)
			return s.length
		}
	}
	n := max(bytes.IndexByte(b, '"'), 0)
	if p.dtype = parseDType(b[:n]); !p.dtype.valid() {
		return 0
	}
	return n
}

// canonicalShape reads the dimensions and the closing bracket.
func (p *parser) canonicalShape(at int) int {
	if p.Text[at] == ']' {
		return at + 1
	}
	n := len(p.t.dims)
	dims := p.t.dims[n:cap(p.t.dims)]
	for rank := range dims {
		dim, length := jsonscan.Decimal(p.Text[at:])
		at += length
		if length == 0 || dim > math.MaxInt || at == len(p.Text) {
			return 0
		}
		dims[rank] = int(dim)
		switch p.Text[at] {
		case ',':
			at++
		case ']':
			p.t.dims = p.t.dims[:n+rank+1]
			return at + 1
		default:
			return 0
		}
	}
	return 0
}

// canonicalOffsets reads the data offsets and the end of the entry.
func (p *parser) canonicalOffsets(at int, e *entry) int {
	const before, bracket, after = `,"data_offsets":`, '[', `]}`
	if len(p.Text)-at < window {
		return 0
	}
	b := (*[window]byte)(p.Text[at:])
	if string(b[:len(before)]) != before || b[len(before)] != bracket {
		return 0
	}
	at += len(before) + 1
	c := b[len(before)+1:]
	// A tensor starts where the previous one ends: the digits are the same.
	digits := p.Text[p.endText.Off:][:p.endText.Len]
	n := len(digits)
	if 0 < n && n <= jsonscan.MaxDigits && string(c[:n]) == string(digits) {
		e.begin = p.end
	} else if e.begin, n = jsonscan.Decimal(c); n == 0 {
		return 0
	}
	if c[n] != ',' {
		return 0
	}
	at += n + 1
	c = c[n+1:]
	if e.end, n = jsonscan.Decimal(c); n == 0 {
		return 0
	}
	p.end, p.endText = e.end, jsonscan.Span{Off: uint32(at), Len: uint32(n)}
	if c = c[n:]; len(c) < len(after) || string(c[:len(after)]) != after {
		return 0
	}
	return at + n + len(after)
}
