package dcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestWriteAsTorch writes the pieces of each file of the golden checkpoint. The results equal the
// files that PyTorch wrote.
func TestWriteAsTorch(t *testing.T) {
	var spec spec
	require.NoError(t, json.Unmarshal(must(os.ReadFile("testdata/mesh.json")), &spec))
	whole := loaded(wholeFile)
	for rank := range 4 {
		requireWritten(t, filepath.Join(meshDir, FileName(rank)), spec.rank(whole, rank))
	}
}

// requireWritten checks that Write makes the same file as PyTorch for the same pieces, except for
// the order of the keys in the metadata. all holds the pieces of the rank. PyTorch lets other ranks
// save some of them.
func requireWritten(t *testing.T, name string, all pieces) {
	t.Helper()
	want := must(os.ReadFile(name))
	header := must(safetensors.ReadHeader(bytes.NewReader(want)))
	of := make(pieces)
	for _, info := range header.Tensors {
		of[info.Name] = all[info.Name]
	}
	got := written(of)
	require.Equal(t, header, must(safetensors.ReadHeader(bytes.NewReader(got))))
	require.Equal(t, want[header.DataStart:], got[header.DataStart:])
}

// TestShard: Shard divides a dimension as torch.chunk does, which PyTorch's Shard uses.
func TestShard(t *testing.T) {
	for _, c := range []struct {
		size, ranks int
		begins      []int // offsets at which the shards begin, then the size
	}{
		{6, 3, []int{0, 2, 4, 6}},
		{5, 3, []int{0, 2, 4, 5}},
		{4, 3, []int{0, 2, 4, 4}},
		{7, 4, []int{0, 2, 4, 6, 7}},
		{9, 4, []int{0, 3, 6, 9, 9}},
		{1, 4, []int{0, 1, 1, 1, 1}},
		{0, 2, []int{0, 0, 0}},
		{3, 1, []int{0, 3}},
		{2, 6, []int{0, 1, 2, 2, 2, 2, 2}},
	} {
		x := random(rand.New(rand.NewPCG(1, 1)), safetensors.U8, 2, c.size)
		for i := range c.ranks {
			p := must(must(NewPiece(x)).Shard(1, i, c.ranks))
			require.Equal(t, []int{0, c.begins[i]}, p.offsets, c)
			requireSame(t, must(x.Slice(safetensors.All(), safetensors.Span(c.begins[i], c.begins[i+1]))), p.tensor)
		}
	}
	x := random(rand.New(rand.NewPCG(1, 2)), safetensors.U8, 7)
	empty := must(safetensors.NewTensor(safetensors.U8, []int{0, math.MaxInt}, []byte{}))
	given := must(NewPiece(x, 10))
	for _, c := range []struct {
		rule           string
		p              Piece
		shape, offsets []int
	}{
		{"a mesh cuts further", must(must(must(NewPiece(x)).Shard(0, 1, 2)).Shard(0, 1, 2)), []int{1}, []int{6}},
		{"an empty one is at the end of the tensor", must(must(must(NewPiece(x)).Shard(0, 0, 4)).Shard(0, 2, 3)), []int{0}, []int{7}},
		{"with offsets, too", must(given.Shard(0, 7, 8)), []int{0}, []int{17}},
		{"no overflow", must(must(NewPiece(empty)).Shard(1, math.MaxInt-1, math.MaxInt)), []int{0, 1}, []int{0, math.MaxInt - 1}},
		{"no overflow", must(must(NewPiece(empty)).Shard(1, math.MaxInt-2, math.MaxInt-1)), []int{0, 0}, []int{0, math.MaxInt}},
		{"offsets add up", must(given.Shard(0, 5, 7)), []int{1}, []int{15}},
		{"what is cut stays as it is", given, []int{7}, []int{10}},
	} {
		require.Equal(t, c.shape, c.p.tensor.Shape(), c.rule)
		require.Equal(t, c.offsets, c.p.offsets, c.rule)
	}
}

// TestPieceErrors checks the error for each rule. None of them is a FormatError, because no file is
// at fault.
func TestPieceErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	x, bits := random(rng, safetensors.U8, 2, 3), random(rng, safetensors.F4, 2, 2)
	deep := must(safetensors.NewTensor(safetensors.U8, make([]int, 65), []byte{}))
	p := must(NewPiece(x))
	for want, err := range map[string]error{
		"a piece of U8 [2,3]: 1 offsets for rank 2":                                                                               errorOf(NewPiece(x, 0)),
		"a piece of U8 [2,3]: 3 offsets for rank 2":                                                                               errorOf(NewPiece(x, 0, 0, 0)),
		"a piece of U8 [2,3]: offset -1 in dimension 1 is out of range":                                                           errorOf(NewPiece(x, 0, -1)),
		fmt.Sprintf("a piece of U8 [2,3]: offset %d in dimension 0 is out of range", math.MaxInt-1):                               errorOf(NewPiece(x, math.MaxInt-1, 0)),
		fmt.Sprintf("a piece of %v: rank 65 exceeds the limit of 64", deep):                                                       errorOf(NewPiece(deep)),
		fmt.Sprintf("a piece of %v: the zero Tensor has no dtype and no data", safetensors.Tensor{}):                              errorOf(NewPiece(safetensors.Tensor{})),
		"shard 0 of 1 along dimension 2 of U8 [2,3]: it has rank 2":                                                               errorOf(p.Shard(2, 0, 1)),
		"shard 0 of 1 along dimension -1 of U8 [2,3]: it has rank 2":                                                              errorOf(p.Shard(-1, 0, 1)),
		"shard 2 of 2 along dimension 0 of U8 [2,3]: there is no such shard":                                                      errorOf(p.Shard(0, 2, 2)),
		"shard -1 of 2 along dimension 0 of U8 [2,3]: there is no such shard":                                                     errorOf(p.Shard(0, -1, 2)),
		"shard 0 of 0 along dimension 0 of U8 [2,3]: there is no such shard":                                                      errorOf(p.Shard(0, 0, 0)),
		"shard 0 of 2 along dimension 1 of F4 [2,2]: slicing F4 [2,2]: runs of 1 element of 4 bits do not end on a byte boundary": errorOf(must(NewPiece(bits)).Shard(1, 0, 2)),
	} {
		require.EqualError(t, err, "safetensors: "+want)
		require.False(t, errors.As(err, new(*safetensors.FormatError)))
	}
	require.Error(t, errorOf(Piece{}.Shard(0, 0, 1)))
}

// TestWriteErrors checks that a failed write leaves no file behind.
func TestWriteErrors(t *testing.T) {
	x := random(rand.New(rand.NewPCG(1, 4)), safetensors.U8, 2, 3)
	name := filepath.Join(t.TempDir(), FileName(0))
	require.Error(t, WriteFile(name, pieces{"x": {}}, nil), "the zero Piece")
	require.Error(t, WriteFile(name, pieces{"__metadata__": must(NewPiece(x))}, nil))
	require.NoFileExists(t, name)
	fails := errors.New("disk full")
	require.ErrorIs(t, Write(failingWriter{fails}, pieces{"x": must(NewPiece(x))}, nil), fails)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestMetadata: the metadata of a program is added to the keys of DCP, which replace keys that
// describe other pieces.
func TestMetadata(t *testing.T) {
	x := random(rand.New(rand.NewPCG(1, 5)), safetensors.U8, 4)
	given := map[string]string{"step": "7", shardingKey: "of another file"}
	name := filepath.Join(t.TempDir(), FileName(11))
	require.NoError(t, WriteFile(name, pieces{"x": must(NewPiece(x, 0)), "a\x7fé<": must(NewPiece(x))}, given))
	require.Equal(t, "shard-00012-model-00001-of-00001.safetensors", filepath.Base(name))
	onDisk := must(os.ReadFile(name))
	var b bytes.Buffer
	require.NoError(t, Write(&b, pieces{"x": must(NewPiece(x, 0)), "a\x7fé<": must(NewPiece(x))}, given))
	require.Equal(t, onDisk, b.Bytes(), "Write and WriteFile agree")
	require.Equal(t, map[string]string{"step": "7", shardingKey: "of another file"}, given, "it was not modified")
	f := must(safetensors.Load(name))
	require.Equal(t, map[string]string{
		"step":        "7",
		"format":      "pt",
		"DCP_VERSION": "1.0",
		shardingKey:   `{"a\u007f\u00e9<": {"saved_offsets": [0]}, "x": {"saved_offsets": [0]}}`,
	}, f.Metadata())
	whole := must(Open(filepath.Dir(name)))
	defer whole.Close()
	require.Equal(t, map[string]string{"step": "7", "format": "pt"}, whole.Metadata())
}
