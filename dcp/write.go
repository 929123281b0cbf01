package dcp

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// A Piece is a part of a tensor: the elements of a box of indices. The piece of a
// whole tensor is Piece{Tensor: t}.
type Piece struct {
	Tensor  safetensors.Tensor
	Offsets []int // of its first element in the whole tensor, one for each dimension; nil if all are 0

	whole []int // the shape of the whole tensor, if Shard made the piece
}

// Shard returns the i-th of n parts of p along dimension dim, 0 ≤ i < n, as the
// placement Shard(dim) of a PyTorch DTensor deals it out to n ranks: all parts have
// the size ⌈size/n⌉ but the last ones, which are smaller or empty. It reads nothing.
// Calls for the dimensions of a mesh, outermost first, cut a piece further.
func (p Piece) Shard(dim, i, n int) (Piece, error) {
	part, err := p.shard(dim, i, n)
	if err != nil {
		return Piece{}, prefixed(fmt.Errorf("shard %d of %d along dimension %d of %v: %w", i, n, dim, p.Tensor, err))
	}
	return part, nil
}

func (p Piece) shard(dim, i, n int) (Piece, error) {
	offsets, err := p.offsets()
	shape := p.Tensor.Shape()
	switch {
	case err != nil:
		return Piece{}, err
	case dim < 0 || dim >= len(shape):
		return Piece{}, fmt.Errorf("it has rank %d", len(shape))
	case n < 1 || i < 0 || i >= n:
		return Piece{}, fmt.Errorf("there is no such shard")
	}
	whole := p.whole
	if whole == nil {
		whole = slices.Clone(shape)
		for k := range whole {
			whole[k] += offsets[k]
		}
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
	t, err := p.Tensor.Slice(ranges...)
	if err != nil {
		return Piece{}, bare(err)
	}
	if offsets[dim] += begin; begin == end {
		// As PyTorch has it. Elsewhere it might start where another piece does, and
		// PyTorch finds pieces by their offsets.
		offsets[dim] = whole[dim]
	}
	return Piece{t, offsets, whole}, nil
}

// offsets returns a copy of the offsets of p, and an error if they do not fit its
// tensor.
func (p Piece) offsets() ([]int, error) {
	shape := p.Tensor.Shape()
	if p.Offsets == nil {
		return make([]int, len(shape)), nil
	}
	if len(p.Offsets) != len(shape) {
		return nil, fmt.Errorf("%d offsets, %v has rank %d", len(p.Offsets), p.Tensor, len(shape))
	}
	for i, n := range p.Offsets {
		if n < 0 || n > math.MaxInt-shape[i] {
			return nil, fmt.Errorf("offset %d in dimension %d of %v is out of range", n, i, p.Tensor)
		}
	}
	return slices.Clone(p.Offsets), nil
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
// are added; those of DCP are replaced. Offsets that do not fit their tensor are a
// *[safetensors.FormatError]; other errors are those of [safetensors.WriteFile].
func WriteFile(name string, pieces map[string]Piece, metadata map[string]string) error {
	tensors, metadata, err := fileOf(pieces, metadata)
	if err != nil {
		return prefixed(err)
	}
	return safetensors.WriteFile(name, tensors, metadata)
}

// Write writes the file that WriteFile writes to w, an object store for example.
func Write(w io.Writer, pieces map[string]Piece, metadata map[string]string) error {
	tensors, metadata, err := fileOf(pieces, metadata)
	if err != nil {
		return prefixed(err)
	}
	return safetensors.Write(w, tensors, metadata)
}

// fileOf returns the tensors and the metadata of a file.
func fileOf(pieces map[string]Piece, metadata map[string]string) (map[string]safetensors.Tensor, map[string]string, error) {
	tensors := make(map[string]safetensors.Tensor, len(pieces))
	offsets := make(map[string][]int, len(pieces))
	for name, p := range pieces {
		var err error
		if offsets[name], err = p.offsets(); err != nil {
			return nil, nil, broken(name, "%v", err)
		}
		tensors[name] = p.Tensor
	}
	all := map[string]string{formatKey: format}
	maps.Copy(all, metadata)
	all[shardingKey], all[versionKey] = encodeOffsets(offsets), version
	return tensors, all, nil
}
