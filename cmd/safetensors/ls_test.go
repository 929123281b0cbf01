package main

import (
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

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
