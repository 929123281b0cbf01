package safetensors

import (
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// A parser turns the text of a header into a table. It checks each rule of validate.go as soon as
// it has read the values that the rule needs.
type parser struct {
	jsonscan.Scanner
	t         table
	tensor    jsonscan.Span // name of the tensor whose entry is being read, for errors
	scattered bool          // whether some entry does not start where the one before it ends
	sawMeta   bool          // whether __metadata__ was read, even if its value is null
	first     int           // index in t.dims of the first dimension of the last entry
	dtype     DType         // dtype of the last entry
	end       int64         // end offset of the last canonical entry
	endText   jsonscan.Span // digits of end in the text
	slow      bool          // whether the fast path is never taken; tests set it to compare both paths
	known     [64]known     // texts of recent canonical entries, each in the slot that knownAt chooses
}

// parseHeader checks a header and returns its table, which keeps text. dataSize is the size of
// the data buffer in bytes, -1 if unknown.
func parseHeader(text []byte, dataSize int64) (*table, error) {
	p := newParser(text)
	defer p.free()
	return p.parse(dataSize)
}

// parsers contains the parsers that are not in use. Each of them is zero. A parser is larger than the
// table of a few tensors, so that allocating one would take most of the time for a small header.
var parsers = sync.Pool{New: func() any { return new(parser) }}

// newParser returns a parser for a text, which it takes from parsers.
func newParser(text []byte) *parser {
	p := parsers.Get().(*parser)
	p.Text, p.t.dims = text, []int{}
	return p
}

// free gives p back to parsers. Neither the text nor the table may refer to p.
func (p *parser) free() {
	*p = parser{}
	parsers.Put(p)
}

// parse reads the whole text, and returns its table, which does not refer to p. dataSize is as for
// parseHeader.
func (p *parser) parse(dataSize int64) (*table, error) {
	err := p.CheckUTF8("the header")
	if err == nil {
		err = p.header()
	}
	if err != nil {
		return nil, scanError(err, prefixSize, p.Bytes(p.tensor))
	}
	t := new(table)
	*t = p.t
	t.text = mem.Freeze(p.Text)
	if p.scattered {
		t.sortByOffset()
	}
	err = t.checkNames()
	if err == nil && p.scattered {
		err = t.checkLayout()
	}
	if err == nil {
		err = t.checkDataSize(dataSize)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// header reads the whole text: one object, and white space before, in and after it, which writers
// may use to align the data.
func (p *parser) header() error {
	err := p.Object("an object, the header", func(name jsonscan.Span) (err error) {
		if string(p.Bytes(name)) == metadataKey {
			err = p.metadata(name)
		} else {
			err = p.entry(name)
		}
		for err == nil && !p.slow && p.canonicalEntry() {
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.End("the header")
}

// metadata reads the value of __metadata__: an object of strings, or null. name is the place of that
// key in the text, for errors.
func (p *parser) metadata(name jsonscan.Span) error {
	if p.sawMeta {
		return p.Fail(p.Pos, "duplicate %s", metadataKey)
	}
	p.sawMeta = true
	if p.Literal("null") {
		return nil
	}
	p.t.metadata = []member{} // not nil, even if it stays empty
	return p.Object("an object of strings, the metadata", func(key jsonscan.Span) error {
		p.Space()
		if p.Pos < len(p.Text) && p.Text[p.Pos] != '"' {
			return p.notString(name, key)
		}
		value, err := p.String("a string, the value of a metadata key")
		p.t.metadata = append(jsonscan.Reserve(&p.Scanner, p.t.metadata, 1, len(`"":"",`)), member{key, value})
		return err
	})
}

// notString returns the error for the value of a metadata key that is not a string. If the value is
// an array, and the key is a field of an entry, the writer took __metadata__ for the name of a
// tensor: the error then says that this name is reserved.
func (p *parser) notString(name, key jsonscan.Span) error {
	text := string(p.Bytes(key))
	if (text == "shape" || text == "data_offsets") && p.Byte('[') {
		p.tensor = name
		return p.Fail(int(name.Off), "%s", nameReserved)
	}
	found, _ := utf8.DecodeRune(p.Text[p.Pos:])
	return p.Fail(p.Pos, "metadata key %s: found %q, but values are strings: write JSON as a string", quote(text), found)
}

// entry reads the entry of a tensor, the value of its name.
func (p *parser) entry(name jsonscan.Span) error {
	p.tensor = name
	p.Space()
	start := p.Pos
	e := p.next(name)
	if err := p.fields(e); err != nil {
		return err
	}
	if broken := p.add(e); broken != "" {
		return p.Fail(start, "%s", broken)
	}
	p.tensor = jsonscan.Span{}
	return nil
}

// fields reads an entry with any legal spelling: an object with the three fields in any order,
// each once, and with unknown fields, which are ignored.
func (p *parser) fields(e *entry) error {
	var seen [3]bool
	err := p.Object("an object, the entry of a tensor", func(key jsonscan.Span) (err error) {
		field := 0
		switch string(p.Bytes(key)) {
		case "dtype":
			field, err = 0, p.readDType()
		case "shape":
			field, err = 1, p.readShape()
		case "data_offsets":
			field, err = 2, p.readOffsets(e)
		default:
			return p.Skip(2) // 2 is the depth of the value: it is in an entry of the header
		}
		if err == nil && seen[field] {
			err = p.Fail(int(key.Off)-1, "duplicate field %q", p.Bytes(key))
		}
		seen[field] = true
		return err
	})
	if i := slices.Index(seen[:], false); err == nil && i >= 0 {
		err = p.Fail(p.Pos-1, "the entry has no %s", [...]string{"dtype", "shape", "data_offsets"}[i])
	}
	return err
}

func (p *parser) readDType() error {
	name, err := p.String("a string, the dtype")
	if err != nil {
		return err
	}
	text := p.Bytes(name)
	if p.dtype = parseDType(text); !p.dtype.valid() {
		return p.Fail(int(name.Off), "unknown dtype %s", quote(string(text)))
	}
	return nil
}

func (p *parser) readShape() error {
	if !p.Byte('[') {
		return p.FailHere("an array, the shape")
	}
	for more := !p.Byte(']'); more; {
		dim, err := p.Integer("a dimension", math.MaxInt)
		if err != nil {
			return err
		}
		p.addDim(int(dim))
		if more, err = p.More(']'); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) readOffsets(e *entry) (err error) {
	if !p.Byte('[') {
		return p.FailHere("an array, the data offsets")
	}
	if e.begin, err = p.Integer("a data offset", math.MaxInt64); err != nil {
		return err
	}
	if err = p.Expect(','); err != nil {
		return err
	}
	if e.end, err = p.Integer("a data offset", math.MaxInt64); err != nil {
		return err
	}
	return p.Expect(']')
}

func (p *parser) addDim(dim int) {
	if len(p.t.dims) == cap(p.t.dims) {
		p.t.dims = jsonscan.Reserve(&p.Scanner, p.t.dims, 1, len(`0,`))
	}
	p.t.dims = append(p.t.dims, dim)
}

// next returns the slot after the last entry. It is not yet part of the table; add or commit adds
// it. The pointer is valid until the method is called again. The method also
// reserves room for 8 dimensions, more than any usual rank.
func (p *parser) next(name jsonscan.Span) *entry {
	const leastEntry, usualRank, leastDim = len(`"":{"dtype":"U8","shape":[],"data_offsets":[0,1]},`), 8, len(`0,`)
	t := &p.t
	if len(t.entries) == cap(t.entries) {
		t.entries = jsonscan.Reserve(&p.Scanner, t.entries, 1, leastEntry)
	}
	if len(t.dims)+usualRank > cap(t.dims) {
		t.dims = jsonscan.Reserve(&p.Scanner, t.dims, usualRank, leastDim)
	}
	e := &t.entries[:len(t.entries)+1][len(t.entries)]
	e.name = name
	p.first = len(t.dims)
	return e
}

// add completes the entry that the method next returned, with the dtype and the dimensions that
// were read, and adds it to the table. If the entry breaks a rule, add returns the rule and adds
// nothing.
func (p *parser) add(e *entry) (broken string) {
	t := &p.t
	shape := t.dims[p.first:]
	if broken := checkOffsets(p.dtype, shape, e.begin, e.end); broken != "" {
		return broken
	}
	e.shape = packShape(len(shape), p.first, p.dtype)
	p.commit(e)
	return ""
}

// commit adds the entry that the method next returned to the table.
func (p *parser) commit(e *entry) {
	t := &p.t
	n, end := len(t.entries), int64(0)
	if n > 0 {
		end = t.entries[n-1].end
	}
	if e.begin != end {
		p.scattered = true
	}
	t.entries = t.entries[:n+1]
}
