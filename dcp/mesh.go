package dcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/rankfile"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A mesh is an array, of 1 to maxMeshDims dimensions, of the ranks between which a tensor is
// divided.
type mesh struct {
	shape  []int
	ranks  []int32 // in row-major order
	sorted bool    // whether the ranks ascend along each dimension
}

const (
	// maxMeshDims is the largest number of dimensions of a mesh. Jobs use up to five: data,
	// pipeline, context, tensor and expert parallelism.
	maxMeshDims = 8

	// maxMeshRanks limits the number of ranks that all meshes of a folder list, and so the time to
	// read them. maxMeshKept limits that number for the meshes that differ, and so the memory.
	maxMeshRanks = 1 << 28
	maxMeshKept  = 1 << 24
)

// A place is the position of a rank in a mesh.
type place struct {
	mesh       *mesh
	rank       int   // number of the rank; -1 if it is unknown
	coordinate []int // nil if the rank is not in the mesh
}

// A meshes reads the meshes in all files. Equal meshes share one *mesh.
type meshes struct {
	known      map[string]*mesh
	job        []int32                  // the longest list of ranks from which a mesh was cut: the ranks of the job
	places     map[*pickle.Object]place // places by the DeviceMesh in the current file
	read, kept int                      // number of ranks in all meshes that were read, and in the meshes of known
}

// cached returns the place of the rank that saved a DeviceMesh. It caches places, because many
// tensors refer to the same DeviceMesh.
func (m *meshes) cached(v any, file *rankfile.File) (p place, err error) {
	o, _ := v.(*pickle.Object)
	p, known := m.places[o]
	if known {
		return p, nil
	}
	if p, err = m.placeOf(v, file); err == nil {
		m.places[o] = p
	}
	return p, err
}

// placeOf returns the place of the rank that saved a DeviceMesh.
func (m *meshes) placeOf(v any, file *rankfile.File) (p place, err error) {
	fields, ok := torchFields(v, "DeviceMesh")
	if !ok {
		return p, fmt.Errorf("its mesh is %s", pickle.Describe(v))
	}
	if p.coordinate, err = coordinateOf(fields); err != nil {
		return p, err
	}
	p.rank = -1
	if n, ok := field[int64](fields, "_rank"); ok && n >= 0 && n < maxFiles {
		p.rank = int(n)
	}
	var shape []int
	var ranks []int32
	whole, has := fields.Get("mesh") // PyTorch up to 2.9 saves the ranks of the mesh
	switch {
	case has:
		shape, ranks, err = m.explicit(whole, file)
	case p.coordinate == nil:
		return p, nil // the rank's part has no meaning, and the start of the mesh is unknown
	default:
		shape, ranks, err = m.laidOut(fields, &p, file)
	}
	if err != nil {
		return p, fmt.Errorf("its mesh: %w", err)
	}
	if p.mesh, err = m.intern(shape, ranks); err != nil {
		return p, err
	}
	return p, p.check()
}

// check checks that the rank is at its coordinate in the mesh. If the number of the rank is
// unknown, check sets it.
func (p *place) check() error {
	if p.coordinate == nil {
		if p.rank >= 0 && slices.Contains(p.mesh.ranks, int32(p.rank)) {
			return fmt.Errorf("rank %d is in its mesh, but has no place there", p.rank)
		}
		return nil
	}
	if len(p.coordinate) != len(p.mesh.shape) {
		return fmt.Errorf("the place of the rank in its mesh has %d dimensions, the mesh %d", len(p.coordinate), len(p.mesh.shape))
	}
	at := 0
	for i, c := range p.coordinate {
		if c >= p.mesh.shape[i] {
			return fmt.Errorf("the place of the rank, %s, lies outside of its mesh of %s", shapetext.Of(p.coordinate), shapetext.Of(p.mesh.shape))
		}
		at = at*p.mesh.shape[i] + c
	}
	rank := int(p.mesh.ranks[at])
	if p.rank >= 0 && p.rank != rank {
		return fmt.Errorf("it is of rank %d, but its mesh has rank %d at its place", p.rank, rank)
	}
	p.rank = rank
	return nil
}

// coordinateOf returns the coordinate of the rank in its mesh, or nil if the rank is not in the
// mesh.
func coordinateOf(fields *pickle.Dict) ([]int, error) {
	v, _ := fields.Get("_coordinate_on_dim")
	if v == nil {
		return nil, nil
	}
	c, err := sizes(v, maxMeshDims)
	if err != nil {
		return nil, fmt.Errorf("the place of the rank in its mesh: %w", err)
	}
	return c, nil
}

// explicit reads a mesh that is stored as a tensor of ranks.
func (m *meshes) explicit(v any, file *rankfile.File) (shape []int, ranks []int32, err error) {
	t, err := file.Tensor(v)
	if err != nil {
		return nil, nil, err
	}
	if shape = t.Shape(); len(shape) > maxMeshDims {
		return nil, nil, fmt.Errorf("%d dimensions, at most %d are read", len(shape), maxMeshDims)
	}
	ranks, err = m.ranksOf(t)
	return shape, ranks, err
}

// ranksOf returns the elements of a tensor of ranks.
func (m *meshes) ranksOf(t safetensors.Tensor) ([]int32, error) {
	n := t.Len()
	if t.DType() != safetensors.I32 && t.DType() != safetensors.I64 || n > maxFiles {
		return nil, fmt.Errorf("expected at most %[2]d ranks, found %[1]v", t, maxFiles)
	}
	if m.read += n; m.read > maxMeshRanks {
		return nil, errors.New("the meshes of all tensors have too many ranks")
	}
	if t.DType() == safetensors.I32 {
		return safetensors.Append[int32](nil, t)
	}
	wide, err := safetensors.Append[int64](nil, t)
	ranks := make([]int32, len(wide))
	for i, r := range wide {
		if ranks[i] = int32(r); int64(ranks[i]) != r {
			return nil, fmt.Errorf("expected the number of a rank, found %d", r)
		}
	}
	return ranks, err
}

// intern checks a mesh, and returns a *mesh that all equal meshes share. ranks has an element for each
// index of the shape.
func (m *meshes) intern(shape []int, ranks []int32) (*mesh, error) {
	n := len(ranks)
	if n == 0 || len(shape) == 0 {
		return nil, fmt.Errorf("a mesh of shape %s with %d ranks", shapetext.Of(shape), n)
	}
	key := binary.AppendUvarint(nil, uint64(len(shape)))
	for _, size := range shape {
		key = binary.AppendUvarint(key, uint64(size))
	}
	for _, r := range ranks {
		key = binary.AppendVarint(key, int64(r))
	}
	if known := m.known[string(key)]; known != nil {
		return known, nil
	}
	sorted := slices.Sorted(slices.Values(ranks))
	if sorted[0] < 0 || sorted[n-1] >= maxFiles || len(slices.Compact(sorted)) < n {
		return nil, fmt.Errorf("a mesh with a rank twice, or one beyond 0 to %d", maxFiles-1)
	}
	if m.kept += n; m.kept > maxMeshKept {
		return nil, errors.New("the meshes of all tensors have too many ranks")
	}
	made := &mesh{shape, ranks, ascend(ranks, shape)}
	m.known[string(key)] = made
	return made, nil
}

// ascend reports whether the ranks of a mesh with this shape ascend along each dimension.
func ascend(ranks []int32, shape []int) bool {
	step := 1
	for dim := len(shape) - 1; dim >= 0; dim-- {
		for i, r := range ranks {
			if i/step%shape[dim] > 0 && r < ranks[i-step] {
				return false
			}
		}
		step *= shape[dim]
	}
	return true
}
