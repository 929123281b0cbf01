package numpy

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestArrays compares with what numpy printed: testdata/generate.py.
func TestArrays(t *testing.T) {
	text, err := os.ReadFile("testdata/arrays.json")
	require.NoError(t, err)
	var arrays []struct {
		DType, Text, Corners string
		Shape                []int
	}
	require.NoError(t, json.Unmarshal(text, &arrays))
	require.Greater(t, len(arrays), 400)
	for i, a := range arrays {
		data, err := hex.DecodeString(a.Corners)
		require.NoError(t, err)
		n := 1
		for _, indices := range Corners(a.Shape) {
			n *= len(indices)
		}
		require.Equal(t, a.Text, Format(a.Shape, decode(t, a.DType, data, n)), "array %d: %s %v", i, a.DType, a.Shape)
	}
}

func decode(t *testing.T, dtype string, data []byte, n int) (v Values) {
	d := map[string]safetensors.DType{
		"float16": safetensors.F16, "float32": safetensors.F32, "float64": safetensors.F64,
		"int8": safetensors.I8, "int64": safetensors.I64, "uint8": safetensors.U8, "uint64": safetensors.U64,
		"bool": safetensors.BOOL, "complex64": safetensors.C64,
	}[dtype]
	x, err := safetensors.NewTensor(d, []int{n}, data)
	require.NoError(t, err)
	v, err = Read(x)
	require.NoError(t, err)
	return v
}

func TestCorners(t *testing.T) {
	require.Equal(t, [][]int{{0, 1, 2, 997, 998, 999}, {0, 1}}, Corners([]int{1000, 2}))
	require.Len(t, Corners([]int{1000})[0], 1000)
	require.Equal(t, [][]int{{0, 1, 2, math.MaxInt - 3, math.MaxInt - 2, math.MaxInt - 1}}, Corners([]int{math.MaxInt}))
	require.Equal(t, [][]int{{}, {0, 1, 2}}, Corners([]int{0, 3}))
}
