package main

import (
	"fmt"

	"github.com/gosafetensors/safetensors"
	"gorgonia.org/tensor"
)

// gorgoniaDense returns t as a Dense of float64 if t is F64, else of float32. If t
// is F32 or F64 and in memory, the Dense shares its elements.
func gorgoniaDense(t safetensors.Tensor) (*tensor.Dense, error) {
	if t.Len() == 0 { // which New would panic about
		return nil, fmt.Errorf("%v has no elements", t)
	}
	var values any
	var err error
	if t.DType() == safetensors.F64 {
		values, err = elements[float64](t)
	} else {
		values, err = elements[float32](t)
	}
	if err != nil {
		return nil, err
	}
	return tensor.New(tensor.WithShape(t.Shape()...), tensor.WithBacking(values)), nil
}
