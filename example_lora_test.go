package safetensors_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"

	"github.com/gosafetensors/safetensors"
)

// Merge a LoRA adapter (Hu et al., arXiv:2106.09685) into a weight: W + (alpha/r)·B·A. The
// product is computed when the tensor is written, so a model needs the memory of a few
// weights. A real program calls BLAS for the loops.
func ExampleNewTensorFunc_lora() {
	matrix := func(rows, columns int, values ...float32) safetensors.Tensor {
		t, err := safetensors.NewTensor(safetensors.F32, []int{rows, columns}, values)
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	weight := matrix(2, 3, 1, 2, 3, 4, 5, 6)
	loraA, loraB := matrix(1, 3, 1, 0, -1), matrix(2, 1, 0.5, 2)
	const alpha, r, in = 2.0, 1, 3

	merged, err := safetensors.NewTensorFunc(safetensors.BF16, weight.Shape(), func(w []float32) error {
		_, errW := safetensors.Append(w[:0], weight) // has the room
		a, errA := safetensors.Append[float32](nil, loraA)
		b, errB := safetensors.Append[float32](nil, loraB)
		if err := errors.Join(errW, errA, errB); err != nil {
			return err
		}
		for i := range w {
			for k := range r {
				w[i] += alpha / r * b[i/in*r+k] * a[k*in+i%in]
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // or WriteShards
	if err := safetensors.Write(&file, map[string]safetensors.Tensor{"q_proj.weight": merged}, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[float32](nil, merged))
	// Output: [2 2 2 8 5 2] <nil>
}
