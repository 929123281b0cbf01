package bintensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A decoder reads the bincode of a header. To report an error, its methods panic with a broken,
// which parseHeader recovers.
type decoder struct{ rest []byte }

type broken struct{ error }

func fail(format string, args ...any) { panic(broken{fmt.Errorf(format, args...)}) }

// parseHeader parses a header by calling read, which reads one kind of headers, and checks the
// result. data is the number of bytes after the header.
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
		fail("the padding after the table does not consist of spaces")
	}
	return h, check(h, data)
}

// newer reads the header of versions 0.1 and later, in which each tensor follows its name.
func (d *decoder) newer() *safetensors.Header { return d.header(d.string) }

// older reads the header of versions 0.0, in which the names stand at the end, in any order.
func (d *decoder) older() *safetensors.Header {
	h := d.header(func() string { return "" })
	if names := d.number(); names != uint64(len(h.Tensors)) {
		fail("%s for %s", shapetext.Count(names, "name"), shapetext.Count(len(h.Tensors), "tensor"))
	}
	named := make([]bool, len(h.Tensors))
	for range h.Tensors {
		name, i := d.string(), d.number()
		if i >= uint64(len(named)) || named[i] {
			fail("the name %.200q is for tensor %d, which has a name or does not exist", name, i)
		}
		h.Tensors[i].Name, named[i] = name, true
	}
	return h
}

// header reads a header up to the last tensor. It calls name before each tensor.
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

// take returns the next n bytes.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		fail("%d bytes where the header has %d left: %w", n, len(d.rest), io.ErrUnexpectedEOF)
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// number reads a number. Only the shortest spelling is valid.
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

// atMost reads a number of at most limit. For a larger number it fails with an error formatted from
// that number and args.
func (d *decoder) atMost(limit uint64, format string, args ...any) uint64 {
	n := d.number()
	if n > limit {
		fail(format, append([]any{n}, args...)...)
	}
	return n
}

// entries reads the number of entries that follow. The number is limited, because an entry takes
// only 4 bytes in the file, but about a hundred bytes in memory. The limit is about as many entries
// as fit a header of safetensors.
func (d *decoder) entries() uint64 {
	const limit = 1 << 21
	return d.atMost(limit, "%d entries, safetensors has room for %d", limit)
}

func (d *decoder) string() string { return string(d.take(d.number())) }
