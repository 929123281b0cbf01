package stats

import (
	"encoding/binary"
	"math"
)

// A counter counts how often each 16-bit code is there.
type counter struct {
	// There are two tables, so that equal neighbors do not wait for each other. The
	// gap keeps the two counts of a code out of one set of the cache.
	even    [1 << 16]uint32
	_       [144]uint32
	odd     [1 << 16]uint32
	pending int64 // codes in the tables

	seen   []uint16 // the codes in the tables, unless dense
	dense  bool     // any code may be in them
	counts []count  // what was drained
}

// A count is the number of times that a code, or the value it stands for, is there.
type count struct {
	code uint16
	n    int64
}

// few is the number of codes from which on it is faster to look for them in the tables
// than to note each. A model may have 100,000 tensors that have fewer.
const few = 1 << 14

// add counts one code.
func (c *counter) add(code uint16) {
	if c.even[code] == 0 {
		c.seen = append(c.seen, code)
	}
	c.even[code]++
}

// expect prepares the counter for n more codes, and reports whether they are many.
func (c *counter) expect(n int) bool {
	if c.pending += int64(n); c.pending > math.MaxUint32 {
		c.empty()
		c.pending = int64(n)
	}
	c.dense = c.dense || n > few
	return c.dense
}

// addCodes counts the little-endian codes in b, the last of which may lack a byte, 0.
func (c *counter) addCodes(b []byte) {
	many := c.expect((len(b) + 1) / 2)
	for ; many && len(b) >= 16; b = b[16:] {
		x, y := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		c.even[uint16(x)]++
		c.odd[uint16(x>>16)]++
		c.even[uint16(x>>32)]++
		c.odd[uint16(x>>48)]++
		c.even[uint16(y)]++
		c.odd[uint16(y>>16)]++
		c.even[uint16(y>>32)]++
		c.odd[uint16(y>>48)]++
	}
	for ; len(b) >= 2; b = b[2:] {
		c.add(binary.LittleEndian.Uint16(b))
	}
	if len(b) > 0 {
		c.add(uint16(b[0]))
	}
}

// addUpper counts the upper halves of the 32-bit words in b.
func (c *counter) addUpper(b []byte) {
	many := c.expect(len(b) / 4)
	for ; many && len(b) >= 16; b = b[16:] {
		x, y := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		c.even[uint16(x>>16)]++
		c.odd[x>>48]++
		c.even[uint16(y>>16)]++
		c.odd[y>>48]++
	}
	for ; len(b) >= 4; b = b[4:] {
		c.add(binary.LittleEndian.Uint16(b[2:]))
	}
}

// empty moves what is in the tables to counts.
func (c *counter) empty() {
	if c.dense {
		for first := 0; first < len(c.even); first += 4 {
			even, odd := (*[4]uint32)(c.even[first:]), (*[4]uint32)(c.odd[first:])
			if even[0]|even[1]|even[2]|even[3]|odd[0]|odd[1]|odd[2]|odd[3] == 0 { // as most are
				continue
			}
			for i := range even {
				if n := int64(even[i]) + int64(odd[i]); n > 0 {
					c.counts = append(c.counts, count{uint16(first + i), n})
				}
			}
			*even, *odd = [4]uint32{}, [4]uint32{}
		}
	} else {
		for _, code := range c.seen {
			c.counts = append(c.counts, count{code, int64(c.even[code])})
			c.even[code] = 0
		}
	}
	c.seen, c.dense, c.pending = c.seen[:0], false, 0
}

// drain returns what was counted since the last call, until the next use of the
// counter. A code may be there more than once.
func (c *counter) drain() []count {
	c.empty()
	counts := c.counts
	c.counts = c.counts[:0]
	return counts
}

// drain returns what workers have counted. That of several is in the order of codes:
// sums of floats depend on it, and must not depend on which worker was faster.
func drain(workers []*worker) []count {
	if len(workers) == 1 {
		return workers[0].drain()
	}
	var total buckets
	for _, w := range workers {
		total.add(w.drain())
	}
	return total.counts()
}
