package bintensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A decoder reads the bincode of a header. After an error it reads zeros.
type decoder struct {
	rest []byte
	err  error
}

// parseHeader reads a header in one of the formats, and checks it.
func parseHeader(text []byte, data int64, read func(*decoder) *safetensors.Header) (*safetensors.Header, error) {
	d := &decoder{rest: text}
	h := read(d)
	if d.err == nil && strings.Trim(string(d.rest), " ") != "" {
		d.err = errors.New("the padding after the table is not of spaces")
	}
	if d.err != nil {
		return nil, fmt.Errorf("header, at byte %d: %w", prefixSize+len(text)-len(d.rest), d.err)
	}
	return h, check(h, data)
}

// newer reads the header of versions 0.1 and later.
func (d *decoder) newer() *safetensors.Header {
	h := &safetensors.Header{Metadata: d.metadata()}
	for range d.entries() {
		if d.err != nil {
			break
		}
		name := d.string()
		info := d.tensor()
		info.Name = name
		h.Tensors = append(h.Tensors, info)
	}
	return h
}

// older reads the header of versions 0.0. The names are in any order.
func (d *decoder) older() *safetensors.Header {
	h := &safetensors.Header{Metadata: d.metadata()}
	for range d.entries() {
		if d.err != nil {
			break
		}
		h.Tensors = append(h.Tensors, d.tensor())
	}
	names := d.count()
	if names != len(h.Tensors) {
		d.fail(fmt.Errorf("%d names for %d tensors", names, len(h.Tensors)))
	}
	named := make([]bool, len(h.Tensors))
	for range h.Tensors {
		name, i := d.string(), d.number()
		if d.err != nil {
			break
		}
		if i >= uint64(len(named)) || named[i] {
			d.fail(fmt.Errorf("the name %.200q is for tensor %d, which has one or is none", name, i))
			break
		}
		h.Tensors[i].Name, named[i] = name, true
	}
	return h
}

// metadata reads an optional map.
func (d *decoder) metadata() map[string]string {
	switch d.byte() {
	case 0:
		return nil
	case 1:
	default:
		d.fail(errors.New("it starts neither with 0 nor with 1"))
		return nil
	}
	m := make(map[string]string)
	for range d.entries() {
		key, value := d.string(), d.string()
		if d.err != nil {
			break
		}
		if _, dup := m[key]; dup {
			d.fail(fmt.Errorf("duplicate metadata key %.200q", key))
		}
		m[key] = value
	}
	return m
}

func (d *decoder) tensor() (info safetensors.TensorInfo) {
	dtype := d.number()
	if dtype >= uint64(len(dtypes)) {
		d.fail(fmt.Errorf("unknown dtype %d", dtype))
		return info
	}
	info.DType = dtypes[dtype]
	rank := d.count()
	if rank > maxRank {
		d.fail(rankError(rank))
		return info
	}
	info.Shape = make([]int, rank)
	for i := range info.Shape {
		info.Shape[i] = d.int()
	}
	for i := range info.DataOffsets {
		n := d.number()
		if n > math.MaxInt64 {
			d.fail(fmt.Errorf("data offset %d overflows 63 bits", n))
		}
		info.DataOffsets[i] = int64(n)
	}
	return info
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decoder) take(n uint64) []byte {
	if d.err == nil && n > uint64(len(d.rest)) {
		d.err = fmt.Errorf("%d bytes where the header has %d left: %w", n, len(d.rest), io.ErrUnexpectedEOF)
	}
	if d.err != nil {
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	b := d.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

// number reads a number in its only spelling: the shortest.
func (d *decoder) number() uint64 {
	first := d.byte()
	if first < mark16 {
		return uint64(first)
	}
	if first > mark64 {
		d.fail(fmt.Errorf("a number that starts with %d", first))
		return 0
	}
	var word [8]byte
	copy(word[:], d.take(2<<(first-mark16)))
	n := binary.LittleEndian.Uint64(word[:])
	if least := [...]uint64{mark16, 1 << 16, 1 << 32}[first-mark16]; n < least {
		d.fail(fmt.Errorf("the number %d is spelled longer than needed", n))
	}
	return n
}

func (d *decoder) int() int {
	n := d.number()
	if n > math.MaxInt {
		d.fail(fmt.Errorf("dimension %d exceeds an int", n))
		return 0
	}
	return int(n)
}

// count reads the number of parts, each of at least one byte, that follow.
func (d *decoder) count() int {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.fail(fmt.Errorf("%d parts in the %d bytes that are left: %w", n, len(d.rest), io.ErrUnexpectedEOF))
		return 0
	}
	return int(n)
}

// entries is count, limited to what a header of safetensors has room for: an entry
// takes 4 bytes here, and some hundred in memory.
func (d *decoder) entries() int {
	const limit = 1 << 21
	n := d.count()
	if n > limit {
		d.fail(fmt.Errorf("%d entries, safetensors has room for %d", n, limit))
		return 0
	}
	return n
}

func (d *decoder) string() string { return string(d.take(d.number())) }
