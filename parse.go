package safetensors

import (
	"math"
	"slices"
	"unicode/utf8"
)

// A parser turns the text of a header into a table. Its rules are those of
// validate.go, applied as soon as what they need is known.
type parser struct {
	scanner
	t         table
	scattered bool  // an entry does not begin where the one before it ends
	sawMeta   bool  // __metadata__ has been seen, be it null
	dtype     DType // of the last entry
	end       int64 // of the last canonical entry,
	endText   span  // and how the text spells it
	slow      bool  // never take the fast path: the tests compare the two
}

// parseHeader checks a header, which it owns from now on, and returns its
// table. dataSize is the size of the data buffer, -1 if it is not known.
func parseHeader(text []byte, dataSize int64) (*table, error) {
	p := newParser(text)
	return p.parse(dataSize)
}

func newParser(text []byte) *parser {
	return &parser{scanner: scanner{text: text, base: prefixSize}, t: table{dims: []int{}}}
}

func (p *parser) parse(dataSize int64) (*table, error) {
	text := p.text
	if err := checkHeaderStart(text); err != nil {
		return nil, err
	}
	if !utf8.Valid(text) {
		return nil, p.fail(validUTF8(text), "the header is not valid UTF-8")
	}
	if err := p.header(); err != nil {
		return nil, err
	}
	t := &p.t
	t.text = freeze(text)
	if p.scattered {
		t.sortByOffset()
	}
	if err := t.checkNames(); err != nil {
		return nil, err
	}
	if p.scattered {
		if err := t.checkLayout(); err != nil {
			return nil, err
		}
	}
	if broken := checkDataSize(t.dataSize(), dataSize); broken != "" {
		return nil, &FormatError{Offset: t.size() + min(t.dataSize(), dataSize), Reason: broken}
	}
	return t, nil
}

// header reads the whole text: one object, white space around it aside.
func (p *parser) header() error {
	p.pos = 1 // checkHeaderStart has seen the brace
	if !p.byte('}') {
		for more := true; more; {
			if !p.slow {
				p.canonical()
			}
			name, err := p.key()
			if err != nil {
				return err
			}
			if string(p.text[name.off:][:name.len]) == metadataKey {
				err = p.metadata()
			} else {
				err = p.entry(name)
			}
			if err == nil {
				more, err = p.more('}')
			}
			if err != nil {
				return err
			}
		}
	}
	if p.space(); p.pos < len(p.text) {
		return p.failHere("the end of the header")
	}
	return nil
}

// metadata reads the value of __metadata__: an object of strings, or null.
func (p *parser) metadata() error {
	if p.sawMeta {
		return p.fail(p.pos, "%s stands in the header twice", metadataKey)
	}
	p.sawMeta = true
	if p.literal("null") {
		return nil
	}
	p.t.hasMeta = true
	return p.object("an object of strings, the value of "+metadataKey+",", func(key span) error {
		value, err := p.str("a string, as all values of metadata are,")
		if err == nil {
			p.t.metadata = reserve(&p.scanner, p.t.metadata, 2, len(`"":"",`)/2)
			p.t.metadata = append(p.t.metadata, key, value)
		}
		return err
	})
}

// entry reads the value of a tensor's name.
func (p *parser) entry(name span) error {
	p.tensor = name
	p.space()
	start := p.pos
	e := p.next(name)
	if err := p.fields(e); err != nil {
		return err
	}
	if broken := p.add(e); broken != "" {
		return p.fail(start, "%s", broken)
	}
	p.tensor = span{}
	return nil
}

// fields reads an entry of any spelling: an object of the three fields in any
// order, each once, and of unknown ones, which are ignored.
func (p *parser) fields(e *entry) error {
	const (
		dtype = 1 << iota
		shape
		dataOffsets
	)
	if !p.byte('{') {
		return p.failHere("an object, the entry of a tensor,")
	}
	seen := 0
	for more := !p.byte('}'); more; {
		p.space()
		at := p.pos
		key, err := p.key()
		if err != nil {
			return err
		}
		field := 0
		switch string(p.text[key.off:][:key.len]) {
		case "dtype":
			field, err = dtype, p.readDType()
		case "shape":
			field, err = shape, p.readShape()
		case "data_offsets":
			field, err = dataOffsets, p.readOffsets(e)
		default:
			err = p.skip(2) // within the header and the entry
		}
		if err != nil {
			return err
		}
		if seen&field != 0 {
			return p.fail(at, "field %s stands in the entry twice", p.text[key.off:][:key.len])
		}
		seen |= field
		if more, err = p.more('}'); err != nil {
			return err
		}
	}
	switch {
	case seen&dtype == 0:
		return p.fail(p.pos-1, "the entry has no dtype")
	case seen&shape == 0:
		return p.fail(p.pos-1, "the entry has no shape")
	case seen&dataOffsets == 0:
		return p.fail(p.pos-1, "the entry has no data_offsets")
	}
	return nil
}

func (p *parser) readDType() error {
	name, err := p.str("a string, the dtype,")
	if err != nil {
		return err
	}
	text := p.text[name.off:][:name.len]
	if p.dtype = parseDType(text); !p.dtype.valid() {
		return p.fail(int(name.off), "unknown dtype %s", quote(string(text)))
	}
	return nil
}

func (p *parser) readShape() error {
	if !p.byte('[') {
		return p.failHere("an array, the shape,")
	}
	for more := !p.byte(']'); more; {
		dim, err := p.integer("a dimension", math.MaxInt)
		if err != nil {
			return err
		}
		p.addDim(int(dim))
		if more, err = p.more(']'); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) readOffsets(e *entry) (err error) {
	if !p.byte('[') {
		return p.failHere("an array, the data offsets,")
	}
	if e.begin, err = p.integer("a data offset", math.MaxInt64); err != nil {
		return err
	}
	if err = p.expect(','); err != nil {
		return err
	}
	if e.end, err = p.integer("a data offset", math.MaxInt64); err != nil {
		return err
	}
	return p.expect(']')
}

func (p *parser) addDim(dim int) {
	if len(p.t.dims) == cap(p.t.dims) {
		p.t.dims = reserve(&p.scanner, p.t.dims, 1, len(`0,`))
	}
	p.t.dims = append(p.t.dims, dim)
}

// next returns the place of the next entry in the table, which add takes. There
// is room behind the dimensions for a shape of usual rank.
func (p *parser) next(name span) *entry {
	const leastEntry, usualRank, leastDim = len(`"":{"dtype":"U8","shape":[],"data_offsets":[0,1]},`), 8, len(`0,`)
	t := &p.t
	if len(t.entries) == cap(t.entries) {
		t.entries = reserve(&p.scanner, t.entries, 1, leastEntry)
	}
	if len(t.dims)+usualRank > cap(t.dims) {
		t.dims = reserve(&p.scanner, t.dims, usualRank, leastDim)
	}
	e := &t.entries[:len(t.entries)+1][len(t.entries)]
	e.name, e.dims = name, uint32(len(t.dims))
	return e
}

// add completes the entry at that place with the dtype and the dimensions that
// have been read. It becomes part of the table unless it breaks a rule.
func (p *parser) add(e *entry) (broken string) {
	t := &p.t
	shape := t.dims[e.dims:]
	if broken := checkOffsets(p.dtype, shape, e.begin, e.end); broken != "" {
		return broken
	}
	e.rankDType = packRank(len(shape), p.dtype)
	n, end := len(t.entries), int64(0)
	if n > 0 {
		end = t.entries[n-1].end
	}
	if e.begin != end {
		p.scattered = true
	}
	t.entries = t.entries[:n+1]
	return ""
}

// reserve returns list with room for n more. If it has to grow, it grows to
// what the whole text will need if it goes on as it began, but never beyond
// what can still come: an element takes at least so many bytes of text.
func reserve[E any](s *scanner, list []E, n, least int) []E {
	if cap(list)-len(list) >= n {
		return list
	}
	rest := len(s.text) - s.pos
	more := max(32, len(list)/4, int(float64(len(list))*float64(rest)/float64(s.pos)*1.05))
	return slices.Grow(list, n+min(more, rest/least))
}
