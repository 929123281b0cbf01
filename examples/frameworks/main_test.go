package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/dtypes/bfloat16"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/mat"
)

var elementsOfMatrix = []float64{0, -1, 2, 3.5, 1024, -0.125}

// matrix returns a tensor of two rows and three columns, and the slice that it
// refers to.
func matrix(t *testing.T, d safetensors.DType) (safetensors.Tensor, []float64) {
	values := append([]float64(nil), elementsOfMatrix...)
	m, err := safetensors.NewTensor(safetensors.F64, []int{2, 3}, values)
	require.NoError(t, err)
	if d != safetensors.F64 {
		m, err = m.Convert(d)
		require.NoError(t, err)
	}
	return m, values
}

func TestGonum(t *testing.T) {
	for _, d := range []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32, safetensors.F64} {
		x, shared := matrix(t, d)
		m, err := gonumMatrix(x)
		require.NoError(t, err)
		require.True(t, mat.Equal(mat.NewDense(2, 3, elementsOfMatrix), m), d)
		m.Set(1, 2, 7)
		require.Equal(t, d == safetensors.F64, shared[5] == 7, "%v: the elements are shared", d)
	}
	vector, err := safetensors.NewTensor(safetensors.F32, []int{1}, []float32{1})
	require.NoError(t, err)
	_, err = gonumMatrix(vector)
	require.ErrorContains(t, err, "F32 [1] is not a matrix")
	integers, err := safetensors.NewTensor(safetensors.I64, []int{1, 1}, []int64{1})
	require.NoError(t, err)
	_, err = gonumMatrix(integers)
	require.ErrorContains(t, err, "not float64")
}

func TestGoMLX(t *testing.T) {
	for d, want := range map[safetensors.DType]dtypes.DType{
		safetensors.BF16: dtypes.BFloat16, safetensors.F16: dtypes.Float16,
		safetensors.F32: dtypes.Float32, safetensors.F64: dtypes.Float64,
	} {
		x, _ := matrix(t, d)
		m, err := gomlxTensor(x)
		require.NoError(t, err)
		require.Equal(t, want, m.DType())
		require.Equal(t, []int{2, 3}, m.Shape().Dimensions)
	}
	x, _ := matrix(t, safetensors.BF16)
	m, err := gomlxTensor(x)
	require.NoError(t, err)
	tensors.MustConstFlatData(m, func(flat []bfloat16.BFloat16) {
		for i, v := range flat {
			require.Equal(t, float32(elementsOfMatrix[i]), v.Float32())
		}
	})
	scalar, err := safetensors.NewTensor(safetensors.I64, nil, []int64{7})
	require.NoError(t, err)
	m, err = gomlxTensor(scalar)
	require.NoError(t, err)
	require.Equal(t, int64(7), m.Value())
	packed, err := safetensors.NewTensor(safetensors.F4, []int{2}, []byte{1})
	require.NoError(t, err)
	_, err = gomlxTensor(packed)
	require.ErrorContains(t, err, "F4 [2]")
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run([]string{"../../testdata/model.safetensors", "lm_head.weight"}, &out))
	require.Regexp(t, `^lm_head.weight: F16 \[64,32\]
gonum: norm 0\.9\d+
GoMLX: \(Float16\)\[64 32\], 4096 bytes
$`, out.String())
	require.ErrorContains(t, run(nil, io.Discard), "usage")
	require.ErrorContains(t, run([]string{"../../testdata/model.safetensors", "model.norm.weight"}, io.Discard), "gonum: F32 [32] is not a matrix")
}

// TestQuantised loads a quantised model into gonum: the matrix is the original one but
// for rounding.
func TestQuantised(t *testing.T) {
	values := make([]float32, 8*128)
	for i := range values {
		values[i] = float32(i%31) - 15
	}
	x, err := safetensors.NewTensor(safetensors.F32, []int{8, 128}, values)
	require.NoError(t, err)
	for _, scheme := range []quant.Scheme{quant.FP8Block, quant.NVFP4, quant.Int4, quant.Int8} {
		tensors, config, err := quant.Quantize(map[string]safetensors.Tensor{"proj.weight": x}, quant.Recipe{Scheme: scheme})
		require.NoError(t, err)
		folder := t.TempDir()
		require.NoError(t, safetensors.WriteFile(filepath.Join(folder, "model.safetensors"), tensors, nil))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), config, 0o666))

		f, err := open(folder)
		require.NoError(t, err)
		defer f.Close()
		weight, err := f.Tensor("proj.weight")
		require.NoError(t, err)
		m, err := gonumMatrix(weight)
		require.NoError(t, err)
		for i, want := range values {
			require.InDelta(t, want, m.At(i/128, i%128), 2.6, "%s: element %d", scheme, i)
		}
		require.NoError(t, run([]string{folder, "proj.weight"}, io.Discard))
	}
}
