package main

import (
	"fmt"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/dtypes/bfloat16"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gosafetensors/safetensors"
	"github.com/x448/float16"
)

// gomlxTensor returns t as a tensor of the same dtype.
func gomlxTensor(t safetensors.Tensor) (*tensors.Tensor, error) {
	switch t.DType() {
	case safetensors.F32:
		return fromElements[float32](t)
	case safetensors.F64:
		return fromElements[float64](t)
	case safetensors.BF16:
		return fromElements[bfloat16.BFloat16](t)
	case safetensors.F16:
		return fromElements[float16.Float16](t)
	case safetensors.I32:
		return fromElements[int32](t)
	case safetensors.I64:
		return fromElements[int64](t)
	case safetensors.U8:
		return fromElements[uint8](t)
	}
	return nil, fmt.Errorf("%v: the dtype is not among those of this example", t)
}

func fromElements[T interface {
	safetensors.Element
	dtypes.Supported
}](t safetensors.Tensor) (*tensors.Tensor, error) {
	values, err := elements[T](t)
	if err != nil {
		return nil, err
	}
	return tensors.FromFlatDataAndDimensions(values, t.Shape()...), nil
}
