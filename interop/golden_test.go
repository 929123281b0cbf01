// Package interop_test compares what the module reads and writes with golden files,
// with numpy and with the Python packages.
package interop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestGolden opens every golden file in every way and writes it again.
func TestGolden(t *testing.T) {
	text := must(os.ReadFile("../testdata/golden/expected.json"))
	var golden []goldenFile
	require.NoError(t, json.Unmarshal(text, &golden))
	requireAllListed(t, golden)

	for _, want := range golden {
		t.Run(want.File, func(t *testing.T) {
			name := filepath.Join("..", "testdata", filepath.FromSlash(want.File))
			data := must(os.ReadFile(name))

			for way, open := range map[string]func() (*safetensors.File, error){
				"Parse":   func() (*safetensors.File, error) { return safetensors.Parse(data) },
				"Load":    func() (*safetensors.File, error) { return safetensors.Load(name) },
				"Open":    func() (*safetensors.File, error) { return safetensors.Open(name) },
				"NewFile": func() (*safetensors.File, error) { return safetensors.NewFile(bytes.NewReader(data), int64(len(data))) },
			} {
				t.Run(way, func(t *testing.T) {
					f := must(open())
					requireFile(t, f, want)
					for _, x := range f.Tensors() {
						view, err := safetensors.View[byte](x)
						viewable := x.Len() == 0 || way != "NewFile" && (way != "Open" || testplatform.Maps)
						require.Equal(t, viewable, err == nil)
						require.True(t, err != nil || bytes.Equal(view, must(safetensors.Append[byte](nil, x))))
					}
					require.Equal(t, must(safetensors.ReadHeader(bytes.NewReader(data))), f.Header())
					requireSameWhenWritten(t, f, data)
					require.NoError(t, f.Close())
				})
			}
		})
	}
}

// requireAllListed fails if a golden file or a dtype is missing from the list.
func requireAllListed(t *testing.T, golden []goldenFile) {
	t.Helper()
	found := must(filepath.Glob("../testdata/golden/*.safetensors"))
	found = append(found, filepath.Join("..", "testdata", "model.safetensors"))
	var listed []string
	dtypes := map[safetensors.DType]bool{}
	for _, g := range golden {
		listed = append(listed, filepath.Join("..", "testdata", filepath.FromSlash(g.File)))
		for _, tensor := range g.Tensors {
			dtypes[tensor.DType] = true
		}
	}
	require.ElementsMatch(t, listed, found)
	require.ElementsMatch(t, slices.Collect(safetensors.DTypes()), slices.Collect(maps.Keys(dtypes)))
}

// tiedModels returns the names of the tensors of each model, and the names that save_model
// kept.
func tiedModels(t *testing.T) (models map[string]map[string]string) {
	require.NoError(t, json.Unmarshal(must(os.ReadFile("../testdata/tied/state.json")), &models))
	return models
}

// retied returns what Tie makes of what Untie makes of a file, which has to be all names.
func retied(t *testing.T, f *safetensors.File, names map[string]string) (map[string]safetensors.Tensor, map[string]string) {
	t.Helper()
	all, rest := safetensors.Untie(maps.Collect(f.Tensors()), f.Metadata())
	require.Equal(t, map[string]string{"format": "pt"}, rest)
	require.Equal(t, slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(all)))
	for name, kept := range names {
		require.Equal(t, must(f.Tensor(kept)), all[name], name)
	}
	return safetensors.Tie(all, rest)
}

// TestTieAsSaveModel compares Tie and Untie with safetensors.torch: from the names
// of a model, Tie makes the very file that save_model wrote, and Untie finds all
// names in it. testdata/tied/generate.py makes the files, and checks with load_model
// that PyTorch reads them.
func TestTieAsSaveModel(t *testing.T) {
	models := tiedModels(t)
	require.Len(t, models, 2)
	for model, names := range models {
		want := must(os.ReadFile("../testdata/tied/" + model + ".safetensors"))
		tied, metadata := retied(t, must(safetensors.Parse(want)), names)
		var got bytes.Buffer
		require.NoError(t, safetensors.Write(&got, tied, metadata))
		require.Equal(t, want, got.Bytes(), model)
	}
}

// TestTieInShards compares Tie and Untie with huggingface_hub, which keeps the other names
// of tied tensors in the index alone: Untie of the opened folder finds all names, and
// WriteShards writes an index with the same ones. `testdata/tied/generate.py check` has
// PyTorch load either folder.
func TestTieInShards(t *testing.T) {
	const folder = "../testdata/tied/sharded"
	open := func(dir string) (*safetensors.File, map[string]string) {
		f := must(safetensors.Open(dir))
		t.Cleanup(func() { f.Close() })
		r := must(os.Open(filepath.Join(dir, indexFile)))
		defer r.Close()
		index := must(safetensors.ReadIndex(r))
		require.Len(t, index.Shards, f.Len())
		var metadata map[string]any
		require.NoError(t, json.Unmarshal(index.Metadata, &metadata))
		require.EqualValues(t, 256, metadata["total_size"])
		aliases := make(map[string]string)
		for key, value := range metadata {
			if value, ok := value.(string); ok {
				aliases[key] = value
			}
		}
		return f, aliases
	}
	f, want := open(folder)
	require.Len(t, want, 3)
	for _, h := range f.Headers() {
		require.Equal(t, map[string]string{"format": "pt"}, h.Metadata, "a shard has no alias")
	}
	tied, metadata := retied(t, f, tiedModels(t)["tied"])
	dir := t.TempDir()
	require.NoError(t, safetensors.WriteShards(dir, tied, metadata, 100))
	again, got := open(dir)
	require.Equal(t, want, got)
	require.Equal(t, f.Metadata(), again.Metadata())
}

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
			whole := numbered(c.Shape)
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
				require.True(t, slices.Equal(c.WantShape, got.Shape()), "%v", got)
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

// numbered returns a tensor whose elements are numbered.
func numbered(shape []int) safetensors.Tensor {
	n := 1
	for _, size := range shape {
		n *= size
	}
	data := make([]uint32, n)
	for i := range data {
		data[i] = uint32(i)
	}
	return must(safetensors.NewTensor(safetensors.U32, shape, data))
}
