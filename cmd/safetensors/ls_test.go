package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/stretchr/testify/require"
)

// TestListingOfStrangers: a name of many dots and a shape of many dimensions cost no more
// than their bytes, names of many parts no node for each, and a table stays as narrow as it is.
func TestListingOfStrangers(t *testing.T) {
	tensors := []listed{{Name: "a" + strings.Repeat(".", 1<<16)}, {Name: "a"}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	printTree(io.Discard, tensors, 0, false)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))

	tensors = tensors[:0]
	for i := range 10_000 {
		tensors = append(tensors, listed{Name: fmt.Sprint(i, strings.Repeat(".a", 19))})
	}
	w := new(heapWriter)
	w.Write(nil)
	printTree(w, tensors, 0, false)
	require.Len(t, w.heap, 10_002)
	require.Less(t, w.heap[5000], w.heap[0]+16<<20)

	require.Equal(t, "[2,3]", term.Shape([]int{2, 3}))
	require.Equal(t, "[]", term.Shape(nil))
	require.Equal(t, "["+strings.Repeat("1,", 32)+"... 1048576 dim…", term.Shape(slices.Repeat([]int{1}, 1<<20)))
}

// TestCountsBeyond63Bits: a file has room for more F4 than an int64 counts.
func TestCountsBeyond63Bits(t *testing.T) {
	x := must(safetensors.NewTensorAt(safetensors.F4, []int{1 << 16, 1 << 15, 1 << 15, 1 << 15}, strings.NewReader("")))
	require.Equal(t, int64(1<<61), numbers.Count(x))
	var all total
	for range 7 {
		all.add(listed{Parameters: numbers.Count(x), Bytes: x.Size()})
	}
	require.Equal(t, total{Tensors: 7, Parameters: math.MaxInt64, Bytes: 7 << 60}, all)
}

// A heapWriter notes the heap at its first and at its 5000th line, which is half of a tree.
type heapWriter struct{ heap []uint64 }

func (w *heapWriter) Write(p []byte) (int, error) {
	var now runtime.MemStats
	if n := len(w.heap); n == 0 || n == 5000 {
		runtime.GC()
		runtime.ReadMemStats(&now)
	}
	w.heap = append(w.heap, now.HeapAlloc)
	return len(p), nil
}

// TestTree compares trees of random names with those that have a node for each part.
func TestTree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		names := make(map[string]bool)
		for range random.IntN(20) {
			name := make([]byte, random.IntN(8))
			for i := range name {
				name[i] = "..a!\x00"[random.IntN(5)]
			}
			names[strings.Repeat("a.", random.IntN(2)*(maxLevels-random.IntN(5)))+string(name)] = true
		}
		var tensors []listed
		var parts [][]string
		for name := range names {
			tensors = append(tensors, listed{Name: name, DType: safetensors.F32, Shape: []int{2}, Parameters: 2, Bytes: 8})
			parts = append(parts, strings.SplitN(name, ".", maxLevels))
		}
		depth := random.IntN(4)
		var got, want strings.Builder
		printTree(&got, tensors, depth, false)
		_, lines, _ := strings.Cut(got.String(), "\n")
		slowTree(&want, parts, "", depth, true)
		require.Equal(t, want.String(), lines, "%q", tensors)
	}
}

// slowTree prints tensors by the parts that are left of their names: it has a map for each part.
func slowTree(w io.Writer, names [][]string, rest string, depth int, top bool) {
	labels, below := labelsOf(names)
	for i, label := range labels {
		branch, line := "├─ ", "│  "
		switch {
		case top:
			branch, line = "", ""
		case i+1 == len(labels):
			branch, line = "└─ ", "   "
		}
		all, levels, what := below[label], depth, "\tF32\t[2]"
		for !slices.ContainsFunc(all, func(name []string) bool { return len(name) == 0 }) { // no tensor of this name
			what = "\t\t" + term.Plural(len(all), "tensor")
			next, nextBelow := labelsOf(all)
			if len(next) > 1 || levels == 1 {
				break
			}
			label, all, levels, what = label+"."+next[0], nextBelow[next[0]], max(levels-1, 0), "\tF32\t[2]"
		}
		fmt.Fprintf(w, "%s%s%s%s\t%17d\t%6d B\n", rest, branch, term.Name(label), what, 2*len(all), 8*len(all))
		if levels != 1 {
			slowTree(w, all, rest+line, max(levels-1, 0), false)
		}
	}
}

// labelsOf returns the first parts of names, sorted as people do, and the others by these.
func labelsOf(names [][]string) (labels []string, below map[string][][]string) {
	below = make(map[string][][]string)
	for _, name := range names {
		if len(name) == 0 {
			continue
		}
		if below[name[0]] == nil {
			labels = append(labels, name[0])
		}
		below[name[0]] = append(below[name[0]], name[1:])
	}
	slices.SortFunc(labels, pattern.Compare)
	return labels, below
}
