package dcp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/rankfile"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/torchtype"
)

// A share is the part of a tensor in one file, with the file's description of the whole tensor.
type share struct {
	kind   string // name of the class in PyTorch, or plainTensor
	dtype  safetensors.DType
	size   []int  // shape of the whole tensor
	layout string // description of the division, equal for all ranks: placements and the shape of the mesh
	listed []box  // parts of all ranks, if the file lists them, sorted; none of them is empty

	place  place // position of the rank in the mesh of a DTensor
	world  int   // number of ranks, or 0 if the file does not contain it
	pieces []localPiece
}

// A localPiece is a part of a tensor whose elements a file contains.
type localPiece struct {
	box
	tensor safetensors.Tensor
}

// shareOf reads an entry of a file. The error wraps errors.ErrUnsupported if safetensors cannot
// represent the tensor.
func (m *meshes) shareOf(e rankfile.Entry, file *rankfile.File) (s *share, err error) {
	if e.Why != nil {
		return nil, e.Why
	}
	if e.Part == nil {
		t, err := file.Tensor(e.Plain)
		if err != nil {
			return nil, err
		}
		all := box{make([]int, len(t.Shape())), t.Shape()}
		return &share{kind: plainTensor, dtype: t.DType(), size: t.Shape(), place: place{rank: -1}, pieces: []localPiece{{all, t}}}, nil
	}
	s = &share{place: place{rank: -1}}
	s.kind, _ = rankfile.IsPart(e.Part)
	whole, _ := e.Part.Args[2].(pickle.Tuple) // arguments of the constructor: class, dtype, size, and others
	if len(whole) < 3 {
		return nil, fmt.Errorf("a %s of %s", s.kind, pickle.Describe(e.Part.Args[2]))
	}
	dtype, ok := whole[1].(pickle.Global)
	if !ok || dtype.Module != "torch" {
		return nil, fmt.Errorf("a %s without a dtype", s.kind)
	}
	row, _ := torchtype.Of(dtype.Name)
	if s.dtype.UnmarshalText([]byte(row.Safetensors)) != nil {
		return nil, prefix.Unsupported{Err: fmt.Errorf("safetensors has no dtype for %v", dtype)}
	}
	if s.size, err = sizes(whole[2], maxRank); err != nil {
		return nil, fmt.Errorf("its size: %w", err)
	}
	if s.kind == "ShardedTensor" {
		return s, m.readSharded(s, e.Part.Args[3], file)
	}
	return s, m.readDTensor(s, e.Part, file)
}

const plainTensor = "plain tensor"

// readDTensor reads the state of a DTensor: the local tensor, the mesh and the placements.
func (m *meshes) readDTensor(s *share, o *pickle.Object, file *rankfile.File) (err error) {
	var state *pickle.Dict
	if slots, ok := o.Args[3].(pickle.Tuple); ok && len(slots) == 2 {
		state, _ = slots[1].(*pickle.Dict)
	}
	if state == nil {
		return fmt.Errorf("a DTensor whose state is %s", pickle.Describe(o.Args[3]))
	}
	v, _ := state.Get("_spec")
	spec, ok := torchFields(v, "DTensorSpec")
	if !ok {
		return fmt.Errorf("its _spec is %s", pickle.Describe(v))
	}
	v, _ = spec.Get("mesh")
	if s.place, err = m.cached(v, file); err != nil {
		return err
	}
	if s.place.coordinate == nil {
		s.place.mesh = nil
		return nil // a rank outside of the mesh has no meaningful part
	}
	v, _ = spec.Get("placements")
	list, ok := items(v)
	if !ok || len(list) != len(s.place.mesh.shape) {
		return fmt.Errorf("its placements, %s, are not one for each dimension of its mesh of %s", pickle.Describe(v), shapetext.Of(s.place.mesh.shape))
	}
	placements := make([]placement, len(list))
	for i, v := range list {
		if placements[i], err = placementOf(v, len(s.size)); err != nil {
			return err
		}
	}
	// distribute_tensor gives the first part to the first rank of the mesh, FSDP2 to the smallest rank.
	if !s.place.mesh.sorted && slices.ContainsFunc(placements, func(p placement) bool { return p.dim >= 0 }) {
		return errors.New("the ranks of its mesh do not ascend: the file does not contain the order in which they divide it")
	}
	class, _ := o.Args[1].(pickle.Global)
	if err := checkOrder(spec, placements, strings.HasPrefix(class.Module, torchModules+"_tensor")); err != nil {
		return err
	}
	s.layout = fmt.Sprintf("the placements %v on a mesh of %s", placements, shapetext.Of(s.place.mesh.shape))
	v, _ = state.Get("_local_tensor")
	b, err := boxAt(s.size, placements, s.place.mesh, s.place.coordinate)
	if err != nil {
		return err
	}
	return s.add(b, v, file)
}

// add adds the part of the tensor in box b. local is the pickled tensor that has its elements.
func (s *share) add(b box, local any, file *rankfile.File) error {
	t, err := file.Tensor(local)
	if err != nil {
		return fmt.Errorf("its local tensor: %w", err)
	}
	if b.empty() && t.DType() == s.dtype && t.Len() == 0 {
		return nil // after tensor parallelism has left [7 0] to a rank, FSDP2 makes [0 0] of it
	}
	if t.DType() != s.dtype || !slices.Equal(t.Shape(), b.sizes()) {
		return fmt.Errorf("its local tensor is %v, but %v of size %s is %v of shape %s", t, b, shapetext.Of(s.size), s.dtype, shapetext.Of(b.sizes()))
	}
	s.pieces = append(s.pieces, localPiece{b, t})
	return nil
}

// readSharded reads the state of a ShardedTensor: the local shards, the metadata with the shards of
// all ranks, and the number of the rank that saved it.
func (m *meshes) readSharded(s *share, v any, file *rankfile.File) error {
	state, ok := v.(pickle.Tuple)
	if !ok || len(state) < 3 {
		return fmt.Errorf("a ShardedTensor whose state is %s", pickle.Describe(v))
	}
	group, ok := state[2].(*pickle.Object)
	fields := &pickle.Dict{}
	if ok {
		fields, ok = group.State.(*pickle.Dict)
	}
	if !ok {
		return fmt.Errorf("its process group is %s", pickle.Describe(state[2]))
	}
	rank, ok1 := field[int64](fields, "global_rank")
	world, ok2 := field[int64](fields, "global_world_size")
	if !ok1 || !ok2 || rank < 0 || rank >= world || world > maxFiles {
		return fmt.Errorf("its process group has rank %d of %d, at most %d ranks are read", rank, world, maxFiles)
	}
	s.place.rank, s.world = int(rank), int(world)
	if err := m.readShards(s, state[1]); err != nil {
		return err
	}
	local, ok := items(state[0])
	if !ok {
		return fmt.Errorf("its local shards are %s", pickle.Describe(state[0]))
	}
	for _, v := range local {
		shard, ok := torchFields(v, "Shard")
		if !ok {
			return fmt.Errorf("a local shard is %s", pickle.Describe(v))
		}
		v, _ := shard.Get("metadata")
		b, err := s.shardBox(v)
		if err != nil {
			return err
		}
		if _, found := slices.BinarySearchFunc(s.listed, b, compareBoxes); !found && !b.empty() {
			return fmt.Errorf("its local shard %v is not among the shards that it lists", b)
		}
		v, _ = shard.Get("tensor")
		if err := s.add(b, v, file); err != nil {
			return err
		}
	}
	return nil
}

// readShards reads the metadata of a ShardedTensor, which lists the shards of all ranks.
func (m *meshes) readShards(s *share, v any) error {
	fields, ok := torchFields(v, "ShardedTensorMetadata")
	if !ok {
		return fmt.Errorf("its metadata is %s", pickle.Describe(v))
	}
	v, _ = fields.Get("size")
	if size, err := sizes(v, maxRank); err != nil || !slices.Equal(size, s.size) {
		return fmt.Errorf("its metadata has the size %s, it has %s", shapetext.Of(size), shapetext.Of(s.size))
	}
	v, _ = fields.Get("shards_metadata")
	list, ok := items(v)
	if !ok {
		return fmt.Errorf("its shards are %s", pickle.Describe(v))
	}
	if m.read += len(list) * (1 + len(s.size)); m.read > maxMeshRanks {
		return errors.New("the lists of the shards of all tensors are too long")
	}
	for _, v := range list {
		b, err := s.shardBox(v)
		if err != nil {
			return err
		}
		if !b.empty() {
			s.listed = append(s.listed, b)
		}
	}
	slices.SortFunc(s.listed, compareBoxes)
	for i := 1; i < len(s.listed); i++ {
		if s.listed[i].equal(s.listed[i-1]) {
			return fmt.Errorf("its metadata lists the shard %v twice", s.listed[i])
		}
	}
	return nil
}

// compareBoxes orders boxes by their begin, then by their end.
func compareBoxes(a, b box) int {
	if c := slices.Compare(a.begin, b.begin); c != 0 {
		return c
	}
	return slices.Compare(a.end, b.end)
}

// shardBox reads a ShardMetadata. The box must lie within the tensor.
func (s *share) shardBox(v any) (b box, err error) {
	fields, ok := torchFields(v, "ShardMetadata")
	if !ok {
		return b, fmt.Errorf("a shard is %s", pickle.Describe(v))
	}
	offsets, _ := fields.Get("shard_offsets")
	lengths, _ := fields.Get("shard_sizes")
	if b.begin, err = sizes(offsets, maxRank); err == nil {
		b.end, err = sizes(lengths, maxRank)
	}
	if err != nil {
		return b, fmt.Errorf("a shard: %w", err)
	}
	ok = len(b.begin) == len(s.size) && len(b.end) == len(s.size)
	for i := 0; ok && i < len(s.size); i++ {
		ok = b.begin[i] <= s.size[i] && b.end[i] <= s.size[i]-b.begin[i]
	}
	if !ok {
		return b, fmt.Errorf("a shard at %s of sizes %s in a tensor of size %s", shapetext.Of(b.begin), shapetext.Of(b.end), shapetext.Of(s.size))
	}
	for i := range b.end {
		b.end[i] += b.begin[i]
	}
	return b, nil
}
