package dcp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A placement describes how one dimension of a mesh divides a tensor.
type placement struct {
	dim    int // dimension of the tensor that is divided; -1 if each rank has the whole tensor
	before int // for a _StridedShard, the number of ranks of later dimensions that cut first; otherwise 0
}

func (p placement) String() string {
	switch {
	case p.dim < 0:
		return "Replicate()"
	case p.before > 0:
		return fmt.Sprintf("_StridedShard(%d, %d)", p.dim, p.before)
	}
	return fmt.Sprintf("Shard(%d)", p.dim)
}

// placementOf reads a placement for a tensor whose number of dimensions is rank.
func placementOf(v any, rank int) (p placement, err error) {
	o, ok := v.(*pickle.Object)
	if !ok {
		return p, fmt.Errorf("a placement is %s", pickle.Describe(v))
	}
	if !strings.HasPrefix(o.Class.Module, torchModules) {
		return p, fmt.Errorf("the placement is %s, a class that is not of PyTorch", pickle.Describe(v))
	}
	fields, _ := o.State.(*pickle.Dict)
	switch name := o.Class.Name; {
	case name == "Replicate":
		return placement{dim: -1}, nil
	case strings.Contains(name, "Partial"):
		return p, fmt.Errorf("its placement is %s: a sum over ranks is pending (partial); call redistribute before saving", name)
	case name != "Shard" && name != "_StridedShard" || fields == nil:
		return p, fmt.Errorf("the placement is %s, which is unknown", pickle.Describe(v))
	}
	dim, ok := field[int64](fields, "dim")
	if dim < 0 {
		dim += int64(rank)
	}
	if !ok || dim < 0 || dim >= int64(rank) {
		return p, fmt.Errorf("its placement %s has dim %d of a tensor of %d dimensions", o.Class.Name, dim, rank)
	}
	p.dim = int(dim)
	if o.Class.Name == "_StridedShard" {
		n, ok := field[int64](fields, "split_factor")
		if !ok || n < 1 || n > maxFiles {
			return p, fmt.Errorf("its placement _StridedShard(%d) has the split_factor %d", dim, n)
		}
		p.before = int(n)
	}
	return p, nil
}

// cutOrder returns the dimensions of a mesh that cut one dimension of a tensor, in the order in
// which they cut. They cut from left to right, except that a _StridedShard cuts after those later
// dimensions that together have as many ranks as its split factor.
func cutOrder(placements []placement, m *mesh, dim int) (order []int, err error) {
	for i := len(placements) - 1; i >= 0; i-- {
		p := placements[i]
		if p.dim != dim {
			continue
		}
		at, ranks := 0, 1
		for p.before > 0 && ranks < p.before && at < len(order) {
			ranks *= m.shape[order[at]]
			at++
		}
		if p.before > 0 && ranks != p.before {
			return nil, fmt.Errorf("no later dimensions of its mesh of %s have the %d ranks of the placement %v", shapetext.Of(m.shape), p.before, p)
		}
		order = slices.Insert(order, at, i)
	}
	return order, nil
}

// boxAt returns the part of a tensor that belongs to the rank at a coordinate of a mesh. Each
// dimension of the mesh cuts the part that the earlier cuts have left into chunks of equal size;
// the last chunk with elements may be shorter, and those after it are empty.
func boxAt(size []int, placements []placement, m *mesh, coordinate []int) (box, error) {
	b := box{make([]int, len(size)), slices.Clone(size)}
	for dim := range size {
		order, err := cutOrder(placements, m, dim)
		if err != nil {
			return b, err
		}
		for _, i := range order {
			left, n := b.end[dim]-b.begin[dim], m.shape[i]
			chunk := left / n
			if left%n > 0 {
				chunk++
			}
			from := left
			if chunk == 0 || coordinate[i] <= left/chunk {
				from = min(left, coordinate[i]*chunk)
			}
			b.begin[dim], b.end[dim] = b.begin[dim]+from, b.begin[dim]+from+min(chunk, left-from)
		}
	}
	return b, nil
}

// checkOrder returns an error if the placements do not cut in the order of the mesh's dimensions.
// old means that PyTorch up to 2.4 saved the tensor.
func checkOrder(fields *pickle.Dict, placements []placement, old bool) error {
	seen := make(map[int]bool)
	twice, strided := false, false
	for _, p := range placements {
		twice = twice || p.dim >= 0 && seen[p.dim]
		seen[p.dim] = true
		strided = strided || p.before > 0
	}
	if old && twice {
		return errors.New("two placements shard the same dim, as PyTorch up to 2.4 saved them: the file does not contain their order")
	}
	if encoded, ok := field[bool](fields, "use_strided_shard_as_shard_order"); ok && !encoded && strided {
		return errors.New("its placement _StridedShard stands for no order of shards (use_strided_shard_as_shard_order)")
	}
	v, _ := fields.Get("shard_order")
	if v == nil {
		return nil
	}
	entries, ok := items(v)
	for _, e := range entries {
		o, isObject := e.(*pickle.Object)
		if !isObject || len(o.Args) != 2 {
			ok = false
			break
		}
		dims, err := sizes(o.Args[1], maxMeshDims)
		ok = ok && err == nil && slices.IsSorted(dims)
	}
	if !ok {
		return errors.New("its shard_order is not that of the placements from left to right, which is not read")
	}
	return nil
}
