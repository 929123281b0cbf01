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
// The fast path reads entries with that spelling and nothing else. At the first difference it
// leaves the entry to the general path in header_parse.go. It may skip work, but never decides
// that something is wrong.
//
// Each part of an entry has a method that takes the position at which the part starts and returns
// the position at which it ends, or 0 if it is not canonical. Two things cost time here: the
// number of instructions, and waiting for the length of one part before the next can be read. So
// tokens are compared with constants in place, which the compiler does well for up to 16 bytes.
// And texts that earlier entries predict, such as the offset at which the last one ended, are
// compared instead of parsed again.

// canonicalEntry reads a comma and the entry after it. If it returns false, the position and the
// table are unchanged.
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
	at += n
	if len(p.Text)-at < window {
		return false
	}
	k := p.knownAt(at)
	end := at + int(k.text.Len)
	known := k.text.Len > 0 && end <= len(p.Text) && string(p.Text[at:end]) == string(p.Bytes(k.text))
	ok := known || p.learn(k, at)
	if ok {
		at = p.canonicalOffsets(at+int(k.text.Len), e)
		ok = at != 0 && e.begin <= e.end && e.end-e.begin == k.size
	}
	if !ok {
		if !known { // the general path will add these dimensions itself
			p.t.dims = p.t.dims[:p.first]
			k.text.Len = 0
		}
		return false
	}
	e.shape = k.shape
	p.commit(e)
	p.Pos = at
	return true
}

// A known is the text between a name and its data offsets, with the dtype and the shape that it
// spells. Every layer of a model repeats the same few of these texts, so the parser parses each
// only once.
type known struct {
	text  jsonscan.Span // from the closing quote of the name to the opening bracket of the offsets; empty if there is none
	shape packedShape
	size  int64 // size of the data in bytes
}

// knownAt returns the slot for the text that starts at a position. At least as many bytes as the
// constant window must follow. The bytes at which the shape usually starts select the slot, which
// may hold a different text.
func (p *parser) knownAt(at int) *known {
	const (
		shape  = len(`":{"dtype":"BF16","shape":`) // the usual length; for dtypes with other names, more texts share a slot, which does no harm
		golden = 0x9e3779b97f4a7c15                // 2^64 divided by the golden ratio
	)
	b := (*[window]byte)(p.Text[at:])
	h := binary.LittleEndian.Uint64(b[shape:])*golden ^ binary.LittleEndian.Uint64(b[shape+6:])
	return &p.known[h*golden>>58]
}

// learn parses the text that starts at a position and puts it into k. It returns false if the
// text is not canonical, or if no tensor can have this dtype and shape.
func (p *parser) learn(k *known, start int) bool {
	const offsets = `,"data_offsets":[`
	at := p.canonicalDType(start)
	if at == 0 {
		return false
	}
	if at = p.canonicalShape(at); at == 0 || len(p.Text)-at < window || string(p.Text[at:][:len(offsets)]) != offsets {
		return false
	}
	at += len(offsets)
	dims := p.t.dims[p.first:]
	size, ok := byteSize(p.dtype, dims)
	*k = known{jsonscan.Span{Off: uint32(start), Len: uint32(at - start)}, packShape(len(dims), p.first, p.dtype), size}
	if !ok {
		k.text.Len = 0
	}
	return ok
}

// window is the number of bytes that must follow for knownAt, canonicalDType and
// canonicalOffsets. It exceeds everything they read, so that each needs only one bounds check.
const window = 64

// canonicalDType reads the text from the closing quote of the name to the opening bracket of the
// shape. It returns the position after that text, or 0 if the text is not canonical.
func (p *parser) canonicalDType(at int) int {
	const before, after = `":{"dtype":"`, `","shape":[`
	b := p.Text[at:][:window]
	if string(b[:len(before)]) != before {
		return 0
	}
	b = b[len(before):]
	n := max(bytes.IndexByte(b, '"'), 0)
	if p.dtype = parseDType(b[:n]); !p.dtype.valid() || !bytes.HasPrefix(b[n:], []byte(after)) {
		return 0
	}
	return at + len(before) + n + len(after)
}

// canonicalShape reads the dimensions and the closing bracket. It returns the position after them,
// or 0 if they are not canonical.
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

// canonicalOffsets reads the data offsets and the end of the entry. It returns the position after
// them, or 0 if they are not canonical.
func (p *parser) canonicalOffsets(at int, e *entry) int {
	const after = `]}`
	if len(p.Text)-at < window {
		return 0
	}
	c := (*[window]byte)(p.Text[at:])[:]
	// A tensor usually starts where the previous one ends, with the same digits.
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
