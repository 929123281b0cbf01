package dcp

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// conjugated returns a pickled tensor of two float32 elements, with the bit that PyTorch sets for a
// lazy conj.
func conjugated(p *rankPickle) string {
	return strings.TrimSuffix(p.floats(0, 2), "tR") + dict(str("conj"), "\x88") + "tR"
}

// TestReservedName: Skip is called for a tensor with the name that the format reserves, in both
// kinds of checkpoints. Without Skip, such a tensor is an error.
func TestReservedName(t *testing.T) {
	offset, length := entryOfOne()
	one := tensorOf("float32", []int{3}, boxOf([]int{0}, []int{3}))
	dir := folderOf(t, metadata(dict(str("__metadata__"), one), dict(index("__metadata__", 0), info("x", offset, length))))
	c := must(openSkipping(os.DirFS(dir), "."))
	defer c.Close()
	require.EqualError(t, c.refused["__metadata__"], "this name is reserved for the metadata of safetensors")
	require.Zero(t, c.Len())
	require.ErrorAs(t, errorOf(Open(dir)), new(*safetensors.FormatError))

	p := &rankPickle{}
	ranks := fstest.MapFS{"model_rank_0.pt": p.file(dict(str("__metadata__"), p.floats(0, 2), str("x"), p.floats(0, 4)))}
	c = must(openSkipping(ranks, "."))
	require.EqualError(t, c.refused["__metadata__"], "this name is reserved for the metadata of safetensors")
	requireFloats(t, c, "x", 4)
	require.ErrorIs(t, errorOf(OpenFS(ranks, ".")), errors.ErrUnsupported)
}

// TestObjectsNotRead: the reason does not claim that an object of a .metadata has no tensors, since it was
// not read.
func TestObjectsNotRead(t *testing.T) {
	var reasons []error
	f := must(Opener{Skip: func(_ string, why error) { reasons = append(reasons, why) }}.Open(filepath.Join("testdata", "distcp", "one")))
	defer f.Close()
	require.Len(t, reasons, 1)
	require.EqualError(t, reasons[0], "it is a Python object, which was not read")
}

// TestBitOfLocalTensor: the error for a tensor whose elements PyTorch would change names the bit, even if the
// tensor is the local part of a DTensor, or a chunk.
func TestBitOfLocalTensor(t *testing.T) {
	const want = `the tensor has the bit "conj", which changes its elements; call resolve_conj and resolve_neg before saving it`
	p := &rankPickle{}
	part := dtensor{
		size: tuple(num(2)), local: conjugated(p), placements: list(shard(0)), mesh: deviceMesh{ranks: p.ints([]int{1}, 0), coordinate: list(num(0))}.String(),
	}.String()
	c := must(openRankFiles(p.file(dict(str("x"), part, str("y"), p.floats(0, 2)))))
	require.ErrorContains(t, c.refused["x"], want)
	requireFloats(t, c, "y", 2)

	p = &rankPickle{}
	saved := p.file(conjugated(p)).Data
	dir := folderOf(t, metadata(dict(str("w"), tensorOf("float32", []int{2}, boxOf([]int{0}, []int{2}))), dict(index("w", 0), info("y", 0, len(saved)))))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "y"), saved, 0o666))
	c = must(openSkipping(os.DirFS(dir), "."))
	defer c.Close()
	err := errorOf(safetensors.Append[float32](nil, must(c.Tensor("w"))))
	require.ErrorContains(t, err, `byte 0 of "y": torch._utils._rebuild_tensor_v2: `+want)
	require.NotContains(t, err.Error(), "Opener.Skip", "which is not asked when a tensor is read")
}

// TestKeyAdvice: an error about an entry beside the dict of the model advises to select that dict. An error
// about the model itself does not.
func TestKeyAdvice(t *testing.T) {
	open := func(key string, model, rng [2]int) error {
		folder := make(fstest.MapFS)
		for rank := range 2 {
			p := &rankPickle{}
			folder[[]string{"model_rank_0.pt", "model_rank_1.pt"}[rank]] = p.file(dict(str("model"), dict(str("x"), p.floats(model[rank], 4)), str("rng"), p.floats(rng[rank], 3+rng[rank])))
		}
		return errorOf(Opener{Key: key}.OpenFS(folder, "."))
	}
	require.EqualError(t, open("", [2]int{}, [2]int{0, 1}), `safetensors: open .: "model_rank_1.pt": tensor "rng": its shape differs: [4] here, [3] elsewhere; rank 0 ("model_rank_0.pt") is the first that has it; a key selects one of "model"`)
	require.NoError(t, open("model", [2]int{}, [2]int{0, 1}))
	require.NoError(t, open("", [2]int{}, [2]int{}))
	const differs = `it differs between the ranks that have it: piece [0:4] in "model_rank_0.pt" is not equal to that in "model_rank_1.pt"`
	require.EqualError(t, open("", [2]int{0, 1}, [2]int{}), `safetensors: open .: tensor "model.x": `+differs)
	require.EqualError(t, open("model", [2]int{0, 1}, [2]int{0, 1}), `safetensors: open .: tensor "x": `+differs)
}

// TestNumberedFiles: files that ranks may have saved, but of several series, are not called files of ranks: the
// error wraps fs.ErrNotExist, so that package checkpoint takes them as files of their own. Names that contain the
// number of ranks are recognized.
func TestNumberedFiles(t *testing.T) {
	p := &rankPickle{}
	file := p.file(dict(str("x"), p.floats(0, 2)))
	err := errorOf(OpenFS(fstest.MapFS{"hf_model_0001_0.pt": file, "hf_model_0002_0.pt": file}, "."))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, `several series of numbered files: "hf_model_0001", "hf_model_0002"`)
	require.NotErrorIs(t, errorOf(OpenFS(fstest.MapFS{"a_rank_0.pt": file, "b_rank_0.pt": file}, ".")), fs.ErrNotExist)

	require.NoError(t, errorOf(OpenFS(fstest.MapFS{"c_rank_0_of_2.pt": file, "c_rank_1_of_2.pt": file}, ".")))
	require.ErrorContains(t, errorOf(OpenFS(fstest.MapFS{"c_rank_0_of_3.pt": file, "c_rank_1_of_3.pt": file}, ".")), "the file of rank 2 is missing: there are files of 2 of the 3 ranks")
}
