package quant

import (
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// A grouping says which positions share a number: so many adjacent ones, unless an index
// gives the group of each.
type grouping struct {
	size       int
	index      safetensors.Tensor // I32, of the length that is needed; the zero Tensor if there is none
	groups     int                // that the index may name
	mayBeEmpty bool               // all -1 says that groups are adjacent after all

	number once[[]int32] // what the index holds, nil if groups are adjacent
}

// read reads the index, and checks it.
func (x *grouping) read() ([]int32, error) {
	number, err := safetensors.Append[int32](nil, x.index)
	if err != nil {
		return nil, err
	}
	if x.mayBeEmpty && !slices.ContainsFunc(number, func(g int32) bool { return g != -1 }) {
		return nil, nil
	}
	adjacent := true
	for i, g := range number {
		if g < 0 || int(g) >= x.groups {
			return nil, fmt.Errorf("the index puts column %d into group %d of %d", i, g, x.groups)
		}
		adjacent = adjacent && int(g) == i/x.size
	}
	if adjacent {
		return nil, nil
	}
	return number, nil
}

// over returns the range of groups that s touches.
func (x *grouping) over(s span) (span, error) {
	if x.index.DType() != 0 {
		if _, err := x.number.get(x.read); err != nil {
			return span{}, err
		}
	}
	if !x.scattered() {
		return s.over(x.size), nil
	}
	part := x.number.value[s.start:s.stop]
	return span{int(slices.Min(part)), int(slices.Max(part)) + 1}, nil
}

// scattered reports whether groups are not adjacent. over was called before.
func (x *grouping) scattered() bool { return x.number.value != nil }
