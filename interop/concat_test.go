package interop_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A concatCase is arrays joined by numpy, whose elements are numbered from one
// array to the next.
type concatCase struct {
	Dim       int
	Shapes    [][]int
	WantShape []int `json:"want_shape"`
	Want      []uint32
}

// TestConcatAsNumpy compares Concat with numpy.concatenate.
func TestConcatAsNumpy(t *testing.T) {
	text := must(os.ReadFile("../testdata/concat.json"))
	var cases []concatCase
	require.NoError(t, json.Unmarshal(text, &cases))
	require.Len(t, cases, 120)
	for _, c := range cases {
		t.Run(fmt.Sprint(c.Dim, c.Shapes), func(t *testing.T) {
			joined := must(safetensors.Concat(c.Dim, numbered(c.Shapes...)...))
			require.Equal(t, c.WantShape, joined.Shape())
			require.Equal(t, append([]uint32(nil), c.Want...), must(safetensors.Append[uint32](nil, joined)))
		})
	}
}

// numbered returns tensors of the shapes, their elements numbered throughout.
func numbered(shapes ...[]int) (tensors []safetensors.Tensor) {
	next := uint32(0)
	for _, shape := range shapes {
		n := 1
		for _, size := range shape {
			n *= size
		}
		data := make([]uint32, n)
		for i := range data {
			data[i] = next
			next++
		}
		tensors = append(tensors, must(safetensors.NewTensor(safetensors.U32, shape, data)))
	}
	return tensors
}
