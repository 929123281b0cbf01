package bintensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A decoder reads the bincode of a header. It panics with a broken, which parseHeader recovers.
type decoder struct{ rest []byte }

type broken struct{ error }

func fail(format string, args ...any) { panic(broken{fmt.Errorf(format, args...)}) }

// parseHeader reads a header in one of the formats, and checks it.
func parseHeader(text []byte, data int64, read func(*decoder) *safetensors.Header) (h *safetensors.Header, err error) {
	d := &decoder{rest: text}
	defer func() {
		switch why := recover().(type) {
		case nil:
		case broken:
			h, err = nil, fmt.Errorf("header, at byte %d: %w", prefixSize+len(text)-len(d.rest), why.error)
		default:
			panic(why)
		}
	}()
	h = read(d)
	if strings.Trim(string(d.rest), " ") != "" {
		fail("the padding after the table is not of spaces")
	}
	return h, check(h, data)
}

// newer reads the header of versions 0.1 and later: each tensor follows its name.
func (d *decoder) newer() *safetensors.Header { return d.header(d.string) }

// older reads the header of versions 0.0. The names are at the end, in any order.
func (d *decoder) older() *safetensors.Header {
	h := d.header(func() string { return "" })
	if names := d.number(); names != uint64(len(h.Tensors)) {
		fail("%d names for %d tensors", names, len(h.Tensors))
	}
	named := make([]bool, len(h.Tensors))
	for range h.Tensors {
		name, i := d.string(), d.number()
		if i >= uint64(len(named)) || named[i] {
			fail("the name %.200q is for tensor %d, which has one or is none", name, i)
		}
		h.Tensors[i].Name, named[i] = name, true
	}
	return h
}

func (d *decoder) header(name func() string) *safetensors.Header {
	h := &safetensors.Header{Metadata: d.metadata()}
	for range d.entries() {
		h.Tensors = append(h.Tensors, d.tensor(name()))
	}
	return h
}

// metadata reads an optional map.
func (d *decoder) metadata() map[string]string {
	switch present := d.take(1)[0]; {
	case present > 1:
		fail("it starts neither with 0 nor with 1")
	case present == 0:
		return nil
	}
	m := make(map[string]string)
	for range d.entries() {
		key, value := d.string(), d.string()
		if _, dup := m[key]; dup {
			fail("duplicate metadata key %.200q", key)
		}
		m[key] = value
	}
	return m
}

func (d *decoder) tensor(name string) safetensors.TensorInfo {
	info := safetensors.TensorInfo{Name: name, DType: dtypes[d.atMost(uint64(len(dtypes)-1), "unknown dtype %d")]}
	info.Shape = make([]int, d.atMost(maxRank, "%d dimensions, expected at most %d", maxRank))
	for i := range info.Shape {
		info.Shape[i] = int(d.atMost(math.MaxInt, "dimension %d exceeds an int"))
	}
	for i := range info.DataOffsets {
		info.DataOffsets[i] = int64(d.atMost(math.MaxInt64, "data offset %d overflows 63 bits"))
	}
	return info
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		fail("%d bytes where the header has %d left: %w", n, len(d.rest), io.ErrUnexpectedEOF)
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// number reads a number in its only spelling: the shortest.
func (d *decoder) number() uint64 {
	first := d.take(1)[0]
	if first < mark16 {
		return uint64(first)
	}
	if first > mark64 {
		fail("a number that starts with %d", first)
	}
	var word [8]byte
	copy(word[:], d.take(2<<(first-mark16)))
	n := binary.LittleEndian.Uint64(word[:])
	if least := [...]uint64{mark16, 1 << 16, 1 << 32}[first-mark16]; n < least {
		fail("the number %d is spelled longer than needed", n)
	}
	return n
}

// atMost reads a number up to a limit. format is the error for a larger one, before args.
func (d *decoder) atMost(limit uint64, format string, args ...any) uint64 {
	n := d.number()
	if n > limit {
		fail(format, append([]any{n}, args...)...)
	}
	return n
}

// entries reads the number of entries that follow, up to what a header of safetensors has
// room for: an entry takes 4 bytes here, and some hundred in memory.
func (d *decoder) entries() uint64 {
	const limit = 1 << 21
	return d.atMost(limit, "%d entries, safetensors has room for %d", limit)
}

func (d *decoder) string() string { return string(d.take(d.number())) }
