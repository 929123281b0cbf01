package dest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// writeStem writes a checkpoint whose files have a stem.
func writeStem(t *testing.T, to Shared, stem string, maxBytes int64, tensors ...string) error {
	t.Helper()
	s := &Set{Force: true}
	s.Shards, s.Index = Split(checkpoint(tensors...), maxBytes, stem, "")
	return s.Write(to)
}

// TestOtherStems: a save removes the files of earlier saves with its own stem, and no file of a checkpoint with
// another stem, whatever the numbers of its shards are.
func TestOtherStems(t *testing.T) {
	for kind, d := range folders(t, 16) {
		t.Run(kind, func(t *testing.T) {
			list := func(stem string) []string {
				return slices.DeleteFunc(slices.Sorted(maps.Keys(must(d.Files("", false)))), func(name string) bool {
					return !strings.HasPrefix(name, stem+".") && !strings.HasPrefix(name, stem+"-")
				})
			}
			require.NoError(t, writeStem(t, d, "consolidated", 16, "a", "b", "c"))
			require.NoError(t, writeStem(t, d, "consolidated", 16, "a", "b", "c"))
			other := list("consolidated")
			require.Regexp(t, `^consolidated\.\d{9}-00001-of-00002\.safetensors consolidated\.\d{9}-00002-of-00002\.safetensors consolidated\.safetensors\.index\.json$`, strings.Join(other, " "))
			for _, maxBytes := range []int64{16, 0, 16, 16} {
				require.NoError(t, writeStem(t, d, "model", maxBytes, "x", "y", "z"))
				require.Equal(t, other, list("consolidated"))
				require.Len(t, list("model"), map[int64]int{16: 3, 0: 1}[maxBytes])
				f := must(d.Open())
				require.Equal(t, 3, len(maps.Collect(f.Tensors())))
				require.Contains(t, maps.Collect(f.Tensors()), "x")
				require.NoError(t, f.Close())
			}
			require.NoError(t, d.Write(checkpoint("v", "w", "x"), nil, nil))
			require.Equal(t, other, list("consolidated"), "Write has the same rule")
			require.Len(t, list("model"), 3)

			model := list("model")
			for _, maxBytes := range []int64{16, 0} {
				err := writeStem(t, d, "consolidated", maxBytes, "a", "b", "c")
				require.ErrorContains(t, err, " has another model, model.safetensors.index.json: a reader of the folder would not open consolidated.safetensors")
				require.ErrorContains(t, writeStem(t, d, "adapter_model", maxBytes, "a", "b", "c"), "model.safetensors.index.json")
			}
			require.Equal(t, other, list("consolidated"))
			require.Equal(t, model, list("model"))
		})
	}
}

// TestSeveralStems: a save without the usual stem refuses a folder in which its index would be one of two, and replaces
// its own single file, which diffusers opens before the index.
func TestSeveralStems(t *testing.T) {
	to := folder{name: t.TempDir()}
	require.NoError(t, writeStem(t, to, "diffusion_pytorch_model", 0, "a", "b", "c"))
	require.NoError(t, writeStem(t, to, "diffusion_pytorch_model", 16, "a", "b", "c"))
	files := slices.Sorted(maps.Keys(must(to.Files("", false))))
	require.Len(t, files, 3)
	require.NotContains(t, files, "diffusion_pytorch_model.safetensors")

	for _, maxBytes := range []int64{16, 0} {
		require.ErrorContains(t, writeStem(t, to, "consolidated", maxBytes, "a", "b", "c"), "has another model, diffusion_pytorch_model.safetensors.index.json")
	}
	require.Equal(t, files, slices.Sorted(maps.Keys(must(to.Files("", false)))))
}

// TestSharedShards: a shard that the index of another checkpoint names stays, although its name is one of the new checkpoint.
func TestSharedShards(t *testing.T) {
	to := folder{name: t.TempDir()}
	require.NoError(t, writeStem(t, to, "model", 16, "a", "b", "c"))
	index := must(to.Read("model.safetensors.index.json", MostSmall))
	require.NoError(t, to.Put("consolidated.safetensors.index.json", index))
	before := must(to.Files("", false))
	for range 2 {
		require.NoError(t, writeStem(t, to, "model", 16, "d", "e", "f"))
		now := must(to.Files("", false))
		for _, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "consolidated.safetensors.index.json"} {
			require.Equal(t, before[name], now[name])
		}
		require.Len(t, now, 6)
	}
	require.NoError(t, to.Put("consolidated.safetensors.index.json", []byte("broken")))
	require.NoError(t, writeStem(t, to, "model", 0, "a"))
	require.NoError(t, must(safetensors.Open(to.name)).Close())
}

// TestStaleOfOtherStem: the record of a Set that was killed after its commit removes no file of its checkpoint when a
// checkpoint with another stem is written.
func TestStaleOfOtherStem(t *testing.T) {
	to := folder{name: t.TempDir()}
	require.NoError(t, writeStem(t, to, "consolidated", 16, "a", "b", "c"))
	require.NoError(t, to.Put(recordName, []byte(`{"New":{"consolidated-00001-of-00002.safetensors":-1,"consolidated-00002-of-00002.safetensors":-1,"stray.123456789-00001-of-00002.safetensors":-1}}`)))
	require.NoError(t, to.Put("stray.123456789-00001-of-00002.safetensors", []byte("x")))
	require.NoError(t, writeStem(t, to, "model", 0, "a"))
	require.Equal(t, []string{
		"consolidated-00001-of-00002.safetensors", "consolidated-00002-of-00002.safetensors", "consolidated.safetensors.index.json", "model.safetensors",
	}, slices.Sorted(maps.Keys(must(to.Files("", false)))))
}

// TestVariantsStay: the variants of a model are other checkpoints.
func TestVariantsStay(t *testing.T) {
	to := folder{name: t.TempDir()}
	write := func(shard, index string) error {
		s := &Set{Force: true, Index: index, Shards: map[string]Shard{shard: {Tensors: checkpoint("a")}}}
		return s.Write(to)
	}
	require.NoError(t, write("model.fp16-00001-of-00001.safetensors", "model.safetensors.index.fp16.json"))
	require.NoError(t, write("model-00001-of-00001.safetensors", "model.safetensors.index.json"))
	require.Len(t, must(to.Files("", false)), 4)
	require.ErrorContains(t, write("model.fp16-00001-of-00001.safetensors", "model.safetensors.index.fp16.json"), "has another model, model.safetensors.index.json")
}
