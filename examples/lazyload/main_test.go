package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

const rows, columns = 24, 40

// value is the element of all matrices at row i and column k. BF16 has it, too.
func value(i, k int) float32 { return float32(1+(i*7+k*5)%61) / 4 }

// writeModel writes the same matrix in several dtypes.
func writeModel(t *testing.T, name string) {
	var f32 []float32
	var f64 []float64
	var bf16 []uint16
	var i64 []int64
	for i := range rows {
		for k := range columns {
			v := value(i, k)
			f32 = append(f32, v)
			f64 = append(f64, float64(v)+1e-12) // which rounds to v
			bf16 = append(bf16, uint16(math.Float32bits(v)>>16))
			i64 = append(i64, int64(v))
		}
	}
	tensors := make(map[string]safetensors.Tensor)
	add := func(name string, tensor safetensors.Tensor, err error) {
		require.NoError(t, err)
		tensors[name] = tensor
	}
	matrix := []int{rows, columns}
	newF32, err := safetensors.NewTensor(safetensors.F32, matrix, f32)
	add("F32", newF32, err)
	newF64, err := safetensors.NewTensor(safetensors.F64, matrix, f64)
	add("F64", newF64, err)
	newBF16, err := safetensors.NewTensor(safetensors.BF16, matrix, bf16)
	add("BF16", newBF16, err)
	newI64, err := safetensors.NewTensor(safetensors.I64, matrix, i64)
	add("I64", newI64, err)
	scalar, err := safetensors.NewTensor(safetensors.F32, nil, []float32{2.5})
	add("scalar", scalar, err)
	empty, err := safetensors.NewTensor(safetensors.F32, []int{0, 4}, []float32{})
	add("empty", empty, err)
	require.NoError(t, safetensors.WriteFile(name, tensors, nil))
}

// want computes what is printed of the rows and columns in the given ranges.
func want(fromRow, toRow, fromColumn, toColumn int) string {
	var first []float32
	low, high := float32(math.Inf(1)), float32(math.Inf(-1))
	sum, n := 0.0, 0
	for i := fromRow; i < toRow; i++ {
		for k := fromColumn; k < toColumn; k++ {
			v := value(i, k)
			if n < 5 {
				first = append(first, v)
			}
			low, high = min(low, v), max(high, v)
			sum += float64(v)
			n++
		}
	}
	return fmt.Sprintf("first %v\nmin %v, max %v, mean %v\n", first, low, high, sum/float64(n))
}

// viewable reports whether this system maps files and is little-endian.
func viewable(t *testing.T, name string) bool {
	f, err := safetensors.Open(name)
	require.NoError(t, err)
	defer f.Close()
	tensor, err := f.Tensor("F32")
	require.NoError(t, err)
	_, err = safetensors.View[float32](tensor)
	if err != nil {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	return err == nil
}

func TestShards(t *testing.T) {
	t.Chdir(t.TempDir())
	writeModel(t, "model.safetensors")
	viewed, copied := "viewed in the file, without a copy\n", "copied, as there is no view"
	if !viewable(t, "model.safetensors") {
		viewed = copied
	}
	for _, c := range []struct {
		flags, tensor string
		head          string // of what is printed
		elements      string
		how           string // with Open
		bytes         int    // read for the tensor with -copy
	}{
		{"", "F32", "F32: F32 [24 40]\n", want(0, 24, 0, 40), viewed, 24 * 40 * 4},
		{"", "BF16", "BF16: BF16 [24 40]\n", want(0, 24, 0, 40), copied, 24 * 40 * 2},
		{"", "F64", "F64: F32 [24 40]\n", want(0, 24, 0, 40), copied, 24 * 40 * 8},
		{"-rank 1 -of 3", "F32", "F32: F32 [8 40], rank 1 of 3 along dimension 0\n", want(8, 16, 0, 40), viewed, 8 * 40 * 4},
		{"-rank 3 -of 8 -dim 1", "F32", "F32: F32 [24 5], rank 3 of 8 along dimension 1\n", want(0, 24, 15, 20), copied, 24 * 5 * 4},
		{"-rank 7 -of 8 -dim 1", "BF16", "BF16: BF16 [24 5], rank 7 of 8 along dimension 1\n", want(0, 24, 35, 40), copied, 24 * 5 * 2},
		// 40 columns are not a multiple of 7: ranks have five or six.
		{"-rank 0 -of 7 -dim 1", "F64", "F64: F32 [24 5], rank 0 of 7 along dimension 1\n", want(0, 24, 0, 5), copied, 24 * 5 * 8},
		{"-rank 6 -of 7 -dim 1", "F64", "F64: F32 [24 6], rank 6 of 7 along dimension 1\n", want(0, 24, 34, 40), copied, 24 * 6 * 8},
		{"", "scalar", "scalar: F32 []\n", "first [2.5]\nmin 2.5, max 2.5, mean 2.5\n", viewed, 4},
		{"", "empty", "empty: F32 [0 4]\n", "no elements\n", "viewed in the file", 0},
	} {
		t.Run(c.flags+" "+c.tensor, func(t *testing.T) {
			args := append(strings.Fields(c.flags), "model.safetensors", c.tensor)
			var out bytes.Buffer
			require.NoError(t, run(args, &out))
			require.True(t, strings.HasPrefix(out.String(), c.head+c.elements+c.how), out.String())

			out.Reset()
			require.NoError(t, run(append([]string{"-copy"}, args...), &out))
			require.True(t, strings.HasPrefix(out.String(), c.head+c.elements), out.String())
			require.Contains(t, out.String(), fmt.Sprintf(" and %d for the tensor", c.bytes))
		})
	}
}

func TestErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	writeModel(t, "model.safetensors")
	for _, copying := range []string{"", "-copy "} {
		for args, want := range map[string]string{
			"model.safetensors":                          "the name of a tensor",
			"model.safetensors I64":                      "not float32",
			"model.safetensors other":                    "other",
			"-rank 8 -of 8 model.safetensors F32":        "no rank 8 of 8",
			"-rank -1 model.safetensors F32":             "no rank -1 of 1",
			"-of 0 model.safetensors F32":                "no rank 0 of 0",
			"-rank 1 -of 2 -dim 2 model.safetensors F32": "no dimension 2",
			"-rank 1 -of 2 model.safetensors scalar":     "no dimension 0",
			"missing.safetensors F32":                    "missing.safetensors",
		} {
			require.ErrorContains(t, run(strings.Fields(copying+args), &bytes.Buffer{}), want, args)
		}
		require.ErrorIs(t, run(strings.Fields(copying+"missing F32"), &bytes.Buffer{}), fs.ErrNotExist)
		require.ErrorIs(t, run(strings.Fields(copying+"model.safetensors other"), &bytes.Buffer{}), fs.ErrNotExist)
	}
}
