package interop_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A sliceCase is one slice by numpy of an array that holds 0, 1, 2, and so on.
type sliceCase struct {
	Shape     []int
	Ranges    []string // as written in Python
	WantShape []int    `json:"want_shape"`
	Want      []uint32
}

// TestSliceAsNumpy compares slices with those of numpy, in one step and dimension by dimension.
func TestSliceAsNumpy(t *testing.T) {
	var cases []sliceCase
	require.NoError(t, json.Unmarshal(must(os.ReadFile("../testdata/slices.json")), &cases))
	require.Len(t, cases, 300)
	for _, c := range cases {
		t.Run(strings.ReplaceAll(fmt.Sprint(c.Shape, c.Ranges), " ", ","), func(t *testing.T) {
			ranges := make([]safetensors.Range, len(c.Ranges))
			for i, text := range c.Ranges {
				ranges[i] = parseRange(t, text)
			}
			whole := numbered(c.Shape)[0]
			once := must(whole.Slice(ranges...))
			// From the last dimension to the first: dropping one does not renumber those
			// that follow.
			stepwise := whole
			for i := len(ranges) - 1; i >= 0; i-- {
				step := slices.Repeat([]safetensors.Range{safetensors.All()}, i+1)
				step[i] = ranges[i]
				stepwise = must(stepwise.Slice(step...))
			}
			for _, got := range []safetensors.Tensor{once, stepwise} {
				requireShape(t, c.WantShape, got.Shape())
				require.Equal(t, append([]uint32{42}, c.Want...), must(safetensors.Append([]uint32{42}, got)))
			}
		})
	}
}

// parseRange reads one index or slice as Python spells it, such as "-1", ":",
// "::2" or "1:-2:3".
func parseRange(t *testing.T, text string) safetensors.Range {
	t.Helper()
	parts := strings.Split(text, ":")
	number := func(i int) int {
		n, err := strconv.Atoi(parts[i])
		require.NoError(t, err, text)
		return n
	}
	if len(parts) == 1 {
		return safetensors.At(number(0))
	}
	r := safetensors.All()
	if parts[0] != "" {
		r = safetensors.Span(number(0), number(1))
	}
	if len(parts) == 3 {
		r = r.By(number(2))
	}
	return r
}

// A concatCase is arrays joined by numpy, whose elements are numbered from one
// array to the next.
type concatCase struct {
	Dim       int
	Shapes    [][]int
	WantShape []int `json:"want_shape"`
	Want      []uint32
}

// TestConcatAsNumpy compares Concat with numpy.concatenate.
func TestConcatAsNumpy(t *testing.T) {
	text := must(os.ReadFile("../testdata/concat.json"))
	var cases []concatCase
	require.NoError(t, json.Unmarshal(text, &cases))
	require.Len(t, cases, 120)
	for _, c := range cases {
		t.Run(fmt.Sprint(c.Dim, c.Shapes), func(t *testing.T) {
			joined := must(safetensors.Concat(c.Dim, numbered(c.Shapes...)...))
			require.Equal(t, c.WantShape, joined.Shape())
			require.Equal(t, append([]uint32(nil), c.Want...), must(safetensors.Append[uint32](nil, joined)))
		})
	}
}

// numbered returns tensors of the shapes, their elements numbered throughout.
func numbered(shapes ...[]int) (tensors []safetensors.Tensor) {
	next := uint32(0)
	for _, shape := range shapes {
		n := 1
		for _, size := range shape {
			n *= size
		}
		data := make([]uint32, n)
		for i := range data {
			data[i] = next
			next++
		}
		tensors = append(tensors, must(safetensors.NewTensor(safetensors.U32, shape, data)))
	}
	return tensors
}
