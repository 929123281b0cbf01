package interop_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/stretchr/testify/require"
)

const indexFile = "model.safetensors.index.json"

// pythonShards is the content of a folder of shards as Python reads it.
type pythonShards struct {
	goldenFile                                               // of all shards, one after another
	ParameterCount map[safetensors.DType]int64               `json:"parameter_count"`
	Slices         map[string]struct{ Rows, Columns string } // hashes of the slices of rank 3 of 8
}

// TestPythonWritesShards opens shards that Python writes.
func TestPythonWritesShards(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes", "huggingface_hub")
	for seed, c := range shardLimits {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			want := runPython[pythonShards](t, nil, "write_shards", strconv.Itoa(seed), dir, strconv.Itoa(c.limit))
			requireShards(t, dir, c.least, want)
		})
	}
}

// TestPythonReadsShards has Python read shards of this package.
func TestPythonReadsShards(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes", "huggingface_hub")
	tensors := randomTensors(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for dtype := range safetensors.DTypes() {
		tensors["weight."+dtype.String()] = randomTensor(t, rng, dtype, 64, 128)
	}
	metadata := map[string]string{"format": "pt", strange: strange}
	for _, c := range shardLimits {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, safetensors.WriteShards(dir, tensors, metadata, int64(c.limit)))
			got := runPython[pythonShards](t, nil, "read_shards", dir)
			require.Equal(t, metadata, got.Metadata)
			requireReadByPython(t, tensors, got.Tensors)
			requireShards(t, dir, c.least, got)
		})
	}
}

// shardLimits are limits for about 70 small tensors and 15 to 22 of 4 to 64 KiB.
var shardLimits = []struct {
	name         string
	limit, least int // of bytes in a shard, of shards
}{
	{"one shard", 1 << 30, 1},
	{"several", 100_000, 3},
	{"tensors above the limit", 20_000, 10},
}

// requireShards checks that this package reads in a folder what Python reads, with
// Open and Load and from a server.
func requireShards(t *testing.T, dir string, least int, want pythonShards) {
	t.Helper()
	files := must(filepath.Glob(filepath.Join(dir, "*.safetensors")))
	require.GreaterOrEqual(t, len(files), least)
	names := []string{dir}
	if len(files) > 1 {
		names = append(names, filepath.Join(dir, indexFile))
	} else {
		require.NoFileExists(t, filepath.Join(dir, indexFile))
	}
	require.NotEmpty(t, want.Slices)
	server := httptest.NewServer(http.StripPrefix("/owner/model/resolve/main/", http.FileServer(http.Dir(dir))))
	defer server.Close()
	models := &hub.Client{Endpoint: server.URL, Token: "none"}
	for _, name := range names {
		for _, open := range []func(string) (*safetensors.File, error){
			safetensors.Open, safetensors.Load,
			func(string) (*safetensors.File, error) { return models.Open(t.Context(), "owner/model", "") },
		} {
			f := must(open(name))
			requireFile(t, f, want.goldenFile)
			require.Equal(t, want.ParameterCount, f.ParameterCount())
			for name, slices := range want.Slices {
				tensor := must(f.Tensor(name))
				require.Equal(t, []int{64, 128}, tensor.Shape())
				rows := must(tensor.Slice(safetensors.Span(24, 32)))
				columns := must(tensor.Slice(safetensors.All(), safetensors.Span(48, 64)))
				require.Equal(t, slices.Rows, hash(must(safetensors.Append([]byte(nil), rows))), "%q", name)
				require.Equal(t, slices.Columns, hash(must(safetensors.Append([]byte(nil), columns))), "%q", name)
			}
			require.NoError(t, f.Close())
		}
	}
}

// TestPythonSplits has huggingface_hub split checkpoints of random sizes, and
// Python's JSON package write the index.
func TestPythonSplits(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes", "huggingface_hub")
	type split struct {
		Files map[string][]string // tensors by shard
		Index string              // "" if there is none
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var stdin bytes.Buffer
	var got []split
	for range 40 {
		tensors := make(map[string]safetensors.Tensor)
		sizes := make(map[string]int)
		for range 1 + rng.IntN(12) {
			name := randomName(rng)
			sizes[name] = 8 * rng.IntN(9) // some fill a shard exactly
			tensors[name] = randomTensor(t, rng, safetensors.U8, sizes[name])
		}
		limit := 8 * (1 + rng.IntN(12))
		require.NoError(t, json.NewEncoder(&stdin).Encode([]any{sizes, limit}))

		dir := t.TempDir()
		require.NoError(t, safetensors.WriteShards(dir, tensors, nil, int64(limit)))
		s := split{Files: make(map[string][]string)}
		entries := must(os.ReadDir(dir))
		for _, e := range entries {
			if e.Name() == indexFile {
				s.Index = string(must(os.ReadFile(filepath.Join(dir, indexFile))))
				continue
			}
			f := must(safetensors.Load(filepath.Join(dir, e.Name())))
			for name := range f.Tensors() { // in name order, as they have one dtype
				s.Files[e.Name()] = append(s.Files[e.Name()], name)
			}
		}
		got = append(got, s)
	}
	require.Equal(t, runPython[[]split](t, &stdin, "split"), got)
}
