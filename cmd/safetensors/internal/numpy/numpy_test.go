package numpy

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"os"
	"slices"
	"sync/atomic"
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

// TestPrint compares reading only the corners with reading everything, and counts what
// is read.
func TestPrint(t *testing.T) {
	for _, shape := range [][]int{{2000}, {40, 50}, {3, 400}, {400, 3}, {11, 12, 13}, {2, 7, 7, 7, 7}, {1001, 1, 1}} {
		n := 1
		for _, size := range shape {
			n *= size
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(i) / 8
		}
		x, err := safetensors.NewTensor(safetensors.F32, shape, values)
		require.NoError(t, err)
		var all []float64
		var collect func(d, first int)
		corners := Corners(shape)
		collect = func(d, first int) {
			if d == len(shape) {
				all = append(all, float64(values[first]))
				return
			}
			for _, i := range corners[d] {
				collect(d+1, first*shape[d]+i)
			}
		}
		collect(0, 0)
		want := Format(shape, Values{Floats: all, Bits: 32})
		r := &counter{ReaderAt: x}
		at, err := safetensors.NewTensorAt(safetensors.F32, shape, r)
		require.NoError(t, err)
		got, err := Print(at)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, int64(4*len(all)), r.bytes.Load())
		require.LessOrEqual(t, r.reads.Load(), int64(len(all)/3+4), "neighbors are read together")
	}
	codes := make([]byte, 1000)
	codes[0], codes[999] = 0x31, 0x70
	packed, err := safetensors.NewTensor(safetensors.F4, []int{2000}, codes)
	require.NoError(t, err)
	text, err := Print(packed)
	require.NoError(t, err)
	require.Equal(t, "[0.5 1.5 0.  ... 0.  0.  6. ]", text, "elements of half a byte")
	deep := slices.Repeat([]int{7}, 12)
	x, err := safetensors.NewTensorAt(safetensors.U8, deep, bytes.NewReader(nil))
	require.NoError(t, err)
	_, err = Print(x)
	require.ErrorContains(t, err, "select a slice")
}

type counter struct {
	io.ReaderAt
	reads, bytes atomic.Int64
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.reads.Add(1)
	c.bytes.Add(int64(len(p)))
	return c.ReaderAt.ReadAt(p, off)
}
