package main

import (
	"math"

	"github.com/gosafetensors/safetensors"
)

// A listed is a tensor in the output of ls.
type listed struct {
	Name       string            `json:"name"`
	DType      safetensors.DType `json:"dtype"`      // as in the file, such as "BF16"
	Shape      []int             `json:"shape"`      // [] for a scalar
	Parameters int64             `json:"parameters"` // the product of the shape
	Bytes      int64             `json:"bytes"`      // size in the file
}

// A total has the sums over several tensors: those of one dtype, or all.
type total struct {
	DType      safetensors.DType `json:"dtype,omitzero"` // absent in the total over all dtypes
	Tensors    int               `json:"tensors"`
	Parameters int64             `json:"parameters"`
	Bytes      int64             `json:"bytes"`
}

// add adds a tensor to the sums.
func (t *total) add(x listed) {
	t.Tensors++
	t.Parameters = int64(min(uint64(t.Parameters)+uint64(x.Parameters), math.MaxInt64)) // a byte has two elements of F4, so that the sum may overflow
	t.Bytes += x.Bytes
}
