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

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestArrays compares with what numpy printed: testdata/generate.py.
func TestArrays(t *testing.T) {
	text := must(os.ReadFile("testdata/arrays.json"))
	var arrays []struct {
		DType, Text, Corners string
		Shape                []int
	}
	require.NoError(t, json.Unmarshal(text, &arrays))
	require.Greater(t, len(arrays), 380)
	dtypes := map[string]safetensors.DType{
		"float16": safetensors.F16, "float32": safetensors.F32, "float64": safetensors.F64,
		"int8": safetensors.I8, "int64": safetensors.I64, "uint8": safetensors.U8, "uint64": safetensors.U64,
		"bool": safetensors.BOOL, "complex64": safetensors.C64,
	}
	for i, a := range arrays {
		data := must(hex.DecodeString(a.Corners))
		got := must(Print(cornered(t, dtypes[a.DType], a.Shape, data)))
		require.Equal(t, a.Text, got, "array %d: %s %v", i, a.DType, a.Shape)
	}
}

// cornered returns a tensor whose printed elements are those in data, the others 0.
func cornered(t *testing.T, d safetensors.DType, shape []int, data []byte) safetensors.Tensor {
	n := 1
	for _, size := range shape {
		n *= size
	}
	size := d.Bits() / 8
	all := make([]byte, n*size)
	for i := range n {
		printed := true
		if n > threshold {
			for d, at := len(shape)-1, i; d >= 0; d-- {
				index := at % shape[d]
				printed = printed && (index < edgeItems || index >= shape[d]-edgeItems)
				at /= shape[d]
			}
		}
		if printed {
			data = data[copy(all[i*size:][:size], data):]
		}
	}
	require.Empty(t, data)
	return must(safetensors.NewTensor(d, shape, all))
}

// TestPrint counts what is read of a tensor of which the corners are printed.
func TestPrint(t *testing.T) {
	for _, c := range []struct {
		shape        []int
		reads, bytes int64 // at most
	}{
		{[]int{2000}, 2, 24}, {[]int{40, 5000}, 12, 144}, {[]int{3, 400}, 6, 6424}, {[]int{400, 3}, 2, 72},
		{[]int{11, 12, 1300}, 72, 864}, {[]int{1001, 1, 1}, 2, 24},
	} {
		n := 1
		for _, size := range c.shape {
			n *= size
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(i) / 8
		}
		x := must(safetensors.NewTensor(safetensors.F32, c.shape, values))
		want := must(Print(x))
		r := &counter{ReaderAt: x}
		at := must(safetensors.NewTensorAt(safetensors.F32, c.shape, r))
		require.Equal(t, want, must(Print(at)))
		require.LessOrEqual(t, r.reads.Load(), c.reads, "%d: neighbors are read together", c.shape)
		require.LessOrEqual(t, r.bytes.Load(), c.bytes, "%d: and what is between them only if that is little", c.shape)
	}
	codes := make([]byte, 1000)
	codes[0], codes[999] = 0x31, 0x70
	packed := must(safetensors.NewTensor(safetensors.F4, []int{2000}, codes))
	require.Equal(t, "[0.5 1.5   0 ...   0   0   6]", must(Print(packed)), "elements of half a byte")
	deep := slices.Repeat([]int{7}, 12)
	x := must(safetensors.NewTensorAt(safetensors.U8, deep, bytes.NewReader(nil)))
	_, err := Print(x)
	require.ErrorContains(t, err, "select a slice")
	huge := must(safetensors.NewTensorAt(safetensors.U8, []int{math.MaxInt / 16}, bytes.NewReader([]byte("123"))))
	_, err = Print(huge)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
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
