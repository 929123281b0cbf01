package interop_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A goldenFile is the expected content of a file, as testdata/generate.py or
// testdata/interop.py describes it.
type goldenFile struct {
	File     string
	Metadata map[string]string
	Tensors  []goldenTensor // in file order
}

// A goldenTensor is one of its tensors.
type goldenTensor struct {
	Name   string
	DType  safetensors.DType
	Shape  []int
	Data   string          // in hex
	SHA256 string          // instead of Data and Values if they are long
	Values json.RawMessage // floats as text
}

// requireFile checks the content of f.
func requireFile(t *testing.T, f *safetensors.File, want goldenFile) {
	t.Helper()
	require.Equal(t, want.Metadata, f.Metadata())
	var names, wantNames []string
	for name := range f.Tensors() {
		names = append(names, name)
	}
	counts := map[safetensors.DType]int64{}
	for _, w := range want.Tensors {
		wantNames = append(wantNames, w.Name)
		tensor := must(f.Tensor(w.Name))
		requireTensor(t, tensor, w)
		counts[w.DType] += int64(tensor.Len())
	}
	require.Equal(t, wantNames, names)
	require.Equal(t, counts, f.ParameterCount())
}

// requireTensor checks the shape and the bytes of a tensor, and the values of floats. Those
// of integers are their bytes.
func requireTensor(t *testing.T, tensor safetensors.Tensor, want goldenTensor) {
	t.Helper()
	require.Equal(t, want.DType, tensor.DType())
	require.True(t, slices.Equal(want.Shape, tensor.Shape()), "%v", tensor)
	count := 1
	for _, n := range want.Shape {
		count *= n
	}
	require.Equal(t, count, tensor.Len())

	raw := must(safetensors.Append([]byte(nil), tensor))
	var written bytes.Buffer
	require.EqualValues(t, len(raw), must(tensor.WriteTo(&written)))
	require.True(t, bytes.Equal(raw, written.Bytes()), "WriteTo and Append differ")
	if want.SHA256 != "" {
		require.Equal(t, want.SHA256, hash(raw), want.Name)
		return
	}
	require.Equal(t, want.Data, hex.EncodeToString(raw), want.Name)
	if want.DType.IsFloat() {
		requireFloats(t, tensor, want.Values)
	}
}

// requireFloats checks the elements of a tensor of floats: exact as float64, and as
// float32 unless it is F64.
func requireFloats(t *testing.T, tensor safetensors.Tensor, want json.RawMessage) {
	t.Helper()
	var texts []string
	require.NoError(t, json.Unmarshal(want, &texts))
	values := make([]float64, len(texts))
	for i, text := range texts {
		values[i] = must(strconv.ParseFloat(text, 64))
	}
	// As text, all NaNs are equal, and 0 and -0 differ.
	require.Equal(t, fmt.Sprint(values), fmt.Sprint(must(safetensors.Append([]float64{}, tensor))))
	narrow, err := safetensors.Append([]float32{}, tensor)
	if tensor.DType() == safetensors.F64 {
		require.ErrorContains(t, err, "F64", "float32 does not hold every one")
		return
	}
	require.NoError(t, err)
	wide := make([]float64, len(narrow))
	for i, v := range narrow {
		wide[i] = float64(v)
	}
	require.Equal(t, fmt.Sprint(values), fmt.Sprint(wide))
}

// requireSameWhenWritten checks that the content of f is written as data, byte for
// byte.
func requireSameWhenWritten(t *testing.T, f *safetensors.File, data []byte) {
	t.Helper()
	var rewritten bytes.Buffer
	require.NoError(t, safetensors.Write(&rewritten, maps.Collect(f.Tensors()), f.Metadata()))
	require.True(t, bytes.Equal(data, rewritten.Bytes()), "want %q…\nwrote %q…",
		data[:min(len(data), 300)], rewritten.Bytes()[:min(rewritten.Len(), 300)])
}

// requireReadByPython checks that Python has read the tensors that were written.
func requireReadByPython(t *testing.T, tensors map[string]safetensors.Tensor, got []goldenTensor) {
	t.Helper()
	require.Len(t, got, len(tensors))
	for _, g := range got {
		want := tensors[g.Name]
		require.Equal(t, want.DType(), g.DType, "%q", g.Name)
		require.True(t, slices.Equal(want.Shape(), g.Shape), "%q: %v", g.Name, g.Shape)
		require.Equal(t, hash(must(safetensors.Append([]byte(nil), want))), g.SHA256, "%q", g.Name)
	}
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
