package dcp

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// join joins the tensors of files, whose offsets have been read.
func join(shards []shard) (*safetensors.File, error) {
	pieces, err := piecesOf(shards)
	if err != nil {
		return nil, err
	}
	whole := &wholeFile{shards: shards}
	header := &safetensors.Header{Metadata: metadataOf(shards)}
	for _, name := range slices.Sorted(maps.Keys(pieces)) { // the same error each time
		info, r, err := joinTensor(name, pieces[name])
		if err != nil {
			return nil, err
		}
		header.Tensors = append(header.Tensors, info)
		whole.tensors = append(whole.tensors, storedTensor{name: name, region: r})
	}
	return whole.open(header)
}

// piecesOf returns the pieces of each tensor, file by file, and drops the offsets.
func piecesOf(shards []shard) (map[string][]piece, error) {
	pieces := make(map[string][]piece)
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
func newPiece(name string, t safetensors.Tensor, s *shard) (piece, error) {
	shape := t.Shape()
	p := piece{box{make([]int, len(shape)), make([]int, len(shape))}, t, s}
	if s.offsets != nil {
		p.begin = s.offsets[name]
	}
	for i, n := range shape {
		if p.begin[i] > math.MaxInt-n {
			return p, broken(name, "offset %d plus size %d in dimension %d of %s overflows", p.begin[i], n, i, s.name)
		}
		p.end[i] = p.begin[i] + n
	}
	return p, nil
}

// joinTensor returns a tensor joined from its pieces, at least one. Its shape is the
// least that has them all. The region is nil if the tensor has no elements.
func joinTensor(name string, pieces []piece) (safetensors.TensorInfo, *region, error) {
	first := &pieces[0]
	info := safetensors.TensorInfo{Name: name, DType: first.tensor.DType(), Shape: make([]int, len(first.end))}
	all := box{make([]int, len(first.end)), info.Shape}
	for i := range pieces {
		p := &pieces[i]
		if p.tensor.DType() != info.DType || len(p.end) != len(info.Shape) {
			return info, nil, broken(name, "%v is %v, %v is %v", p, p.tensor, first, first.tensor)
		}
		for k, n := range p.end {
			info.Shape[k] = max(info.Shape[k], n)
		}
	}
	if all.empty() {
		return info, nil, nil
	}
	r, err := tile(name, all, distinct(pieces))
	if err != nil {
		return info, nil, err
	}
	return info, &r, nil
}

// distinct returns the pieces that hold elements, one of each box: ranks may hold
// the same one.
func distinct(pieces []piece) []piece {
	pieces = slices.DeleteFunc(pieces, func(p piece) bool { return p.empty() })
	slices.SortStableFunc(pieces, func(a, b piece) int {
		return cmp.Or(slices.Compare(a.begin, b.begin), slices.Compare(a.end, b.end))
	})
	return slices.CompactFunc(pieces, func(a, b piece) bool { return a.equal(b.box) })
}

// metadataOf returns the metadata of the first file, without what it says about its
// pieces.
func metadataOf(shards []shard) map[string]string {
	if len(shards) == 0 {
		return nil
	}
	metadata := maps.Clone(shards[0].file.Metadata())
	delete(metadata, shardingKey)
	delete(metadata, versionKey)
	if len(metadata) == 0 {
		return nil
	}
	return metadata
}
