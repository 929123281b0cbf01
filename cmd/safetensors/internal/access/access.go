// Package access prepares tensors for being read in many small pieces.
package access

import (
	"errors"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// Random returns t, or a copy of it in memory if each read of t would compute all of
// its elements again: those of a compressed member of an archive, for example.
func Random(t safetensors.Tensor) (safetensors.Tensor, error) {
	if !computed(t) {
		return t, nil
	}
	data, err := safetensors.Append[byte](nil, t)
	if err != nil {
		return t, err
	}
	return safetensors.NewTensor(t.DType(), t.Shape(), data)
}

// computed reports whether a tensor is one of NewTensorFunc. Only the error of View
// tells it.
func computed(t safetensors.Tensor) bool {
	_, err := safetensors.View[byte](t)
	return errors.Is(err, errors.ErrUnsupported) && strings.Contains(err.Error(), "its elements are computed")
}
