package numpy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestWriteJSON reads back what WriteJSON writes, of shapes below, at and beyond a block.
func TestWriteJSON(t *testing.T) {
	const blockLen = blockSize / 4
	for _, shape := range [][]int{
		{}, {0}, {3, 0, 2}, {1}, {2, 3}, {blockLen}, {blockLen + 1}, {3*blockLen - 1}, {3, blockLen + 1}, {2*blockLen + 1, 1},
		{blockLen + 1, 3}, {1, 1, 2 * blockLen}, {5, 7, 2, blockLen / 50}, {2, 1, 2 * blockLen, 1},
	} {
		n := 1
		for _, size := range shape {
			n *= size
		}
		data := make([]int32, n)
		for i := range data {
			data[i] = int32(i)
		}
		tensor := must(safetensors.NewTensor(safetensors.I32, shape, data))
		var b bytes.Buffer
		require.NoError(t, WriteJSON(&b, tensor))
		var v any
		require.NoError(t, json.Unmarshal(b.Bytes(), &v))
		next := 0
		requireCounting(t, v, shape, &next)
		require.Equal(t, n, next, "%v", shape)
	}
	var b bytes.Buffer
	l := &lists{w: bufio.NewWriter(&b), dtype: safetensors.U16, shape: []int{3}}
	for _, part := range []string{"\x01", "\x02\x03", "\x04\x05", "", "\x06"} {
		must(l.Write([]byte(part)))
	}
	require.NoError(t, l.w.Flush())
	require.Equal(t, "[513,1027,1541]", b.String(), "elements that come in parts")
}

// requireCounting requires nested lists of a shape whose numbers count from next on.
func requireCounting(t *testing.T, v any, shape []int, next *int) {
	if len(shape) == 0 {
		if v != float64(*next) {
			require.Equal(t, float64(*next), v)
		}
		*next++
		return
	}
	list, ok := v.([]any)
	require.True(t, ok)
	if len(list) == 0 {
		return // no elements at all
	}
	require.Len(t, list, shape[0])
	for _, item := range list {
		requireCounting(t, item, shape[1:], next)
	}
}
