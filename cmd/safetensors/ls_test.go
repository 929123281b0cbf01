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
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/stretchr/testify/require"
)

// TestListingOfStrangers: a name of many dots and a shape of many dimensions cost no more
// than their bytes, names of many parts no node for each, and a table stays as narrow as it is.
func TestListingOfStrangers(t *testing.T) {
	tensors := []listed{{Name: "a" + strings.Repeat(".", 1<<16)}, {Name: "a"}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	printTree(io.Discard, tensors, 0)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))

	tensors = tensors[:0]
	for i := range 10_000 {
		tensors = append(tensors, listed{Name: fmt.Sprint(i, strings.Repeat(".a", 19))})
	}
	w := new(heapWriter)
	w.Write(nil)
	printTree(w, tensors, 0)
	require.Len(t, w.heap, 10_002)
	require.Less(t, w.heap[5000], w.heap[0]+16<<20)

	require.Equal(t, "[2,3]", term.Shape([]int{2, 3}))
	require.Equal(t, "[]", term.Shape(nil))
	require.Equal(t, "["+strings.Repeat("1,", 39)+"1…", term.Shape(slices.Repeat([]int{1}, 1<<20)))
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
		root := &node{}
		for name := range names {
			tensors = append(tensors, listed{Name: name, DType: safetensors.F32, Shape: []int{2}, Parameters: 2, Bytes: 8})
		}
		for i := range tensors {
			root.add(&tensors[i])
		}
		depth := random.IntN(4)
		var got, want strings.Builder
		printTree(&got, tensors, depth)
		_, lines, _ := strings.Cut(got.String(), "\n")
		for _, child := range root.children {
			child.print(&want, "", "", depth)
		}
		require.Equal(t, want.String(), lines, "%q", tensors)
	}
}

// A node is a part of a name, and what is below it.
type node struct {
	label    string
	sum      total
	tensor   *listed
	children []*node
}

func (n *node) add(t *listed) {
	for _, label := range strings.SplitN(t.Name, ".", maxLevels) {
		i := slices.IndexFunc(n.children, func(c *node) bool { return c.label == label })
		if i < 0 {
			i = len(n.children)
			n.children = append(n.children, &node{label: label})
		}
		n = n.children[i]
		n.sum.add(*t)
	}
	n.tensor = t
}

func (n *node) print(w io.Writer, first, rest string, depth int) {
	label := n.label
	for n.tensor == nil && len(n.children) == 1 && depth != 1 {
		n = n.children[0]
		label += "." + n.label
		depth = max(depth-1, 0)
	}
	what := "\tF32\t[2]"
	if n.tensor == nil {
		what = strings.Replace(fmt.Sprintf("\t\t%d tensors", n.sum.Tensors), "\t1 tensors", "\t1 tensor", 1)
	}
	fmt.Fprintf(w, "%s%s%s\t%17s\t%8s\n", first, term.Name(label), what, term.Count(n.sum.Parameters), term.Bytes(n.sum.Bytes))
	if depth == 1 {
		return
	}
	for i, child := range n.children {
		branch, below := "├─ ", "│  "
		if i+1 == len(n.children) {
			branch, below = "└─ ", "   "
		}
		child.print(w, rest+branch, rest+below, max(depth-1, 0))
	}
}
