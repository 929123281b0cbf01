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
)

// Assemble joins the checkpoint from open files, wherever they come from: package
// remote, an object store, memory. Their order is that of the names in Open; errors
// call them file 1, file 2 and so on. Other than that, it does what Open does. The
// result owns the files: its Close closes them. After an error they stay open.
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

// join joins the tensors of files, which errors call name.
func join(files []*safetensors.File, name func(i int) string) (*safetensors.File, error) {
	pieces, err := piecesOf(files, name)
	if err != nil {
		return nil, err
	}
	tensors := make(map[string]safetensors.Tensor, len(pieces))
	for _, name := range slices.Sorted(maps.Keys(pieces)) { // the same error each time
		if tensors[name], err = joinTensor(name, pieces[name]); err != nil {
			return nil, err
		}
	}
	f, err := safetensors.FileOf(tensors, metadataOf(files), func() error { return closeAll(files) })
	return f, prefix.Strip(err)
}

// piecesOf returns the pieces of each tensor, file by file.
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

// newPiece returns the piece of a tensor that a file holds, which has these offsets.
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
func metadataOf(files []*safetensors.File) map[string]string {
	if len(files) == 0 {
		return nil
	}
	metadata := files[0].Metadata() // a copy
	delete(metadata, shardingKey)
	delete(metadata, versionKey)
	if len(metadata) == 0 {
		return nil
	}
	return metadata
}
