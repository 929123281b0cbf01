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

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// matrix returns a tensor with two rows and three columns, and the slice to which it refers.
func matrix(t *testing.T, d safetensors.DType) (safetensors.Tensor, []float64) {
	values := append([]float64(nil), elementsOfMatrix...)
	m := must(safetensors.NewTensor(safetensors.F64, []int{2, 3}, values))
	if d != safetensors.F64 {
		m = must(m.Convert(d))
	}
	return m, values
}

// TestGonum: a matrix of gonum shares the elements of an F64 tensor, and has copies of the elements
// of any other tensor.
func TestGonum(t *testing.T) {
	for _, d := range []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32, safetensors.F64} {
		x, shared := matrix(t, d)
		m := must(gonumMatrix(x))
		require.True(t, mat.Equal(mat.NewDense(2, 3, elementsOfMatrix), m), d)
		m.Set(1, 2, 7)
		require.Equal(t, d == safetensors.F64, shared[5] == 7, "%v: the elements are shared", d)
	}
	vector := must(safetensors.NewTensor(safetensors.F32, []int{1}, []float32{1}))
	require.ErrorContains(t, errorOf(gonumMatrix(vector)), "F32 [1] is not a matrix")
	integers := must(safetensors.NewTensor(safetensors.I64, []int{1, 1}, []int64{1}))
	require.ErrorContains(t, errorOf(gonumMatrix(integers)), "not float64")
}

// TestGoMLX: a tensor of GoMLX has the dtype, the shape and the elements of ours.
func TestGoMLX(t *testing.T) {
	for d, want := range map[safetensors.DType]dtypes.DType{
		safetensors.BF16: dtypes.BFloat16, safetensors.F16: dtypes.Float16,
		safetensors.F32: dtypes.Float32, safetensors.F64: dtypes.Float64,
	} {
		x, _ := matrix(t, d)
		m := must(gomlxTensor(x))
		require.Equal(t, want, m.DType())
		require.Equal(t, []int{2, 3}, m.Shape().Dimensions)
		if d == safetensors.BF16 {
			for i, v := range tensors.MustCopyFlatData[bfloat16.BFloat16](m) {
				require.Equal(t, float32(elementsOfMatrix[i]), v.Float32())
			}
		}
	}
	scalar := must(safetensors.NewTensor(safetensors.I64, nil, []int64{7}))
	require.Equal(t, int64(7), must(gomlxTensor(scalar)).Value())
	packed := must(safetensors.NewTensor(safetensors.F4, []int{2}, []byte{1}))
	require.ErrorContains(t, errorOf(gomlxTensor(packed)), "F4 [2]")
}

// TestRun runs the example on a file in testdata.
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

// TestQuantised loads a quantised model into gonum. The matrix equals the original one, except for
// rounding.
func TestQuantised(t *testing.T) {
	values := make([]float32, 8*128)
	for i := range values {
		values[i] = float32(i%31) - 15
	}
	x := must(safetensors.NewTensor(safetensors.F32, []int{8, 128}, values))
	tensors, config, err := quant.Quantize(map[string]safetensors.Tensor{"proj.weight": x}, quant.Recipe{Scheme: quant.NVFP4})
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, safetensors.WriteFile(filepath.Join(folder, "model.safetensors"), tensors, nil))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), config, 0o666))

	f := must(open(folder))
	defer f.Close()
	m := must(gonumMatrix(must(f.Tensor("proj.weight"))))
	for i, want := range values {
		require.InDelta(t, want, m.At(i/128, i%128), 2.6)
	}
	require.NoError(t, run([]string{folder, "proj.weight"}, io.Discard))
}
