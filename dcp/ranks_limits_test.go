package dcp

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/rankfile"
	"github.com/gosafetensors/safetensors/internal/variant"
	"github.com/stretchr/testify/require"
)

// A test cannot reach the limits on files of ranks from zero, so each test starts just below one.

// emptyJob returns the rankJob of one rank, before its file is read.
func emptyJob() *rankJob {
	return &rankJob{
		meshes:  meshes{known: make(map[string]*mesh)},
		ranks:   []rank{{variant.Rank{File: "model_rank_0.pt"}, -1}, {variant.Rank{File: "model_rank_1.pt", Number: 1}, -1}},
		tensors: make(map[string]*divided),
		pieces:  maxPieces,
		bytes:   1 << 30,
	}
}

// shareOfBytes returns the share of a plain tensor with n bytes and dims dimensions.
func shareOfBytes(n, dims int) *share {
	shape := make([]int, dims)
	for i := range shape {
		shape[i] = 1
	}
	shape[0] = n
	x := must(safetensors.NewTensor(safetensors.U8, shape, make([]byte, n)))
	return &share{kind: plainTensor, dtype: safetensors.U8, size: shape, place: place{rank: -1}, pieces: []localPiece{{box{make([]int, dims), shape}, x}}}
}

// TestMaxPieces: the number of parts of all tensors in all files is limited. A part with many
// dimensions counts several times. Shards that a file lists count, too.
func TestMaxPieces(t *testing.T) {
	j := emptyJob()
	j.pieces = 4 + 2 // 4 for the first tensor, 2 for a second part of it
	require.NoError(t, j.add(0, "a", shareOfBytes(1, 1), nil))
	require.NoError(t, j.add(1, "a", shareOfBytes(1, 1), nil))
	require.ErrorContains(t, j.add(0, "b", shareOfBytes(1, 1), nil), `tensor "b": the tensors of the ranks have more than 524288 parts`)

	j = emptyJob()
	j.pieces = 4 + 64/4 - 1
	require.ErrorContains(t, j.add(0, "a", shareOfBytes(1, 64), nil), "more than 524288 parts")

	for dims, each := range map[int]int{1: 1, 3: 1, 4: 2, 12: 4} { // how often a shard counts, by its number of dimensions
		listed := shareOfBytes(1, dims)
		listed.listed = make([]box, 100)
		for left, refused := range map[int]bool{3 + each + 100*each: false, 2 + each + 100*each: true} {
			j = emptyJob()
			j.pieces = left
			err := j.add(0, "a", listed, nil)
			require.Equal(t, refused, err != nil, "%d dimensions, %d left", dims, left)
		}
	}
	require.EqualValues(t, 1<<19, maxPieces, "as SECURITY.md counts them")
}

// TestPieceBytes: the sizes of the files limit the bytes of all tensors in them together, even if
// all ranks have copies of the same tensors.
func TestPieceBytes(t *testing.T) {
	j := emptyJob()
	j.bytes = 150
	require.NoError(t, j.add(0, "a", shareOfBytes(100, 1), nil))
	require.ErrorContains(t, j.add(1, "a", shareOfBytes(100, 1), nil), `tensor "a": U8 [100] is too large for these files: their tensors repeat the same data too often`)
	require.EqualValues(t, 1<<30, rankfile.Most(1<<20))
	require.EqualValues(t, int64(1)<<32, rankfile.Most(1<<22))
}

// TestMaxMeshRanks: the number of ranks in all meshes and lists of shards is limited, at each place
// that reads them.
func TestMaxMeshRanks(t *testing.T) {
	two := must(safetensors.NewTensor(safetensors.I32, []int{2}, []int32{0, 1}))
	m := meshes{read: maxMeshRanks - 2}
	require.Equal(t, []int32{0, 1}, must(m.ranksOf(two)))
	require.ErrorContains(t, errorOf(m.ranksOf(two)), "the meshes of all tensors have too many ranks")

	object := func(class string, fields ...pickle.Entry) *pickle.Object {
		d := &pickle.Dict{}
		for _, e := range fields {
			require.NoError(t, d.Set(e.Key, e.Value))
		}
		return &pickle.Object{Class: pickle.Global{Module: torchModules + "x", Name: class}, State: d}
	}
	layout := object("_MeshLayout", pickle.Entry{Key: "shape", Value: pickle.Tuple{int64(2)}}, pickle.Entry{Key: "stride", Value: pickle.Tuple{int64(1)}})
	laid := object("DeviceMesh", pickle.Entry{Key: "_layout", Value: layout}, pickle.Entry{Key: "_rank_map", Value: "ranks"})
	file := &rankfile.File{Tensor: func(any) (safetensors.Tensor, error) { return two, nil }}
	for left, want := range map[int]string{3: "too many ranks", 4: ""} {
		m = meshes{read: maxMeshRanks - left}
		shape, ranks, err := m.laidOut(laid.State.(*pickle.Dict), &place{rank: 1, coordinate: []int{1}}, file)
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []int{2}, shape)
		require.Equal(t, []int32{0, 1}, ranks)
	}

	sharded := object("ShardedTensorMetadata", pickle.Entry{Key: "size", Value: pickle.Tuple{int64(1)}},
		pickle.Entry{Key: "shards_metadata", Value: &pickle.List{Items: []any{nil, nil}}})
	m = meshes{read: maxMeshRanks - 3}
	require.ErrorContains(t, m.readShards(&share{size: []int{1}}, sharded), "the lists of the shards of all tensors are too long")
	m.read = maxMeshRanks - 4
	require.ErrorContains(t, m.readShards(&share{size: []int{1}}, sharded), "a shard is")
}

// TestMaxMeshKept: equal meshes are kept once, and the number of ranks in all different meshes is
// limited.
func TestMaxMeshKept(t *testing.T) {
	m := meshes{known: make(map[string]*mesh), kept: maxMeshKept - 2}
	first := must(m.intern([]int{2}, []int32{0, 1}))
	require.Same(t, first, must(m.intern([]int{2}, []int32{0, 1})))
	require.ErrorContains(t, errorOf(m.intern([]int{1}, []int32{0})), "the meshes of all tensors have too many ranks")
}

// TestRankNameLength: the names of tensors in the files of ranks have the same limit as the names
// in a .metadata.
func TestRankNameLength(t *testing.T) {
	for _, n := range []int{maxName, maxName + 1} {
		name := "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(n))) + strings.Repeat("n", n)
		files := make(fstest.MapFS)
		for rank := range 2 {
			p := &rankPickle{}
			files[fmt.Sprintf("model_rank_%d.pt", rank)] = p.file(dict(name, p.floats(0, 3)))
		}
		_, err := OpenFS(files, ".")
		if n == maxName {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "a name of 1001 bytes, at most 1000 are read")
		}
	}
}
