package main

import (
	"errors"
	"fmt"

	"github.com/gosafetensors/safetensors"
	"gonum.org/v1/gonum/mat"
)

// gonumMatrix returns t, which must have rank 2 and a float dtype, as a matrix of gonum. If t is
// F64 and in memory, the matrix shares its elements.
func gonumMatrix(t safetensors.Tensor) (*mat.Dense, error) {
	if len(t.Shape()) != 2 || t.Len() == 0 { // NewDense would panic
		return nil, fmt.Errorf("%v is not a matrix with elements", t)
	}
	values, err := safetensors.View[float64](t)
	if errors.Is(err, errors.ErrUnsupported) {
		values, err = safetensors.Append[float64](nil, t)
	}
	if err != nil {
		return nil, err
	}
	return mat.NewDense(t.Shape()[0], t.Shape()[1], values), nil
}
