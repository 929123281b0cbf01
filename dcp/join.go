package dcp

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// Assemble joins the checkpoint from open files of any origin: package remote, an object store,
// memory. Their order matters as the order of names does in Open. Errors call the files file 1,
// file 2 and so on. Apart from that, Assemble is like Open. The result owns the files: its Close
// closes them. After an error they stay open.
func Assemble(files ...*safetensors.File) (*safetensors.File, error) {
	err := checkCount(len(files))
	if i := slices.Index(files, nil); err == nil && i >= 0 {
		err = fmt.Errorf("file %d of %d is nil", i+1, len(files))
	}
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(join(files, func(i int) string { return fmt.Sprintf("file %d", i+1) }))
}

// join joins the tensors of files. name returns the name of a file for errors.
func join(files []*safetensors.File, name func(i int) string) (*safetensors.File, error) {
	pieces, err := piecesOf(files, name)
	if err != nil {
		return nil, err
	}
	tensors := make(map[string]safetensors.Tensor, len(pieces))
	for _, name := range slices.Sorted(maps.Keys(pieces)) { // sorted, so that the same checkpoint always gives the same error
		if tensors[name], err = joinTensor(name, pieces[name]); err != nil {
			return nil, err
		}
	}
	f, err := safetensors.FileOf(tensors, metadataOf(files), func() error { return closeAll(files) })
	return f, prefix.Strip(err)
}

// piecesOf returns the pieces of each tensor, in the order of the files.
func piecesOf(files []*safetensors.File, name func(i int) string) (map[string][]*piece, error) {
	offsets := make([]map[string][]int, len(files))
	err := parallel.Do(shardsAtOnce, int64(len(files)), func(i int64) (err error) {
		offsets[i], err = readOffsets(files[i], name(int(i)))
		return err
	})
	if err != nil {
		return nil, err
	}
	pieces := make(map[string][]*piece)
	for i, f := range files {
		file := name(i)
		for tensor, t := range f.Tensors() {
			p, err := newPiece(tensor, t, offsets[i], file)
			if err != nil {
				return nil, err
			}
			pieces[tensor] = append(pieces[tensor], p)
		}
	}
	return pieces, nil
}

// newPiece returns a file's piece of a tensor. offsets has the offsets of all tensors in the file.
// It is nil if the file has no sharding information, and so holds whole tensors.
func newPiece(name string, t safetensors.Tensor, offsets map[string][]int, file string) (*piece, error) {
	b := box{offsets[name], t.Shape()}
	switch rank := len(b.end); {
	case rank > maxRank:
		return nil, broken(name, "its rank in %s, %d, exceeds the limit of %d", file, rank, maxRank)
	case offsets == nil:
		b.begin = make([]int, rank)
	case b.begin == nil:
		return nil, broken(name, "%s of %s has no offsets for it", shardingKey, file)
	}
	for i, n := range b.end {
		if b.begin[i] > math.MaxInt-n {
			return nil, broken(name, "offset %d plus size %d in dimension %d of %s overflows", b.begin[i], n, i, file)
		}
		b.end[i] += b.begin[i]
	}
	return &piece{b, b, t, file}, nil
}

// joinTensor returns a tensor joined from at least one piece. Its shape is the smallest one that
// contains all pieces.
func joinTensor(name string, pieces []*piece) (safetensors.Tensor, error) {
	first := pieces[0]
	shape := make([]int, len(first.end))
	for _, p := range pieces {
		if p.tensor.DType() != first.tensor.DType() || len(p.end) != len(shape) {
			return safetensors.Tensor{}, broken(name, "%v is %v, %v is %v", p, p.tensor, first, first.tensor)
		}
		for k, n := range p.end {
			shape[k] = max(shape[k], n)
		}
	}
	return tile(name, first.tensor.DType(), shape, distinct(pieces))
}

// distinct returns the pieces that have elements, sorted. If several ranks have saved the same box,
// it returns only the piece in the first file.
func distinct(pieces []*piece) []*piece {
	pieces = slices.DeleteFunc(pieces, func(p *piece) bool { return p.empty() })
	slices.SortStableFunc(pieces, func(a, b *piece) int {
		return cmp.Or(slices.Compare(a.begin, b.begin), slices.Compare(a.end, b.end))
	})
	return slices.CompactFunc(pieces, func(a, b *piece) bool { return a.equal(b.box) })
}

// metadataOf returns the metadata of the first file, without the keys of DCP, or nil if nothing is
// left.
func metadataOf(files []*safetensors.File) map[string]string {
	if len(files) == 0 {
		return nil
	}
	return variant.WithoutSharding(files[0].Metadata())
}
