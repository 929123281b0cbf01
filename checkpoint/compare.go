package checkpoint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// The funcs in this file read the data of tensors, to compare their numbers.

// difference returns the first of these tensors, which both places have, whose shape or numbers differ between the
// places, and the reason. It returns "" if there is none. It ignores buffers, which models compute, and reads data only
// of tensors whose dtypes and shapes allow equal numbers.
func (c *checker) difference(a, b place, names []string) (tensor, why string, err error) {
	slices.Sort(names)
	pairs, others := make(map[[2]string][]string), make(map[[2]string][]string)
	for _, name := range names {
		if isBuffer(name) {
			continue
		}
		inA, inB := a.find(name), b.find(name)
		first, second := c.heads[a[inA]].tensors[inA], c.heads[b[inB]].tensors[inB]
		if !slices.Equal(first.shape, second.shape) || first.dtype != second.dtype && !(isFloat(first.dtype) && isFloat(second.dtype)) {
			return name, fmt.Sprintf("%v in one, %v in the other", first, second), nil
		}
		if key := [2]string{a[inA], b[inB]}; key[0] != key[1] {
			pairs[key], others[key] = append(pairs[key], inA), append(others[key], inB)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(pairs), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		differing, err := c.compareFiles(key[0], key[1], pairs[key], others[key], 1)
		if err != nil {
			return "", "", err
		}
		if len(differing) > 0 {
			return differing[0], "other numbers", nil
		}
	}
	return "", "", nil
}

// compareFiles compares tensors of two files: names[i] of the first with others[i] of the second. It returns the
// names, up to the limit most, of tensors whose numbers differ. It opens each file once.
func (c *checker) compareFiles(first, second string, names, others []string, most int) (differing []string, err error) {
	a, closeFirst, err := c.open(first)
	if err != nil {
		return nil, err
	}
	defer closeFirst()
	b, closeSecond, err := c.open(second)
	if err != nil {
		return nil, err
	}
	defer closeSecond()
	for i, name := range names {
		x, err := a.Tensor(name)
		if err != nil {
			return nil, changed(first, err)
		}
		y, err := b.Tensor(others[i])
		if err != nil {
			return nil, changed(second, err)
		}
		equal, err := equalNumbers(x, y)
		if err != nil {
			return nil, err
		}
		if !equal {
			if differing = append(differing, name); len(differing) == most {
				break
			}
		}
	}
	return differing, nil
}

// changed returns the error for a file that has lost a tensor since its header was read.
func changed(name string, err error) error {
	return fmt.Errorf("%s has changed while it was checked: %w", quoted(name), err)
}

// equalNumbers reports whether two tensors have the same numbers. The tensors may be floats of different dtypes.
func equalNumbers(x, y safetensors.Tensor) (bool, error) {
	if x.DType() != y.DType() {
		wide := safetensors.F32
		if x.DType() == safetensors.F64 || y.DType() == safetensors.F64 {
			wide = safetensors.F64
		}
		var err error
		if x, err = x.Convert(wide); err != nil {
			return false, err
		}
		if y, err = y.Convert(wide); err != nil {
			return false, err
		}
	}
	return safetensors.Equal(x, y)
}

// alike reports whether two tensors of a set have the same shape, and the same numbers after those of the wider one are
// rounded to the dtype of the narrower one. Only floats are rounded.
func (d *directory) alike(s *set, a, b string) (bool, error) {
	x, _ := d.info(s, a)
	y, _ := d.info(s, b)
	if !slices.Equal(x.shape, y.shape) || x.dtype != y.dtype && !(isFloat(x.dtype) && isFloat(y.dtype)) {
		return false, nil
	}
	var both [2]safetensors.Tensor
	for i, name := range []string{a, b} {
		f, done, err := d.open(s.where[name])
		if err != nil {
			return false, err
		}
		defer done()
		if both[i], err = f.Tensor(name); err != nil {
			return false, changed(s.where[name], err)
		}
	}
	wide, narrow := both[0], both[1]
	if wide.DType().Bits() < narrow.DType().Bits() {
		wide, narrow = narrow, wide
	}
	if wide.DType().Bits() > narrow.DType().Bits() {
		var err error
		if wide, err = wide.Convert(narrow.DType()); err != nil {
			return false, err
		}
	}
	return equalNumbers(wide, narrow)
}
