package dcp

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A Piece is a part of a tensor: the elements of a box of indices. It is an immutable value that
// refers to its elements. The zero Piece is invalid: writing it is an error.
type Piece struct {
	tensor  safetensors.Tensor
	offsets []int // index of its first element in the whole tensor, one for each dimension
	whole   []int // shape of the smallest tensor that contains the piece
}

// NewPiece returns the piece of a tensor that consists of the elements of t. The offsets are the
// indices of its first element in the whole tensor, one for each dimension. Without offsets, all
// are zero. A negative offset, a wrong number of offsets, a rank above 64 and the zero Tensor are
// errors.
func NewPiece(t safetensors.Tensor, offsets ...int) (Piece, error) {
	p, err := pieceAt(t, offsets)
	if err != nil {
		return Piece{}, prefix.Add(fmt.Errorf("a piece of %v: %w", t, err))
	}
	return p, nil
}

func pieceAt(t safetensors.Tensor, offsets []int) (Piece, error) {
	shape := t.Shape()
	if len(offsets) == 0 {
		offsets = make([]int, len(shape))
	}
	switch {
	case t.DType() == 0:
		return Piece{}, errors.New("the zero Tensor has no dtype and no data")
	case len(shape) > maxRank:
		return Piece{}, fmt.Errorf("rank %d exceeds the limit of %d", len(shape), maxRank)
	case len(offsets) != len(shape):
		return Piece{}, fmt.Errorf("%d offsets for rank %d", len(offsets), len(shape))
	}
	p := Piece{t, slices.Clone(offsets), slices.Clone(shape)}
	for i, n := range offsets {
		if n < 0 || n > math.MaxInt-shape[i] {
			return Piece{}, fmt.Errorf("offset %d in dimension %d is out of range", n, i)
		}
		p.whole[i] += n
	}
	return p, nil
}

// Shard returns the i-th of n shards of p along dimension dim, where 0 ≤ i < n. It divides p as the
// placement Shard(dim) of a PyTorch DTensor does for n ranks: shards have the size ⌈size/n⌉, and
// the last ones are smaller or empty. ([safetensors.Tensor.Part], in contrast, requires equal
// parts.) Shard reads nothing. For a mesh of ranks, call it once for each dimension of the mesh,
// outermost first. In dtypes below a byte, each row of a shard must fill whole bytes.
func (p Piece) Shard(dim, i, n int) (Piece, error) {
	s, err := p.shard(dim, i, n)
	if err != nil {
		return Piece{}, prefix.Add(fmt.Errorf("shard %d of %d along dimension %d of %v: %w", i, n, dim, p.tensor, err))
	}
	return s, nil
}

func (p Piece) shard(dim, i, n int) (Piece, error) {
	shape := p.tensor.Shape()
	switch {
	case dim < 0 || dim >= len(shape):
		return Piece{}, fmt.Errorf("it has rank %d", len(shape))
	case n < 1 || i < 0 || i >= n:
		return Piece{}, errors.New("there is no such shard")
	}
	size := shape[dim]
	chunk := max(1, (size-1)/n+1)
	begin := size
	if i <= size/chunk {
		begin = i * chunk
	}
	end := begin + min(chunk, size-begin)
	ranges := make([]safetensors.Range, dim+1) // the zero Range is All()
	ranges[dim] = safetensors.Span(begin, end)
	t, err := p.tensor.Slice(ranges...)
	if err != nil {
		return Piece{}, prefix.Strip(err)
	}
	offsets := slices.Clone(p.offsets)
	if offsets[dim] += begin; begin == end {
		// An empty shard starts at the end, as in PyTorch. Elsewhere it might start at the same
		// offsets as another piece, and PyTorch finds pieces by their offsets.
		offsets[dim] = p.whole[dim]
	}
	return Piece{t, offsets, p.whole}, nil
}

// FileName returns the name that PyTorch gives the file of a rank, counted from 0:
// shard-00001-model-00001-of-00001.safetensors for rank 0. The name does not depend on the number
// of ranks: its last two numbers refer to the files into which PyTorch would consolidate the
// shards.
func FileName(rank int) string {
	return fmt.Sprintf("shard-%05d-model-00001-of-00001%s", rank+1, suffix)
}

// WriteFile writes the pieces of one rank, by tensor name, to a file. It writes atomically and
// durably, as [safetensors.WriteFile] does. Name the file FileName(rank), in a directory that holds
// no other checkpoint: PyTorch and Open take every *.safetensors file in it for a part of this one.
// The directory must exist.
//
// Ranks may write concurrently. A piece that several ranks hold may be written by all of them, or
// by one. Together the pieces must fill the tensor; Open checks that.
//
// WriteFile adds the offsets of the pieces to the metadata, as PyTorch does, and replaces the keys
// of DCP. Errors are those of [safetensors.WriteFile].
func WriteFile(name string, pieces map[string]Piece, metadata map[string]string) error {
	tensors, metadata := fileOf(pieces, metadata)
	return safetensors.WriteFile(name, tensors, metadata)
}

// Write writes to w the same bytes that WriteFile writes to a file. Errors are those of
// [safetensors.Write].
func Write(w io.Writer, pieces map[string]Piece, metadata map[string]string) error {
	tensors, metadata := fileOf(pieces, metadata)
	return safetensors.Write(w, tensors, metadata)
}

// fileOf returns the tensors and the metadata of the file that holds pieces.
func fileOf(pieces map[string]Piece, metadata map[string]string) (map[string]safetensors.Tensor, map[string]string) {
	tensors := make(map[string]safetensors.Tensor, len(pieces))
	offsets := make(map[string][]int, len(pieces))
	for name, p := range pieces {
		tensors[name], offsets[name] = p.tensor, p.offsets
	}
	all := map[string]string{formatKey: format}
	maps.Copy(all, metadata)
	all[shardingKey], all[versionKey] = encodeOffsets(offsets), version
	return tensors, all
}
