package safetensors

import (
	"bytes"
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

// canonical reads entries while they are canonical and another member follows;
// it stops before the first one that is not, or that is the last.
func (p *parser) canonical() {
	for p.canonicalEntry() {
	}
}

// canonicalEntry reads an entry and the comma behind it. If it returns false,
// nothing has been read. What has been read is cut off b, the text that is left:
// unlike pos that stays in registers.
func (p *parser) canonicalEntry() bool {
	b, ok := cut(p.text[p.pos:], `"`)
	if !ok {
		return false
	}
	n := plainLength(b)
	e := entry{name: span{uint32(p.pos + 1), uint32(n)}, dims: uint32(len(p.t.dims))}
	name := b[:n]
	if b, ok = cut(b[n:], `":{"dtype":"`); !ok || string(name) == metadataKey {
		return false
	}
	if b, ok = p.canonicalDType(b); !ok {
		return false
	}
	if b, ok = cut(b, `","shape":[`); !ok {
		return false
	}
	if b, ok = p.canonicalShape(b); ok {
		b, ok = p.canonicalOffsets(b, &e)
	}
	if !ok || p.add(e) != "" {
		p.t.dims = p.t.dims[:e.dims]
		return false
	}
	p.pos = len(p.text) - len(b)
	return true
}

// canonicalDType cuts a dtype off b, up to the closing quote.
func (p *parser) canonicalDType(b []byte) (rest []byte, ok bool) {
	if p.dtype.valid() { // the dtype before is the likeliest
		if rest, ok = cut(b, dtypes[p.dtype].name); ok && len(rest) > 0 && rest[0] == '"' {
			return rest, true
		}
	}
	n := max(bytes.IndexByte(b, '"'), 0)
	p.dtype = parseDType(b[:n])
	return b[n:], p.dtype.valid()
}

// canonicalShape cuts the dimensions off b, and the bracket and comma behind.
func (p *parser) canonicalShape(b []byte) (rest []byte, ok bool) {
	if rest, ok = cut(b, `],`); ok {
		return rest, true
	}
	for {
		dim, rest, ok := cutDecimal(b)
		if !ok || dim > math.MaxInt {
			return nil, false
		}
		p.addDim(int(dim))
		if b, ok = cut(rest, `,`); !ok {
			return cut(rest, `],`)
		}
	}
}

// canonicalOffsets cuts the data offsets off b, and all up to the next member.
func (p *parser) canonicalOffsets(b []byte, e *entry) (rest []byte, ok bool) {
	if b, ok = cut(b, `"data_offsets":[`); !ok {
		return nil, false
	}
	// A tensor begins where the one before ends, which is the same text.
	endText := p.text[p.endText.off:][:p.endText.len]
	if rest, ok = bytes.CutPrefix(b, endText); ok && len(endText) > 0 && len(rest) > 0 && rest[0] == ',' {
		e.begin, b = p.end, rest[1:]
	} else {
		if e.begin, b, ok = cutDecimal(b); !ok {
			return nil, false
		}
		if b, ok = cut(b, `,`); !ok {
			return nil, false
		}
	}
	if e.end, rest, ok = cutDecimal(b); !ok {
		return nil, false
	}
	p.end = e.end
	p.endText = span{uint32(len(p.text) - len(b)), uint32(len(b) - len(rest))}
	return cut(rest, `]},`)
}

// cut cuts a token off the beginning of b.
func cut(b []byte, token string) ([]byte, bool) {
	if len(b) < len(token) || string(b[:len(token)]) != token {
		return b, false
	}
	return b[len(token):], true
}

// cutDecimal cuts an integer off the beginning of b. It reads what integer does,
// but gives up on what that has more to look into: white space, leading zeros,
// and more digits than surely fit.
func cutDecimal(b []byte) (n int64, rest []byte, ok bool) {
	length := 0
	for length < len(b) {
		d := b[length] - '0'
		if d > 9 {
			break
		}
		n = n*10 + int64(d)
		length++
	}
	return n, b[length:], length == 1 || 1 < length && length <= 18 && b[0] != '0'
}
