package dcp

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// A Piece is a part of a tensor: the elements of a box of indices. The zero Piece is
// invalid.
type Piece struct {
	tensor  safetensors.Tensor
	offsets []int // of its first element in the whole tensor, one for each dimension
	whole   []int // the shape of the least tensor that has the piece
}

// NewPiece returns the piece of a tensor whose elements are t, and whose first element
// has these indices in the whole tensor, one for each dimension. Without offsets it is
// the whole tensor, or its start.
func NewPiece(t safetensors.Tensor, offsets ...int) (Piece, error) {
	p, err := pieceAt(t, offsets)
	if err != nil {
		return Piece{}, prefixed(fmt.Errorf("a piece of %v: %w", t, err))
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

// Part returns the i-th of n parts of p along dimension dim, 0 ≤ i < n, as the
// placement Shard(dim) of a PyTorch DTensor deals it out to n ranks: all parts have
// the size ⌈size/n⌉ but the last ones, which are smaller or empty. It reads nothing.
// Calls for the dimensions of a mesh, outermost first, cut a piece further.
func (p Piece) Part(dim, i, n int) (Piece, error) {
	part, err := p.part(dim, i, n)
	if err != nil {
		return Piece{}, prefixed(fmt.Errorf("part %d of %d along dimension %d of %v: %w", i, n, dim, p.tensor, err))
	}
	return part, nil
}

func (p Piece) part(dim, i, n int) (Piece, error) {
	shape := p.tensor.Shape()
	switch {
	case dim < 0 || dim >= len(shape):
		return Piece{}, fmt.Errorf("it has rank %d", len(shape))
	case n < 1 || i < 0 || i >= n:
		return Piece{}, errors.New("there is no such part")
	}
	size := shape[dim]
	chunk := size / n
	if size%n > 0 {
		chunk++
	}
	begin := size
	if chunk == 0 || i <= size/chunk {
		begin = i * chunk
	}
	end := begin + min(chunk, size-begin)
	ranges := make([]safetensors.Range, dim+1) // the zero Range is All()
	ranges[dim] = safetensors.Span(begin, end)
	t, err := p.tensor.Slice(ranges...)
	if err != nil {
		return Piece{}, bare(err)
	}
	offsets := slices.Clone(p.offsets)
	if offsets[dim] += begin; begin == end {
		// As PyTorch has it. Elsewhere it might start where another piece does, and
		// PyTorch finds pieces by their offsets.
		offsets[dim] = p.whole[dim]
	}
	return Piece{t, offsets, p.whole}, nil
}

// FileName returns the name of the file of a rank, 0 or above, in the folder of a
// checkpoint, as PyTorch gives it: shard-00001-model-00001-of-00001.safetensors for
// rank 0. The number of ranks is not in it: the last two numbers are those of the
// files that PyTorch would consolidate the shards into.
func FileName(rank int) string {
	return fmt.Sprintf("shard-%05d-model-00001-of-00001%s", rank+1, suffix)
}

// WriteFile writes the pieces of one rank to a file, atomically and durably, as
// [safetensors.WriteFile] does. To be part of a checkpoint, the file has the name
// FileName(rank) in a folder without other files of that kind: PyTorch and Open take
// every *.safetensors file in it for a part of the checkpoint.
//
// Ranks write side by side. A tensor that several ranks hold may be written by all
// of them, or by one. Together the pieces must fill the tensor; that is found out
// when the checkpoint is opened.
//
// The metadata says where the pieces belong, as PyTorch writes it. Keys in metadata
// are added; those of DCP are replaced. Errors are those of [safetensors.WriteFile].
func WriteFile(name string, pieces map[string]Piece, metadata map[string]string) error {
	tensors, metadata := fileOf(pieces, metadata)
	return safetensors.WriteFile(name, tensors, metadata)
}

// Write writes the file that WriteFile writes to w, an object store for example.
func Write(w io.Writer, pieces map[string]Piece, metadata map[string]string) error {
	tensors, metadata := fileOf(pieces, metadata)
	return safetensors.Write(w, tensors, metadata)
}

// fileOf returns the tensors and the metadata of a file.
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
