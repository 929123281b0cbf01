package dcp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// cut returns a rank for each box, with the piece of a tensor in it.
func cut(x safetensors.Tensor, boxes []box) (ranks []pieces) {
	for _, b := range boxes {
		var ranges []safetensors.Range
		for i := range b.begin {
			ranges = append(ranges, safetensors.Span(b.begin[i], b.end[i]))
		}
		ranks = append(ranks, pieces{"x": must(NewPiece(must(x.Slice(ranges...)), b.begin...))})
	}
	return ranks
}

// cutUp cuts a box in two, n times over. Multiples of unit are left whole in the last
// dimension.
func cutUp(rng *rand.Rand, b box, n, unit int) []box {
	boxes := []box{b}
	for range n {
		i := rng.IntN(len(boxes))
		b, dim := boxes[i], rng.IntN(len(b.begin))
		step := 1
		if dim == len(b.begin)-1 {
			step = unit
		}
		size := (b.end[dim] - b.begin[dim]) / step
		at := b.begin[dim] + step*rng.IntN(size+1) // perhaps an end of the box: an empty piece
		low, high := box{b.begin, slices.Clone(b.end)}, box{slices.Clone(b.begin), b.end}
		low.end[dim], high.begin[dim] = at, at
		boxes = append(slices.Delete(boxes, i, i+1), low, high)
	}
	return boxes
}

// TestTilings joins tensors of every dtype that were cut up at random, with empty
// pieces, and with pieces that several ranks have, and slices the result.
func TestTilings(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	rng := rand.New(rand.NewPCG(7, 1))
	for round := range rounds {
		dtype := safetensors.DType(1 + rng.IntN(int(safetensors.U64)))
		unit := 1
		if dtype.Bits() < 8 {
			unit = 4 // whole bytes
		}
		shape := make([]int, 1+rng.IntN(3))
		for i := range shape {
			shape[i] = 1 + rng.IntN(7)
		}
		shape[len(shape)-1] *= unit
		x := random(rng, dtype, shape...)
		boxes := cutUp(rng, box{make([]int, len(shape)), shape}, rng.IntN(9), unit)
		if rng.IntN(2) > 0 {
			boxes = append(boxes, boxes[rng.IntN(len(boxes))])
		}
		rng.Shuffle(len(boxes), func(i, k int) { boxes[i], boxes[k] = boxes[k], boxes[i] })
		f := joined(cut(x, boxes)...)
		got := must(f.Tensor("x"))
		requireSame(t, x, got, fmt.Sprint(round, boxes))
		var ranges []safetensors.Range
		for i, n := range shape {
			r := randomRange(rng, n)
			if i == len(shape)-1 && unit > 1 {
				r = safetensors.Span(unit*rng.IntN(n/unit), n)
			}
			ranges = append(ranges, r)
		}
		want := must(x.Slice(ranges...))
		got = must(got.Slice(ranges...))
		requireSame(t, want, got, fmt.Sprint(round, boxes, ranges))
		requireReadAt(t, rng, want, got)
	}
}

// requireReadAt checks that two tensors have the same bytes from anywhere to anywhere.
func requireReadAt(t *testing.T, rng *rand.Rand, want, got safetensors.Tensor) {
	t.Helper()
	off := rng.Int64N(want.Size() + 1)
	a := make([]byte, rng.Int64N(want.Size()-off+1))
	b := slices.Clone(a)
	must(want.ReadAt(a, off))
	must(got.ReadAt(b, off))
	require.Equal(t, a, b)
}

func randomRange(rng *rand.Rand, n int) safetensors.Range {
	first := rng.IntN(n)
	if rng.IntN(4) == 0 {
		return safetensors.At(first)
	}
	return safetensors.Span(first, first+rng.IntN(n-first+1)).By(1 + rng.IntN(3))
}

// pinwheel returns five boxes that fill b, of a multiple of three indices in the first
// two dimensions, and that no straight cut separates.
func pinwheel(b box) []box {
	rows, columns := (b.end[0]-b.begin[0])/3, (b.end[1]-b.begin[1])/3
	var boxes []box
	for _, at := range [][4]int{{0, 0, 1, 2}, {0, 2, 2, 3}, {2, 1, 3, 3}, {1, 0, 3, 1}, {1, 1, 2, 2}} {
		part := box{slices.Clone(b.begin), slices.Clone(b.end)}
		part.begin[0], part.end[0] = b.begin[0]+at[0]*rows, b.begin[0]+at[2]*rows
		part.begin[1], part.end[1] = b.begin[1]+at[1]*columns, b.begin[1]+at[3]*columns
		boxes = append(boxes, part)
	}
	return boxes
}

// TestPinwheel joins pieces that no straight cut separates, pinwheels of pinwheels among
// them, and slices the result.
func TestPinwheel(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 2))
	boxes := []box{{[]int{0, 0, 0}, []int{81, 81, 2}}}
	for _, most := range []int{0, 1, 4, 19, 99} { // of the boxes become pinwheels
		var next []box
		for i, b := range boxes {
			if i >= most || (b.end[0]-b.begin[0])%3 > 0 || (b.end[1]-b.begin[1])%3 > 0 {
				next = append(next, b)
			} else {
				next = append(next, pinwheel(b)...)
			}
		}
		boxes = next
		x := random(rng, safetensors.U16, 81, 81, 2)
		ranks := cut(x, boxes)
		rng.Shuffle(len(ranks), func(i, k int) { ranks[i], ranks[k] = ranks[k], ranks[i] })
		f := joined(ranks...)
		requireTensors(t, map[string]safetensors.Tensor{"x": x}, f)
		got := must(f.Tensor("x"))
		for range 20 {
			ranges := []safetensors.Range{randomRange(rng, 81), randomRange(rng, 81), randomRange(rng, 2)}
			requireSame(t, must(x.Slice(ranges...)), must(got.Slice(ranges...)), ranges)
		}
	}
	require.Greater(t, len(boxes), 300)
}

// TestTilingsAgainstNaive joins random boxes and says whether they tile a tensor as
// counting does: each element is in one box, not counting boxes that are there twice.
func TestTilingsAgainstNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 4))
	rounds, tilings := 5000, 0
	if testing.Short() {
		rounds = 500
	}
	for range rounds {
		var boxes []box
		for range 1 + rng.IntN(6) {
			var b box
			for range 2 {
				begin := rng.IntN(3)
				b.begin = append(b.begin, begin)
				b.end = append(b.end, begin+rng.IntN(4-begin))
			}
			boxes = append(boxes, b)
		}
		tiles, shape := naiveTiling(boxes)
		x := random(rng, safetensors.U8, shape...)
		f, err := Assemble(parsed(cut(x, boxes)...)...)
		require.Equal(t, tiles, err == nil, "%v: %v", boxes, err)
		if tiles {
			tilings++
			requireTensors(t, map[string]safetensors.Tensor{"x": x}, f)
		}
	}
	require.Greater(t, tilings, rounds/20)
}

// naiveTiling counts how many of the boxes have each element of the least tensor that
// has all boxes.
func naiveTiling(boxes []box) (tiles bool, shape []int) {
	shape = make([]int, 2)
	for _, b := range boxes {
		shape[0], shape[1] = max(shape[0], b.end[0]), max(shape[1], b.end[1])
	}
	tiles = true
	for i := range shape[0] {
		for k := range shape[1] {
			seen := make(map[string]bool)
			for _, b := range boxes {
				if b.begin[0] <= i && i < b.end[0] && b.begin[1] <= k && k < b.end[1] {
					seen[fmt.Sprint(b)] = true
				}
			}
			tiles = tiles && len(seen) == 1
		}
	}
	return tiles, shape
}
