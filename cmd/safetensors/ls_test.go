package main

import (
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestListingOfStrangers: a name of many dots and a shape of many dimensions cost no more
// than their bytes, and a table stays as narrow as it is.
func TestListingOfStrangers(t *testing.T) {
	tensors := []listed{{Name: "a" + strings.Repeat(".", 1<<16)}, {Name: "a"}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	printTree(io.Discard, tensors, 0)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))

	require.Equal(t, "[2,3]", shape([]int{2, 3}))
	require.Equal(t, "[]", shape(nil))
	require.Equal(t, "["+strings.Repeat("1,", 39)+"1…", shape(slices.Repeat([]int{1}, 1<<20)))
}

// TestCountsBeyond63Bits: a file has room for more F4 than an int64 counts.
func TestCountsBeyond63Bits(t *testing.T) {
	x, err := safetensors.NewTensorAt(safetensors.F4, []int{1 << 16, 1 << 15, 1 << 15, 1 << 15}, strings.NewReader(""))
	require.NoError(t, err)
	require.Equal(t, int64(1<<61), parameters(x))
	var all total
	for range 7 {
		all.add(listed{Parameters: parameters(x), Bytes: x.Size()})
	}
	require.Equal(t, total{Tensors: 7, Parameters: math.MaxInt64, Bytes: 7 << 60}, all)
}
