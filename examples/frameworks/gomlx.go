package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gosafetensors/safetensors"
)

// gomlxTensor returns t as a tensor of GoMLX with the same dtype. It reads the bytes into the
// memory of GoMLX. They are little-endian, like all machines on which GoMLX runs.
func gomlxTensor(t safetensors.Tensor) (*tensors.Tensor, error) {
	dtype, ok := dtypes.MapOfNames[strings.Replace(t.DType().String(), "I", "S", 1)] // GoMLX calls I64 S64
	if !ok || dtype.Size()*8 != t.DType().Bits() || t.Len() == 0 {
		return nil, fmt.Errorf("%v: GoMLX has no such dtype, or no such shape", t)
	}
	local := tensors.FromShape(shapes.Make(dtype, t.Shape()...))
	var read error
	err := local.MutableBytes(func(data []byte) { _, read = safetensors.Append(data[:0], t) })
	return local, errors.Join(err, read)
}
