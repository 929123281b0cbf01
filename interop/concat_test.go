package interop_test

import (
	"bytes"
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

// TestConcatAsNumpy compares Concat with numpy.concatenate, of tensors in memory,
// behind readers and computed ones.
func TestConcatAsNumpy(t *testing.T) {
	text := must(os.ReadFile("../testdata/concat.json"))
	var cases []concatCase
	require.NoError(t, json.Unmarshal(text, &cases))
	require.Len(t, cases, 120)
	for _, c := range cases {
		t.Run(fmt.Sprint(c.Dim, c.Shapes), func(t *testing.T) {
			for _, source := range []string{"memory", "reader", "computed"} {
				joined := must(safetensors.Concat(c.Dim, numbered(source, c.Shapes)...))
				require.Equal(t, c.WantShape, joined.Shape())
				got := must(safetensors.Append[uint32](nil, joined))
				require.Equal(t, append([]uint32(nil), c.Want...), got, source)
			}
		})
	}
}

// numbered returns tensors of the shapes, their elements numbered throughout.
func numbered(source string, shapes [][]int) []safetensors.Tensor {
	next := uint32(0)
	var tensors []safetensors.Tensor
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
		x := must(safetensors.NewTensor(safetensors.U32, shape, data))
		switch source {
		case "reader":
			var raw bytes.Buffer
			must(x.WriteTo(&raw))
			x = must(safetensors.NewTensorAt(safetensors.U32, shape, bytes.NewReader(raw.Bytes())))
		case "computed":
			result := x
			x = must(safetensors.NewTensorFunc(safetensors.U32, shape, func(dst []uint32) error {
				_, err := safetensors.Append(dst[:0], result)
				return err
			}))
		}
		tensors = append(tensors, x)
	}
	return tensors
}
