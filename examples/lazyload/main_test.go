package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// writeModel writes a matrix with 24 rows and 40 columns in each of several dtypes, and two tensors
// with other ranks. The elements of each row are 0, 1, 2 and so on.
func writeModel(t *testing.T, name string) {
	values := make([]float32, 24*40)
	for i := range values {
		values[i] = float32(i % 40)
	}
	tensors := map[string]safetensors.Tensor{
		"F32":    must(safetensors.NewTensor(safetensors.F32, []int{24, 40}, values)),
		"scalar": must(safetensors.NewTensor(safetensors.F32, nil, []float32{2.5})),
		"empty":  must(safetensors.NewTensor(safetensors.F32, []int{0, 4}, []float32{})),
		"I64":    must(safetensors.NewTensor(safetensors.I64, []int{1}, []int64{7})),
	}
	tensors["BF16"] = must(tensors["F32"].Convert(safetensors.BF16))
	tensors["F64"] = must(tensors["F32"].Convert(safetensors.F64))
	require.NoError(t, safetensors.WriteFile(name, tensors, nil))
}

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// viewable reports whether Open gives views on this system: whether it maps files and is
// little-endian.
func viewable(name string) bool {
	f := must(safetensors.Open(name))
	defer f.Close()
	_, err := safetensors.View[float32](must(f.Tensor("F32")))
	return !errors.Is(err, errors.ErrUnsupported)
}

// TestParts: a part of a tensor is viewed if possible, and no superfluous bytes are read.
func TestParts(t *testing.T) {
	model := filepath.Join(t.TempDir(), "model.safetensors")
	writeModel(t, model)
	const all = "960 elements: [0 1 2 3] ...\n"
	for _, c := range []struct {
		flags, tensor string
		head, tail    string // start and end of the output
		views         bool   // whether the part of a mapped file has a view
		bytes         int    // number of bytes read for the tensor, including short gaps
	}{
		{"", "F32", "F32: F32 [24,40]\n", all, true, 24 * 40 * 4},
		{"", "BF16", "BF16: BF16 [24,40]\n", all, false, 24 * 40 * 2},
		{"", "F64", "F64: F32 [24,40]\n", all, false, 24 * 40 * 8},
		{"-rank 1 -of 3", "F32", "F32: F32 [8,40]\n", "320 elements: [0 1 2 3] ...\n", true, 8 * 40 * 4},
		{"-rank 3 -of 8 -dim 1", "F32", "F32: F32 [24,5]\n", "120 elements: [15 16 17 18] ...\n", false, 23*40*4 + 5*4},
		{"-rank 7 -of 8 -dim 1", "BF16", "BF16: BF16 [24,5]\n", "120 elements: [35 36 37 38] ...\n", false, 23*40*2 + 5*2},
		{"", "scalar", "scalar: F32 []\n", "1 elements: [2.5] ...\n", true, 4},
		{"", "empty", "empty: F32 [0,4]\n", "0 elements: [] ...\n", true, 0},
	} {
		t.Run(c.flags+" "+c.tensor, func(t *testing.T) {
			args := append(strings.Fields(c.flags), model, c.tensor)
			var out bytes.Buffer
			require.NoError(t, run(args, &out))
			require.Regexp(t, `^\Q`+c.head+`\E(no view, so copied: .*\n)?\Q`+c.tail+`\E$`, out.String())
			require.Equal(t, c.views && (viewable(model) || c.bytes == 0), !strings.Contains(out.String(), "so copied: "))

			out.Reset()
			require.NoError(t, run(append([]string{"-count"}, args...), &out))
			require.Contains(t, out.String(), c.tail)
			require.Contains(t, out.String(), fmt.Sprintf("\nread %d bytes besides the header", c.bytes))
		})
	}
}

// TestErrors: a tensor or a part that does not exist is an error, and nothing of it is printed.
func TestErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	writeModel(t, "model.safetensors")
	for _, flags := range []string{"", "-count "} {
		for args, want := range map[string]string{
			"model.safetensors":                          "the name of a tensor",
			"model.safetensors I64":                      "not float32",
			"model.safetensors other":                    `"other"`,
			"-rank 8 -of 8 model.safetensors F32":        "part 8 of 8",
			"-of 0 model.safetensors F32":                "part 0 of 0",
			"-of 7 model.safetensors F32":                "7 does not divide the size 24",
			"-rank 1 -of 2 -dim 2 model.safetensors F32": "rank 2",
			"-rank 1 -of 2 model.safetensors scalar":     "rank 0",
		} {
			var out bytes.Buffer
			require.ErrorContains(t, run(strings.Fields(flags+args), &out), want, args)
			require.NotContains(t, out.String(), "besides the header")
		}
		require.ErrorIs(t, run(strings.Fields(flags+"missing.safetensors F32"), io.Discard), fs.ErrNotExist)
	}
}
