package stats

import (
	"encoding/binary"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// A table counts codes of 16 bits.
type table struct {
	n    [1 << 16]int64
	used [1 << 8]bool // which 256 neighbors may be there: in most tensors few, and there may be many tensors
}

// A count is the number of times that a code, or the value it stands for, is there.
type count struct {
	code uint16
	n    int64
}

func (t *table) add(code uint16, n int64) {
	t.n[code] += n
	t.used[code>>8] = true
}

func (t *table) addAll(counts []count) {
	for _, c := range counts {
		t.add(c.code, c.n)
	}
}

// addCodes counts the little-endian codes in b, the last of which may lack a byte, 0.
func (t *table) addCodes(b []byte) {
	for ; len(b) >= 2; b = b[2:] {
		t.add(binary.LittleEndian.Uint16(b), 1)
	}
	if len(b) > 0 {
		t.add(uint16(b[0]), 1)
	}
}

// drain returns what was counted, in the order of codes, and empties the table.
func (t *table) drain() (counts []count) {
	for high, used := range t.used {
		if !used {
			continue
		}
		neighbors := t.n[high<<8:][:1<<8]
		for low, n := range neighbors {
			if n > 0 {
				counts = append(counts, count{uint16(high<<8 + low), n})
			}
		}
		clear(neighbors)
		t.used[high] = false
	}
	return counts
}

// unpack returns the counts of codes of a dtype, several of which may have been counted
// as one of 16 bits, and the last of size bytes with a byte 0.
func unpack(counts []count, d safetensors.DType, size int64) []count {
	if d.Bits() == 16 {
		return counts
	}
	var totals [1 << 8]int64
	bits := d.Bits()
	totals[0] = -(size % 2) * int64(8/bits)
	for _, c := range counts {
		for shift := 0; shift < 16; shift += bits {
			totals[c.code>>shift&(1<<bits-1)] += c.n
		}
	}
	counts = counts[:0]
	for code, n := range totals {
		if n > 0 {
			counts = append(counts, count{uint16(code), n})
		}
	}
	return counts
}

// valuesOf returns the numbers that the codes of a dtype of 4, 8 or 16 bits stand for.
func valuesOf(d safetensors.DType) []float64 {
	var codes []byte
	for code := range 1 << d.Bits() {
		codes = append(codes, byte(code)) // of 4 bits: the code, then a 0
		if d.Bits() == 16 {
			codes = append(codes, byte(code>>8))
		}
	}
	t, _ := safetensors.NewTensor(d, []int{len(codes) * 8 / d.Bits()}, codes)
	all, _ := numbers.Append(nil, t) // which has every number of so few bits
	step := len(all) >> d.Bits()
	for code := range len(all) / max(step, 1) {
		all[code] = all[code*step]
	}
	return all
}
