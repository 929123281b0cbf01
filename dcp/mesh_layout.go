package dcp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/rankfile"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// laidOut reads a mesh of PyTorch 2.10 or later, which may have been cut from a larger mesh. Its
// layout selects some ranks from the list _rank_map, relative to a base index that follows from the
// place of this rank.
func (m *meshes) laidOut(fields *pickle.Dict, p *place, file *rankfile.File) (shape []int, ranks []int32, err error) {
	var strides []int
	layout, _ := fields.Get("_layout")
	if shape, strides, err = layoutOf(layout); err != nil {
		return nil, nil, err
	}
	rankMap, _ := fields.Get("_rank_map")
	t, err := file.Tensor(rankMap)
	if err != nil {
		return nil, nil, err
	}
	all, err := m.ranksOf(t)
	if err != nil {
		return nil, nil, err
	}
	if len(all) > len(m.job) {
		m.job = all
	}
	offsets, err := offsetsIn(shape, strides, len(all))
	if err != nil {
		return nil, nil, err
	}
	if m.read += len(offsets); m.read > maxMeshRanks {
		return nil, nil, errors.New("the meshes of all tensors have too many ranks")
	}
	if p.rank < 0 {
		if p.rank, err = m.rootRank(fields, all); err != nil {
			return nil, nil, err
		}
	}
	base, err := baseOf(p, shape, strides, all)
	if err != nil {
		return nil, nil, err
	}
	ranks = make([]int32, len(offsets))
	for i, off := range offsets {
		if base+off >= len(all) {
			return nil, nil, fmt.Errorf("it has shape %s and strides %s in a job of %d ranks", shapetext.Of(shape), shapetext.Of(strides), len(all))
		}
		ranks[i] = all[base+off]
	}
	return shape, ranks, nil
}

// rootRank returns the number of the rank, which follows from its coordinate in the mesh from which
// this mesh was cut, or in this mesh if it was not cut.
func (m *meshes) rootRank(fields *pickle.Dict, all []int32) (int, error) {
	root := fields
	if v, _ := fields.Get("_root_mesh"); v != nil {
		var ok bool
		if root, ok = torchFields(v, "DeviceMesh"); !ok {
			return -1, fmt.Errorf("it was cut from %s", pickle.Describe(v))
		}
	}
	coordinate, err := coordinateOf(root)
	if err != nil {
		return -1, err
	}
	layout, _ := root.Get("_layout")
	shape, strides, err := layoutOf(layout)
	if err != nil {
		return -1, err
	}
	at, ok := indexOf(coordinate, shape, strides)
	if !ok || at >= len(all) {
		return -1, fmt.Errorf("the place of the rank, %s, lies outside of a mesh of %s", shapetext.Of(coordinate), shapetext.Of(shape))
	}
	return int(all[at]), nil
}

// baseOf returns the index in the list of all ranks at which a mesh begins.
func baseOf(p *place, shape, strides []int, all []int32) (int, error) {
	at, ok := indexOf(p.coordinate, shape, strides)
	index := slices.Index(all, int32(p.rank))
	if !ok || index < at {
		return 0, fmt.Errorf("the place of rank %d, %s, lies outside of its mesh of %s", p.rank, shapetext.Of(p.coordinate), shapetext.Of(shape))
	}
	return index - at, nil
}

// indexOf returns the index, relative to the start of a mesh, that a coordinate has in a list of
// ranks. ok is false if the coordinate is outside of the mesh.
func indexOf(coordinate, shape, strides []int) (at int, ok bool) {
	if len(coordinate) != len(shape) {
		return 0, false
	}
	for i, c := range coordinate {
		if c >= shape[i] {
			return 0, false
		}
		at += c * strides[i]
	}
	return at, true
}

// layoutOf returns the shape and the strides of a mesh. A layout has either the fields shape and
// stride, each of which is an integer or a tuple, or the field axes, which is a list of such
// layouts, one for each dimension. The stride of a dimension with one rank has no meaning.
func layoutOf(v any) (shape, strides []int, err error) {
	fields, ok := torchFields(v, "_MeshLayout")
	if !ok {
		return nil, nil, fmt.Errorf("its layout is %s", pickle.Describe(v))
	}
	axes, has := fields.Get("axes")
	if !has { // PyTorch 2.10 to 2.14 saves a single shape and its strides
		if shape, strides, err = axisOf(fields); err != nil {
			return nil, nil, err
		}
		return shape, strides, checkLayout(shape, strides)
	}
	list, ok := items(axes)
	if !ok || len(list) > maxMeshDims {
		return nil, nil, fmt.Errorf("its axes are %s", pickle.Describe(axes))
	}
	for _, axis := range list {
		fields, ok := torchFields(axis, "_FlatLayout")
		if !ok {
			return nil, nil, fmt.Errorf("an axis is %s", pickle.Describe(axis))
		}
		n, stride, err := axisOf(fields)
		switch {
		case err != nil:
			return nil, nil, err
		case len(n) > 1:
			return nil, nil, fmt.Errorf("an axis of a mesh that was flattened, of shape %s and strides %s, is not read", shapetext.Of(n), shapetext.Of(stride))
		case len(n) == 0: // a dimension of one rank
			n, stride = []int{1}, []int{0}
		}
		shape, strides = append(shape, n...), append(strides, stride...)
	}
	return shape, strides, checkLayout(shape, strides)
}

// axisOf returns the shape and the strides of a layout, each of which is an integer or a tuple.
func axisOf(fields *pickle.Dict) (shape, strides []int, err error) {
	for name, to := range map[string]*[]int{"shape": &shape, "stride": &strides} {
		v, _ := fields.Get(name)
		if n, ok := v.(int64); ok {
			v = pickle.Tuple{n}
		}
		if *to, err = sizes(v, maxMeshDims); err != nil {
			return nil, nil, fmt.Errorf("the %s of its layout: %w", name, err)
		}
	}
	return shape, strides, nil
}

// checkLayout checks the shape and the strides of a mesh. It sets the strides of dimensions with
// one rank to 0.
func checkLayout(shape, strides []int) error {
	if len(shape) != len(strides) || len(shape) > maxMeshDims {
		return fmt.Errorf("%d strides for %d dimensions", len(strides), len(shape))
	}
	n := 1
	for i, size := range shape {
		if size == 0 || size > maxFiles/n || size > 1 && strides[i] > maxFiles {
			return fmt.Errorf("a mesh of shape %s, strides %s: at most %d ranks are read", shapetext.Of(shape), shapetext.Of(strides), maxFiles)
		}
		n *= size
		if size == 1 {
			strides[i] = 0
		}
	}
	return nil
}

// offsetsIn returns the indices, relative to the first, that a layout selects from a list of n
// ranks.
func offsetsIn(shape, strides []int, n int) ([]int, error) {
	offsets := []int{0}
	for i, size := range shape {
		next := make([]int, 0, len(offsets)*size)
		for _, off := range offsets {
			for k := range size {
				next = append(next, off+k*strides[i])
			}
		}
		offsets = next
	}
	if last := offsets[len(offsets)-1]; last >= n {
		return nil, fmt.Errorf("it has shape %s and strides %s in a job of %d ranks", shapetext.Of(shape), shapetext.Of(strides), n)
	}
	return offsets, nil
}
