package safetensors

import (
	"bytes"
	"encoding/binary"
	"math"
)

// This file is the fast path of the parser. All known writers spell entries in
// one way: the fields in the order dtype, shape, data_offsets, without white
// space and escapes,
//
//	"name":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},
//
// It reads entries of that spelling and nothing else. At the first surprise it
// leaves the entry to the general path in parse.go: it may skip work, but never
// decides that something is wrong.
//
// The parts of an entry are read by methods that are told where in the text they
// begin and return where they end, or 0 if they are not canonical. What costs time
// here is the number of instructions, and waiting for the length of one part
// before the next can be looked at. So tokens are compared with constants, in
// place, which the compiler does up to 16 bytes; and what the entry before lets
// expect is compared, not read anew.

// canonical reads entries while they are canonical and another member follows;
// it stops before the first one that is not, or that is the last.
func (p *parser) canonical() {
	for p.canonicalEntry() {
	}
}

// canonicalEntry reads an entry and the comma behind it. If it returns false,
// nothing has been read.
func (p *parser) canonicalEntry() bool {
	at := p.pos
	if at >= len(p.text) || p.text[at] != '"' {
		return false
	}
	at++
	n := plainLength(p.text[at:])
	if n == len(metadataKey) && string(p.text[at:at+n]) == metadataKey {
		return false
	}
	e := p.next(span{uint32(at), uint32(n)})
	if at = p.canonicalDType(at + n); at == 0 {
		return false
	}
	if at = p.canonicalShape(at); at != 0 {
		at = p.canonicalOffsets(at, e)
	}
	if at == 0 || p.add(e) != "" {
		p.t.dims = p.t.dims[:e.dims]
		return false
	}
	p.pos = at
	return true
}

// window is how much text there has to be for the parts between the name and the
// shape and behind the shape: more than they need, so that one check is enough.
const window = 64

// canonicalDType reads all from the closing quote of the name to the opening
// bracket of the shape.
func (p *parser) canonicalDType(at int) int {
	const before, behind = `":{"dtype":"`, `","shape":[`
	if len(p.text)-at < window {
		return 0
	}
	b := (*[window]byte)(p.text[at:])
	if string(b[:len(before)]) != before {
		return 0
	}
	n := p.spelledDType(b[len(before):])
	if c := b[len(before)+n:]; n == 0 || len(c) < len(behind) || string(c[:len(behind)]) != behind {
		return 0
	}
	return at + len(before) + n + len(behind)
}

// spellings tell the dtypes of names below eight bytes apart by one word.
var spellings = func() (all [len(dtypes)]spelling) {
	for d, row := range dtypes {
		if n := len(row.name); 0 < n && n < 8 {
			all[d] = spelling{length: n, shift: uint(8 * (7 - n))}
			all[d].text = binary.LittleEndian.Uint64([]byte(row.name + `"       `)[:8]) << all[d].shift
		}
	}
	return all
}()

// A spelling is the name of a dtype and the closing quote behind it. The zero
// spelling, of longer names, is that of none: headers have no zero bytes there.
type spelling struct {
	text   uint64 // in the high bytes, the first of them in the lowest
	shift  uint   // moves out of a word of text what is behind the quote
	length int    // of the name
}

func (s *spelling) is(text uint64) bool { return text<<(s.shift&63) == s.text }

// spelledDType reads the dtype at the beginning of b, and returns its length or 0.
func (p *parser) spelledDType(b []byte) int {
	text := binary.LittleEndian.Uint64(b)
	if s := &spellings[p.dtype]; s.is(text) { // that of the entry before is the likeliest
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
	if p.text[at] == ']' {
		return at + 1
	}
	n := len(p.t.dims)
	dims := p.t.dims[n:cap(p.t.dims)]
	for rank := range dims {
		dim, length := decimal(p.text[at:])
		at += length
		if length == 0 || dim > math.MaxInt || at == len(p.text) {
			return 0
		}
		dims[rank] = int(dim)
		switch p.text[at] {
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

// canonicalOffsets reads the data offsets, and all up to the next member.
func (p *parser) canonicalOffsets(at int, e *entry) int {
	const before, bracket, behind = `,"data_offsets":`, '[', `]},`
	if len(p.text)-at < window {
		return 0
	}
	b := (*[window]byte)(p.text[at:])
	if string(b[:len(before)]) != before || b[len(before)] != bracket {
		return 0
	}
	at += len(before) + 1
	c := b[len(before)+1:]
	// A tensor begins where the one before ends, which is the same text.
	digits := p.text[p.endText.off:][:p.endText.len]
	n := len(digits)
	if 0 < n && n <= maxDigits && string(c[:n]) == string(digits) {
		e.begin = p.end
	} else if e.begin, n = decimal(c); n == 0 {
		return 0
	}
	if c[n] != ',' {
		return 0
	}
	at += n + 1
	c = c[n+1:]
	if e.end, n = decimal(c); n == 0 {
		return 0
	}
	p.end, p.endText = e.end, span{uint32(at), uint32(n)}
	if c = c[n:]; len(c) < len(behind) || string(c[:len(behind)]) != behind {
		return 0
	}
	return at + n + len(behind)
}

// maxDigits is how many digits surely fit an int64.
const maxDigits = 18

// decimal reads an integer at the beginning of b and returns how many digits it
// has. It reads what integer does, but gives up on what that has more to look
// into: white space, leading zeros, and more than maxDigits.
func decimal(b []byte) (n int64, length int) {
	for length < len(b) {
		d := b[length] - '0'
		if d > 9 {
			break
		}
		n = n*10 + int64(d)
		length++
	}
	if length > maxDigits || length > 1 && b[0] == '0' {
		return 0, 0
	}
	return n, length
}
