package dcp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// cut returns a rank for each box. The rank has the piece of the tensor in that box.
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

// cutUp makes n cuts, each of which divides a box into two, or into five that no straight cut
// separates. Some boxes may be empty. In the last dimension, all cuts are at multiples of unit.
func cutUp(rng *rand.Rand, b box, n, unit int) []box {
	boxes := []box{b}
	for range n {
		i := rng.IntN(len(boxes))
		b := boxes[i]
		sides := func(dim int) []int { // the begin, two places inside, and the end
			step := 1
			if dim == len(b.begin)-1 {
				step = unit
			}
			size := (b.end[dim] - b.begin[dim]) / step
			at := []int{b.begin[dim] + step*rng.IntN(size+1), b.begin[dim] + step*rng.IntN(size+1), b.begin[dim], b.end[dim]}
			slices.Sort(at)
			return at
		}
		boxes = slices.Delete(boxes, i, i+1)
		if len(b.begin) == 1 || rng.IntN(3) > 0 {
			dim := rng.IntN(len(b.begin))
			at := sides(dim)
			boxes = append(boxes, b.with(dim, at[0], at[1]), b.with(dim, at[1], at[3]))
			continue
		}
		rows, columns := sides(0), sides(1)
		for _, at := range [][4]int{{0, 0, 1, 2}, {0, 2, 2, 3}, {2, 1, 3, 3}, {1, 0, 3, 1}, {1, 1, 2, 2}} {
			boxes = append(boxes, b.with(0, rows[at[0]], rows[at[2]]).with(1, columns[at[1]], columns[at[3]]))
		}
	}
	return boxes
}

// TestTilings joins tensors of every dtype that were cut up at random, with empty pieces and with
// pieces that several ranks have, and slices the result. In some rounds, one box is replaced by a
// random one. Counting the boxes at each element then decides whether they still tile a tensor.
func TestTilings(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 600
	}
	rng := rand.New(rand.NewPCG(7, 1))
	dtypes := slices.Collect(safetensors.DTypes())
	tilings, most := 0, 0
	for range rounds {
		dtype := dtypes[rng.IntN(len(dtypes))]
		unit := 1
		if dtype.Bits() < 8 {
			unit = 4 // so many elements fill whole bytes
		}
		shape := make([]int, 1+rng.IntN(3))
		for i := range shape {
			shape[i] = rng.IntN(10)
		}
		shape[len(shape)-1] *= unit
		x := random(rng, dtype, shape...)
		all := box{make([]int, len(shape)), shape}
		boxes := cutUp(rng, all, rng.IntN(12), unit)
		for range rng.IntN(3) {
			boxes = append(boxes, boxes[rng.IntN(len(boxes))])
		}
		if rng.IntN(3) == 0 {
			others := cutUp(rng, all, 3, unit)
			boxes[rng.IntN(len(boxes))] = others[rng.IntN(len(others))]
		}
		rng.Shuffle(len(boxes), func(i, k int) { boxes[i], boxes[k] = boxes[k], boxes[i] })
		whole, tiles := naive(boxes)
		f, err := Assemble(parsed(cut(x, boxes)...)...)
		require.Equal(t, tiles, err == nil, "%v: %v", boxes, err)
		if !tiles {
			continue
		}
		tilings++
		most = max(most, len(boxes))
		x = cut(x, []box{whole})[0]["x"].tensor
		got := must(f.Tensor("x"))
		requireSame(t, x, got, fmt.Sprint(boxes))
		if x.Len() == 0 {
			continue
		}
		var ranges []safetensors.Range
		for i, n := range whole.end {
			r := randomRange(rng, n)
			if i == len(shape)-1 && unit > 1 {
				r = safetensors.Span(unit*rng.IntN(n/unit), n)
			}
			ranges = append(ranges, r)
		}
		want := must(x.Slice(ranges...))
		got = must(got.Slice(ranges...))
		requireSame(t, want, got, fmt.Sprint(boxes, ranges))
		off := rng.Int64N(want.Size() + 1)
		a := make([]byte, rng.Int64N(want.Size()-off+1))
		b := slices.Clone(a)
		must(want.ReadAt(a, off))
		must(got.ReadAt(b, off))
		require.Equal(t, a, b)
	}
	require.Greater(t, tilings, rounds/2)
	require.Less(t, tilings, rounds*9/10)
	require.Greater(t, most, 30)
}

func randomRange(rng *rand.Rand, n int) safetensors.Range {
	first := rng.IntN(n)
	if rng.IntN(4) == 0 {
		return safetensors.At(first)
	}
	return safetensors.Span(first, first+rng.IntN(n-first+1)).By(1 + rng.IntN(3))
}

// naive returns the smallest box that starts at 0 and contains all boxes. They tile it if each of
// its elements lies in exactly one of them, where equal boxes count once.
func naive(boxes []box) (whole box, tiles bool) {
	whole = box{make([]int, len(boxes[0].begin)), make([]int, len(boxes[0].begin))}
	distinct := make(map[string]box)
	for _, b := range boxes {
		distinct[b.String()] = b
		for i, n := range b.end {
			whole.end[i] = max(whole.end[i], n)
		}
	}
	var each func(dim int, boxes []box) bool // boxes contains only those that have the indices chosen for the dimensions before dim
	each = func(dim int, boxes []box) bool {
		if dim == len(whole.end) {
			return len(boxes) == 1
		}
		for i := range whole.end[dim] {
			without := func(b box) bool { return i < b.begin[dim] || i >= b.end[dim] }
			if !each(dim+1, slices.DeleteFunc(slices.Clone(boxes), without)) {
				return false
			}
		}
		return true
	}
	return whole, each(0, slices.Collect(maps.Values(distinct)))
}
