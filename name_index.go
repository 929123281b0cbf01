package safetensors

import (
	"cmp"
	"hash/maphash"
	"math/bits"
)

// A nameIndex maps names to entry numbers: open addressing, one 32-bit word per
// slot. It is built five times faster than a Go map of the same names and looked
// up as fast. The hash is seeded, so that nobody can make a file whose names
// collide.
type nameIndex struct {
	seed  maphash.Seed
	slots []uint32 // a power of two of them, at most half in use; 0 is a free one
	mask  uint32   // of the number+1 in a slot; the bits above it are bits of the hash
}

// newNameIndex indexes n names. If a name occurs twice, it returns the number of
// the second occurrence, else -1.
func newNameIndex(n int, name func(int) string) (x nameIndex, duplicate int) {
	if n == 0 {
		return x, -1
	}
	x.seed = maphash.MakeSeed()
	x.mask = 1<<bits.Len(uint(n)) - 1
	x.slots = make([]uint32, 1<<bits.Len(uint(2*n)))
	for i := range n {
		slot, tag := x.find(name(i), name)
		if x.slots[slot] != 0 {
			return x, i
		}
		x.slots[slot] = tag | uint32(i+1)
	}
	return x, -1
}

// lookup returns the number of s, or -1 if it has none. name must return the
// names that were indexed.
func (x *nameIndex) lookup(s string, name func(int) string) int {
	if len(x.slots) == 0 {
		return -1
	}
	slot, _ := x.find(s, name)
	return int(x.slots[slot]&x.mask) - 1
}

// find returns the slot of s, or the free slot where the search for it ends, and the
// bits of the hash that the slot holds.
func (x *nameIndex) find(s string, name func(int) string) (slot int, tag uint32) {
	h := maphash.String(x.seed, s)
	slot, tag = int(h)&(len(x.slots)-1), uint32(h>>32)&^x.mask
	for {
		v := x.slots[slot]
		if v == 0 || v&^x.mask == tag && name(int(v&x.mask)-1) == s {
			return slot, tag
		}
		slot = (slot + 1) & (len(x.slots) - 1)
	}
}

// duplicateName returns the number of a tensor that has the name of another, -1 if
// there is none. In most headers the names of each dtype are sorted: then it compares
// neighbors, and merges the dtypes.
func duplicateName(tensors []TensorInfo) int {
	const most = 4 // runs, which are compared with each other
	name := func(i int) string { return tensors[i].Name }
	var runs [most + 1]int // where sorted runs start
	n := 1
	for i := 1; i < len(tensors); i++ {
		if name(i) > name(i-1) {
			continue
		}
		if n == most {
			_, duplicate := newNameIndex(len(tensors), name)
			return duplicate
		}
		runs[n] = i
		n++
	}
	runs[n] = len(tensors)
	for a := range n {
		for b := a + 1; b < n; b++ {
			for i, k := runs[a], runs[b]; i < runs[a+1] && k < runs[b+1]; {
				switch c := cmp.Compare(name(i), name(k)); {
				case c < 0:
					i++
				case c > 0:
					k++
				default:
					return k
				}
			}
		}
	}
	return -1
}
