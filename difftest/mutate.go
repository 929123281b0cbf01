package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"regexp"
	"slices"
	"strconv"
)

// A vector is a line of testdata/cases.jsonl.
type vector struct {
	Name, Reference, Want string
	File                  []byte // base64 in JSON
}

func loadVectors(name string) ([]vector, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var vectors []vector
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var v vector
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		vectors = append(vectors, v)
	}
	return vectors, nil
}

// loadSeeds returns the files of the small vectors.
func loadSeeds(cases string) (seeds [][]byte, err error) {
	vectors, err := loadVectors(cases)
	for _, v := range vectors {
		if len(v.File) <= 16<<10 {
			seeds = append(seeds, v.File)
		}
	}
	return seeds, err
}

// headerText returns the header of a file, if it holds one.
func headerText(file []byte) (text []byte, ok bool) {
	if len(file) < 8 {
		return nil, false
	}
	length := binary.LittleEndian.Uint64(file)
	if length > uint64(len(file)-8) {
		return nil, false
	}
	return file[8:][:length], true
}

// candidates yields the next n candidates.
func (g *generator) candidates(n int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for range n {
			if !yield(g.candidate()) {
				return
			}
		}
	}
}

// candidate returns the next candidate: a generated file or a seed, most often
// with some bytes changed.
func (g *generator) candidate() []byte {
	g.plain, g.sound = g.oneIn(3), g.oneIn(3)
	if g.oneIn(4) {
		seed := pick(g, g.seeds)
		text, ok := headerText(seed)
		if !ok || g.oneIn(10) {
			return g.mutate(seed)
		}
		return g.frame(g.mutate(text), seed[8+len(text):])
	}
	header, size := g.header()
	text := []byte(header)
	if g.bad(4) {
		text = g.mutate(text)
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	return g.frame(text, data)
}

// frame makes a file of its parts, and seldom gets their sizes wrong.
func (g *generator) frame(header, data []byte) []byte {
	length := uint64(len(header))
	if g.bad(60) {
		length = pick(g, []uint64{0, 1, length - 1, length + 1, length + 8, 100_000_000, 100_000_001, 1 << 32, 1 << 63, 1<<64 - 8})
	}
	if g.bad(30) {
		data = pick(g, [][]byte{nil, data[:len(data)*7/8], slices.Concat(data, data), slices.Concat(data, []byte{0})})
	}
	file := slices.Concat(binary.LittleEndian.AppendUint64(nil, length), header, data)
	if g.bad(200) {
		file = file[:g.IntN(len(file))]
	}
	return file
}

// pieces are texts that make a border case where they are put.
var pieces = []string{
	"0", "1", "9", "00", "01", "-", "+", ".", "e", "E5", ".0", "e0", `"`, `\`, `\u0041`, `\ud800`, `\ud83d\ude00`,
	",", ":", "[", "]", "{", "}", "[]", "{}", "[0,0]", " ", "\n", "\t", "\r", "\f", "\x00", "\x1f", "\x7f", "\x80", "\xff", "é", "\u2028", "\ufeff",
	"null", "true", `"a"`, `"dtype"`, `"F32"`, `"x":1,`, `"__metadata__":null,`, `"__metadata__":{},`,
}

var digits = regexp.MustCompile(`[0-9]+`)

// mutate returns a copy of a text with a few changes.
func (g *generator) mutate(text []byte) []byte {
	text = slices.Clone(text)
	for range pick(g, []int{1, 1, 1, 2, 4}) {
		at := g.IntN(len(text) + 1)
		to := min(len(text), at+g.IntN(5))
		switch g.IntN(7) {
		case 0: // replace
			text = slices.Replace(text, at, to, []byte(pick(g, pieces))...)
		case 1: // insert
			text = slices.Insert(text, at, []byte(pick(g, pieces))...)
		case 2: // delete
			text = slices.Delete(text, at, to)
		case 3: // repeat
			to = min(len(text), at+g.IntN(80))
			text = slices.Insert(text, to, bytes.Clone(text[at:to])...)
		case 4: // take from another file
			other := pick(g, g.seeds)
			from := g.IntN(len(other) + 1)
			text = slices.Replace(text, at, to, other[from:min(len(other), from+g.IntN(40))]...)
		case 5: // another number
			if found := digits.FindAllIndex(text, -1); len(found) > 0 {
				number := pick(g, found)
				text = slices.Replace(text, number[0], number[1], []byte(strconv.FormatUint(g.edge(), 10))...)
			}
		case 6: // another bit
			if at < len(text) {
				text[at] ^= 1 << g.IntN(8)
			}
		}
	}
	return text
}
