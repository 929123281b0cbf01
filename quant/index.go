package quant

import (
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// A groupIndex gives the group of each line, or of each position, where groups are
// not adjacent. A nil one stands for groups that are.
type groupIndex struct {
	tensor     safetensors.Tensor // I32, of the length that is needed
	groups     int
	size       int  // of the groups
	mayBeEmpty bool // all -1 says that groups are adjacent after all

	number once[[]int32] // nil if groups are adjacent
}

// read reads the index, and checks it.
func (x *groupIndex) read() ([]int32, error) {
	number, err := safetensors.Append[int32](nil, x.tensor)
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

// over returns the range of groups that s touches, of the given size if they are
// adjacent.
func (x *groupIndex) over(s span, size int) (span, error) {
	if x == nil {
		return s.over(size), nil
	}
	number, err := x.number.get(x.read)
	if err != nil {
		return span{}, err
	}
	if number == nil {
		return s.over(size), nil
	}
	part := number[s.start:s.stop]
	return span{int(slices.Min(part)), int(slices.Max(part)) + 1}, nil
}

// scattered reports whether groups are not adjacent. over was called before.
func (x *groupIndex) scattered() bool { return x != nil && x.number.value != nil }

// group returns the group of i.
func (x *groupIndex) group(i, size int) int {
	if x.scattered() {
		return int(x.number.value[i])
	}
	return i / size
}

// expand appends the number of the group of each of n positions to dst. numbers
// starts with that of group first.
func (x *groupIndex) expand(dst, numbers []float32, first, at, n int) []float32 {
	for _, g := range x.number.value[at:][:n] {
		dst = append(dst, numbers[int(g)-first])
	}
	return dst
}
