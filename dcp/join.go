package dcp

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// Assemble joins the checkpoint from open files, wherever they come from: package
// remote, an object store, memory. Their order is that of the names in Open; errors
// call them file 1, file 2 and so on. Other than that, it does what Open does. The
// result owns the files: its Close closes them. After an error they stay open.
func Assemble(files ...*safetensors.File) (*safetensors.File, error) {
	if err := checkCount(len(files)); err != nil {
		return nil, prefix.Add(err)
	}
	shards := make([]shard, len(files))
	for i, f := range files {
		if f == nil {
			return nil, prefix.Add(fmt.Errorf("file %d of %d is nil", i+1, len(files)))
		}
		shards[i] = shard{name: fmt.Sprintf("file %d", i+1), file: f}
		if err := shards[i].readOffsets(); err != nil {
			return nil, prefix.Add(err)
		}
	}
	f, err := join(shards)
	return f, prefix.Add(err)
}

// join joins the tensors of files, whose offsets have been read.
func join(shards []shard) (*safetensors.File, error) {
	pieces, err := piecesOf(shards)
	if err != nil {
		return nil, err
	}
	tensors := make(map[string]safetensors.Tensor, len(pieces))
	for _, name := range slices.Sorted(maps.Keys(pieces)) { // the same error each time
		if tensors[name], err = joinTensor(name, pieces[name]); err != nil {
			return nil, err
		}
	}
	f, err := safetensors.FileOf(tensors, metadataOf(shards), func() error { return closeAll(shards) })
	return f, prefix.Strip(err)
}

// piecesOf returns the pieces of each tensor, file by file, and drops the offsets.
func piecesOf(shards []shard) (map[string][]*piece, error) {
	pieces := make(map[string][]*piece)
	for i := range shards {
		for name, t := range shards[i].file.Tensors() {
			p, err := newPiece(name, t, &shards[i])
			if err != nil {
				return nil, err
			}
			pieces[name] = append(pieces[name], p)
		}
		shards[i].offsets = nil
	}
	return pieces, nil
}

// newPiece returns the piece of a tensor that a file holds.
func newPiece(name string, t safetensors.Tensor, s *shard) (*piece, error) {
	b := box{s.offsets[name], t.Shape()}
	switch rank := len(b.end); {
	case rank > maxRank:
		return nil, broken(name, "its rank in %s, %d, exceeds the limit of %d", s.name, rank, maxRank)
	case s.offsets == nil:
		b.begin = make([]int, rank)
	case b.begin == nil:
		return nil, broken(name, "%s of %s has no offsets for it", shardingKey, s.name)
	}
	for i, n := range b.end {
		if b.begin[i] > math.MaxInt-n {
			return nil, broken(name, "offset %d plus size %d in dimension %d of %s overflows", b.begin[i], n, i, s.name)
		}
		b.end[i] += b.begin[i]
	}
	return &piece{b, b, t, s.name}, nil
}

// joinTensor returns a tensor joined from its pieces, at least one. Its shape is the
// least that has them all.
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

// distinct returns the pieces that hold elements, one of each box: ranks may hold
// the same one.
func distinct(pieces []*piece) []*piece {
	pieces = slices.DeleteFunc(pieces, func(p *piece) bool { return p.empty() })
	slices.SortStableFunc(pieces, func(a, b *piece) int {
		return cmp.Or(slices.Compare(a.begin, b.begin), slices.Compare(a.end, b.end))
	})
	return slices.CompactFunc(pieces, func(a, b *piece) bool { return a.equal(b.box) })
}

// metadataOf returns the metadata of the first file, without what it says about its
// pieces.
func metadataOf(shards []shard) map[string]string {
	if len(shards) == 0 {
		return nil
	}
	metadata := shards[0].file.Metadata() // a copy
	delete(metadata, shardingKey)
	delete(metadata, versionKey)
	if len(metadata) == 0 {
		return nil
	}
	return metadata
}
