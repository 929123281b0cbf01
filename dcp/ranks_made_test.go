package dcp

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A rankPickle makes the file of one rank, as torch.save writes it. Its methods return parts of the
// pickle, and keep the storages of tensors.
type rankPickle struct{ storages [][]byte }

// stored returns a pickled tensor with this shape, whose storage has this class and data.
func (p *rankPickle) stored(class string, elements int, data []byte, shape ...int) string {
	strides, step := make([]int, len(shape)), 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i], step = step, step*shape[i]
	}
	key := str(fmt.Sprint(len(p.storages)))
	p.storages = append(p.storages, data)
	storage := "(" + str("storage") + "ctorch\n" + class + "\n" + key + str("cpu") + num(elements) + "tQ"
	return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + num(0) + tuple(nums(shape)...) + tuple(nums(strides)...) + "\x89}tR"
}

// floats returns a pickled float32 tensor with the elements first, first+1 and so on.
func (p *rankPickle) floats(first int, shape ...int) string {
	n := 1
	for _, size := range shape {
		n *= size
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(first + i)
	}
	return p.stored("FloatStorage", n, must(binary.Append(nil, binary.LittleEndian, values)), shape...)
}

// ints returns a pickled int64 tensor, and ints32 a pickled int32 tensor.
func (p *rankPickle) ints(shape []int, values ...int64) string {
	return p.stored("LongStorage", len(values), must(binary.Append(nil, binary.LittleEndian, values)), shape...)
}

func (p *rankPickle) ints32(shape []int, values ...int32) string {
	return p.stored("IntStorage", len(values), must(binary.Append(nil, binary.LittleEndian, values)), shape...)
}

// file returns a file of torch.save whose pickle holds this object.
func (p *rankPickle) file(object string) *fstest.MapFile {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	add := func(name string, data []byte) {
		must(must(w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})).Write(data))
	}
	add("a/data.pkl", []byte("\x80\x04"+object+"."))
	for i, data := range p.storages {
		add(fmt.Sprint("a/data/", i), data)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return &fstest.MapFile{Data: b.Bytes()}
}

// tuple and nums write parts of pickles, as dict, list, str and num do.
func tuple(items ...string) string { return "(" + strings.Join(items, "") + "t" }

func nums(values []int) (items []string) {
	for _, n := range values {
		items = append(items, num(n))
	}
	return items
}

// partOf returns a rank's part of a float32 tensor. class is, for example,
// "torch.distributed.tensor\nDTensor".
func partOf(class, size, state string) string {
	return "ctorch._tensor\n_rebuild_from_type_v2\n" +
		tuple("ctorch._utils\n_rebuild_wrapper_subclass\n", "c"+class+"\n", tuple("c"+class+"\n", "ctorch\nfloat32\n", size), state) + "R"
}

// A dtensor describes a rank's part of a DTensor. Its fields are parts of the pickle.
type dtensor struct {
	class      string // default: the class of PyTorch 2.5 and later
	size       string
	local      string
	mesh       string
	placements string
	spec       []string // additional fields of the DTensorSpec
}

func (d dtensor) String() string {
	if d.class == "" {
		d.class = "torch.distributed.tensor\nDTensor"
	}
	spec := append([]string{str("mesh"), d.mesh, str("placements"), d.placements}, d.spec...)
	return partOf(d.class, d.size, tuple("N", dict(str("_local_tensor"), d.local, str("_spec"), obj("DTensorSpec", dict(spec...)))))
}

// shard, strided and replicate are placements.
func shard(dim int) string { return obj("Shard", dict(str("dim"), num(dim))) }
func strided(dim, factor int) string {
	return obj("_StridedShard", dict(str("dim"), num(dim), str("split_factor"), num(factor)))
}

const replicate = "ctorch.distributed.tensor.placement_types\nReplicate\n)\x81"

// A deviceMesh describes a DeviceMesh as PyTorch 2.14 and later save it, or, if ranks is not "", as
// PyTorch up to 2.9 did.
type deviceMesh struct {
	layout, rankMap string
	ranks           string
	coordinate      string
	more            []string
}

func (m deviceMesh) String() string {
	fields := []string{str("_layout"), m.layout, str("_rank_map"), cmp.Or(m.rankMap, "N")}
	if m.ranks != "" {
		fields = []string{str("mesh"), m.ranks}
	}
	fields = append(fields, str("_coordinate_on_dim"), m.coordinate)
	return obj("DeviceMesh", dict(append(fields, m.more...)...))
}

// flatLayout returns a layout of the form that PyTorch 2.10 to 2.14 saves.
func flatLayout(shape, stride string) string {
	return obj("_MeshLayout", dict(str("shape"), shape, str("stride"), stride))
}

// axes returns a layout of a later form, with a shape and a stride for each dimension.
func axes(layouts ...string) string { return obj("_MeshLayout", dict(str("axes"), tuple(layouts...))) }

func axis(shape, stride string) string {
	return obj("_FlatLayout", dict(str("shape"), shape, str("stride"), stride))
}

// openRankFiles opens a directory with these files, in the order of the ranks. The names of the
// files do not contain the number of ranks.
func openRankFiles(files ...*fstest.MapFile) (*held, error) {
	folder := make(fstest.MapFS)
	for i, file := range files {
		folder[fmt.Sprintf("model_rank_%d.pt", i)] = file
	}
	return openSkipping(folder, ".")
}

// requireRefused requires that opening the files fails with a FormatError that contains this text.
func requireRefused(t *testing.T, want string, files ...*fstest.MapFile) {
	t.Helper()
	folder := make(fstest.MapFS)
	for i, file := range files {
		folder[fmt.Sprintf("model_rank_%d.pt", i)] = file
	}
	fsys := &counted{FS: folder}
	_, err := openSkipping(fsys, ".")
	require.ErrorContains(t, err, want)
	require.ErrorAs(t, err, new(*safetensors.FormatError))
	require.Zero(t, fsys.open.Load(), "files that stay open")
}

// requireFloats requires that a tensor has this shape and the elements 0, 1, 2 and so on.
func requireFloats(t *testing.T, c *held, name string, shape ...int) {
	t.Helper()
	n := 1
	for _, size := range shape {
		n *= size
	}
	want := make([]float32, n)
	for i := range want {
		want[i] = float32(i)
	}
	require.Equal(t, want, must(safetensors.Elements[float32](c.File, name, shape...)))
}

// TestShardedStates changes the state of the ShardedTensor of each of two ranks, of which each has
// two of four elements.
func TestShardedStates(t *testing.T) {
	shardOf := func(begin, n string) string {
		return obj("ShardMetadata", dict(str("shard_offsets"), list(begin), str("shard_sizes"), list(n)))
	}
	const class = "torch.distributed._shard.sharded_tensor.api\nShardedTensor"
	type state struct{ size, local, listed, group string }
	open := func(change func(rank int, p *rankPickle, s *state)) (*held, error) {
		files := make([]*fstest.MapFile, 2)
		for rank := range files {
			p := &rankPickle{}
			s := state{
				size:   tuple(num(4)),
				local:  list(obj("Shard", dict(str("tensor"), p.floats(2*rank, 2), str("metadata"), shardOf(num(2*rank), num(2))))),
				listed: obj("ShardedTensorMetadata", dict(str("size"), tuple(num(4)), str("shards_metadata"), list(shardOf(num(2), num(2)), shardOf(num(0), num(2))))),
				group:  obj("ProcessGroupState", dict(str("global_rank"), num(rank), str("global_world_size"), num(2))),
			}
			change(rank, p, &s)
			files[rank] = p.file(dict(str("x"), partOf(class, s.size, tuple(s.local, s.listed, s.group))))
		}
		return openRankFiles(files...)
	}
	requireFloats(t, must(open(func(int, *rankPickle, *state) {})), "x", 4)

	listed := func(size string, shards ...string) string {
		return obj("ShardedTensorMetadata", dict(str("size"), size, str("shards_metadata"), list(shards...)))
	}
	group := func(rank, world int) string {
		return obj("ProcessGroupState", dict(str("global_rank"), num(rank), str("global_world_size"), num(world)))
	}
	half, other := shardOf(num(0), num(2)), shardOf(num(2), num(2))
	for want, change := range map[string]func(p *rankPickle, s *state){
		"its local shards are a dict with 0 entries": func(_ *rankPickle, s *state) { s.local = "}" },
		"a local shard is an int":                    func(_ *rankPickle, s *state) { s.local = list(num(1)) },
		"a shard is an int":                          func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(4)), num(1)) },
		"its process group is an int":                func(_ *rankPickle, s *state) { s.group = num(1) },
		"its process group is an object of":          func(_ *rankPickle, s *state) { s.group = obj("Group", tuple()) },
		"its process group has rank -1 of 2":         func(_ *rankPickle, s *state) { s.group = group(-1, 2) },
		"its process group has rank 2 of 2":          func(_ *rankPickle, s *state) { s.group = group(2, 2) },
		"its process group has rank 0 of 0":          func(_ *rankPickle, s *state) { s.group = obj("Group", dict(str("global_rank"), num(0))) },
		"its process group has rank 0 of 2":          func(_ *rankPickle, s *state) { s.group = obj("Group", dict(str("global_world_size"), num(2))) },
		"it is of a job of 2 ranks, another tensor or the name of the file of one of 10000": func(_ *rankPickle, s *state) { s.group = group(0, maxFiles) },
		"a shard is a string": func(p *rankPickle, s *state) {
			s.local = list(obj("Shard", dict(str("tensor"), p.floats(0, 2), str("metadata"), str("x"))))
		},
		"its process group has rank 0 of 10001":     func(_ *rankPickle, s *state) { s.group = group(0, maxFiles+1) },
		"its metadata is an int":                    func(_ *rankPickle, s *state) { s.listed = num(1) },
		"its metadata has the size [5], it has [4]": func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(5)), half, other) },
		"its shards are an int": func(_ *rankPickle, s *state) {
			s.listed = obj("ShardedTensorMetadata", dict(str("size"), tuple(num(4)), str("shards_metadata"), num(1)))
		},
		"its metadata lists the shard [0:2] twice":                    func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(4)), half, other, half) },
		"its local shard [0:2] is not among the shards that it lists": func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(4)), other) },
		"a shard at [3] of sizes [2] in a tensor of size [4]":         func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(4)), half, shardOf(num(3), num(2))) },
		"a shard at [5] of sizes [0] in a tensor of size [4]":         func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(4)), half, shardOf(num(5), num(0))) },
		"a shard at [] of sizes [2] in a tensor of size [4]":          func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(4)), half, shardOf("", num(2))) },
		"a shard at [0] of sizes [] in a tensor of size [4]":          func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(4)), half, shardOf(num(0), "")) },
		"a shard: -1 is negative":                                     func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(4)), half, shardOf(num(-1), num(2))) },
		"a shard: -2 is negative":                                     func(_ *rankPickle, s *state) { s.listed = listed(tuple(num(4)), half, shardOf(num(0), num(-2))) },
		"its size: -4 is negative":                                    func(_ *rankPickle, s *state) { s.size = tuple(num(-4)) },
		"its local tensor: expected a tensor, found an int": func(_ *rankPickle, s *state) {
			s.local = list(obj("Shard", dict(str("tensor"), num(1), str("metadata"), half)))
		},
		"its local tensor is F32 [3], but [0:2] of size [4] is F32 of shape [2]": func(p *rankPickle, s *state) {
			s.local = list(obj("Shard", dict(str("tensor"), p.floats(0, 3), str("metadata"), half)))
		},
		"its local tensor is I64 [2], but [0:2] of size [4] is F32 of shape [2]": func(p *rankPickle, s *state) {
			s.local = list(obj("Shard", dict(str("tensor"), p.ints([]int{2}, 0, 1), str("metadata"), half)))
		},
	} {
		t.Run(want, func(t *testing.T) {
			_, err := open(func(rank int, p *rankPickle, s *state) {
				if rank == 0 {
					change(p, s)
				}
			})
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, `tensor "x": `)
			require.ErrorAs(t, err, new(*safetensors.FormatError))
		})
	}

	// The process groups give the numbers of the ranks, and how many there were. The names of the files do not.
	_, err := open(func(rank int, _ *rankPickle, s *state) { s.group = group(2*rank, 3) })
	require.ErrorContains(t, err, "the file of rank 1 is missing: there are files of 2 of the 3 ranks")
	_, err = open(func(_ int, _ *rankPickle, s *state) { s.group = group(1, 2) })
	require.ErrorContains(t, err, `"model_rank_0.pt" and "model_rank_1.pt" are both of rank 1`)

	// A shard may be empty, even at the end of the tensor. An empty shard need not be listed.
	c := must(open(func(rank int, p *rankPickle, s *state) {
		empty := obj("Shard", dict(str("tensor"), p.floats(0, 0), str("metadata"), shardOf(num(4), num(0))))
		s.local = strings.TrimSuffix(s.local, "e") + empty + "e"
	}))
	requireFloats(t, c, "x", 4)

	// All tensors of a file are of one rank, and all ranks have the tensor.
	whole := func(p *rankPickle, n int) string {
		local := list(obj("Shard", dict(str("tensor"), p.floats(0, 4), str("metadata"), shardOf(num(0), num(4)))))
		return partOf(class, tuple(num(4)), tuple(local, listed(tuple(num(4)), shardOf(num(0), num(4))), group(n, 2)))
	}
	one, two := &rankPickle{}, &rankPickle{}
	requireRefused(t, `"model_rank_0.pt": tensor "y": it is of rank 1, tensors before it are of rank 0`, one.file(dict(str("x"), whole(one, 0), str("y"), whole(one, 1))))
	one, two = &rankPickle{}, &rankPickle{}
	all := partOf(class, tuple(num(4)), tuple(list(obj("Shard", dict(str("tensor"), one.floats(0, 4), str("metadata"), shardOf(num(0), num(4))))), listed(tuple(num(4)), shardOf(num(0), num(4))), group(0, 1)))
	requireRefused(t, "there is a file of rank 1, but the job had 1 rank", one.file(dict(str("x"), all)), two.file(dict(str("p"), two.floats(0, 2))))
	for i, name := range []string{`rank 1 ("model_rank_1.pt")`, `rank 0 ("model_rank_0.pt")`} {
		one, two = &rankPickle{}, &rankPickle{}
		entries := [][]string{{str("x"), whole(one, 0)}, {str("x"), whole(two, 1)}}
		entries[1-i][0] = str("y")
		requireRefused(t, `tensor "x": `+name+" lacks it, a ShardedTensor of 2 ranks", one.file(dict(entries[0]...)), two.file(dict(entries[1]...)))
	}

	// The state and the arguments have another structure than PyTorch gives them.
	for want, part := range map[string]string{
		"a ShardedTensor whose state is an int":        partOf(class, tuple(num(4)), num(1)),
		"a ShardedTensor whose state is a tuple of 2":  partOf(class, tuple(num(4)), tuple("]", "]")),
		"a DTensor whose state is a tuple of 3":        partOf("torch.distributed.tensor\nDTensor", tuple(num(4)), tuple("N", "}", "N")),
		"a DTensor whose state is a tuple of 2":        partOf("torch.distributed.tensor\nDTensor", tuple(num(4)), tuple("N", "N")),
		"its _spec is None":                            partOf("torch.distributed.tensor\nDTensor", tuple(num(4)), tuple("N", "}")),
		"a DTensor without a dtype":                    strings.Replace(partOf("torch.distributed.tensor\nDTensor", tuple(num(4)), tuple("N", "}")), "ctorch\nfloat32\n", "N", 1),
		"a ShardedTensor without a dtype":              strings.Replace(partOf(class, tuple(num(4)), tuple("]", "]")), "ctorch\nfloat32\n", "cother\nfloat32\n", 1),
		"a DTensor of a tuple of 2":                    partOf("torch.distributed.tensor\nDTensor", "", tuple("N", "}")),
		"its size: an int instead of a tuple":          partOf("torch.distributed.tensor\nDTensor", num(4), tuple("N", "}")),
		"its size: 65 dimensions, at most 64 are read": partOf("torch.distributed.tensor\nDTensor", tuple(nums(make([]int, 65))...), tuple("N", "}")),
	} {
		t.Run(want, func(t *testing.T) { requireRefused(t, want, (&rankPickle{}).file(dict(str("x"), part))) })
	}

	// If safetensors lacks a dtype, only the tensor with that dtype is left out.
	p := &rankPickle{}
	c = must(openRankFiles(p.file(dict(str("x"), strings.Replace(partOf(class, tuple(num(4)), tuple("]", "]")), "float32", "complex128", 1), str("y"), dtensor{
		size: tuple(num(2)), local: p.floats(0, 2), placements: list(shard(0)), mesh: deviceMesh{ranks: p.ints([]int{1}, 0), coordinate: list(num(0))}.String(),
	}.String()))))
	require.ErrorContains(t, c.refused["x"], "safetensors has no dtype for torch.complex128")
	require.ErrorIs(t, c.refused["x"], errors.ErrUnsupported)
	requireFloats(t, c, "y", 2)
}

// TestMadeDTensors joins DTensors of jobs with the forms of meshes that PyTorch has saved, and refuses
// meshes and placements that contradict themselves. Each case changes the DTensor of rank 0 of two,
// of which each has two rows of four.
func TestMadeDTensors(t *testing.T) {
	const old = "torch.distributed._tensor.api\nDTensor"
	type rankState struct {
		*rankPickle
		dtensor
		device deviceMesh
	}
	open := func(change func(rank int, s *rankState)) (*held, error) {
		files := make([]*fstest.MapFile, 2)
		for rank := range files {
			p := &rankPickle{}
			s := rankState{p, dtensor{size: tuple(num(4), num(1)), local: p.floats(2*rank, 2, 1), placements: list(shard(0))}, deviceMesh{
				layout: flatLayout(tuple(num(2)), tuple(num(1))), rankMap: p.ints([]int{2}, 0, 1), coordinate: list(num(rank)),
			}}
			if change(rank, &s); s.mesh == "" {
				s.mesh = s.device.String()
			}
			files[rank] = p.file(dict(str("x"), s.dtensor.String()))
		}
		return openRankFiles(files...)
	}
	for name, change := range map[string]func(rank int, s *rankState){
		"as it is":                   func(int, *rankState) {},
		"axes":                       func(_ int, s *rankState) { s.device.layout = axes(axis(tuple(num(2)), tuple(num(1)))) },
		"axes of numbers":            func(_ int, s *rankState) { s.device.layout = axes(axis(num(2), num(1))) },
		"layout of numbers":          func(_ int, s *rankState) { s.device.layout = flatLayout(num(2), num(1)) },
		"ranks of 32 bits":           func(_ int, s *rankState) { s.device.rankMap = s.ints32([]int{2}, 0, 1) },
		"ranks as a tensor":          func(_ int, s *rankState) { s.device.ranks = s.ints([]int{2}, 0, 1) },
		"ranks as one of 32 bits":    func(_ int, s *rankState) { s.device.ranks = s.ints32([]int{2}, 0, 1) },
		"its number":                 func(rank int, s *rankState) { s.device.more = []string{str("_rank"), num(rank)} },
		"a number that is not known": func(_ int, s *rankState) { s.device.more = []string{str("_rank"), num(maxFiles)} },
		"negative dimension":         func(_ int, s *rankState) { s.placements = tuple(shard(-2)) },
		"a dimension of one rank": func(rank int, s *rankState) {
			s.device.layout, s.device.coordinate = flatLayout(tuple(num(1), num(2)), tuple(num(7), num(1))), list(num(0), num(rank))
			s.placements = list(shard(1), shard(0))
		},
		"an axis of one rank": func(rank int, s *rankState) {
			s.device.layout, s.device.coordinate = axes(axis(")", ")"), axis(tuple(num(2)), tuple(num(1)))), list(num(0), num(rank))
			s.placements = list(replicate, shard(0))
		},
		"old, Shard once":         func(_ int, s *rankState) { s.class = old },
		"an order from the left":  func(_ int, s *rankState) { s.spec = []string{str("shard_order"), list(order(0, 0))} },
		"no order":                func(_ int, s *rankState) { s.spec = []string{str("shard_order"), "N"} },
		"no strided shard in use": func(_ int, s *rankState) { s.spec = []string{str("use_strided_shard_as_shard_order"), "\x89"} },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := open(change)
			require.NoError(t, err)
			requireFloats(t, c, "x", 4, 1)
		})
	}

	for want, change := range map[string]func(s *rankState){
		"its mesh is an int": func(s *rankState) { s.mesh = num(1) },
		"its placements, a list of 2, are not one for each dimension of its mesh of [2]": func(s *rankState) { s.placements = list(shard(0), shard(0)) },
		"its placements, an int, are not one":                                            func(s *rankState) { s.placements = num(1) },
		"a placement is an int":                                                          func(s *rankState) { s.placements = list(num(1)) },
		`a class that is not of PyTorch`:                                                 func(s *rankState) { s.placements = list("cother\nShard\n)\x81" + dict(str("dim"), num(0)) + "b") },
		`, which is unknown`:                                                             func(s *rankState) { s.placements = list(obj("RaggedShard", dict(str("dim"), num(0)))) },
		"its placement Shard has dim 2 of a tensor of 2 dimensions":                      func(s *rankState) { s.placements = list(shard(2)) },
		"its placement Shard has dim -1 of a tensor of 2 dimensions":                     func(s *rankState) { s.placements = list(shard(-3)) },
		"its placement Shard has dim 0 of a tensor of 2 dimensions":                      func(s *rankState) { s.placements = list(obj("Shard", dict(str("other"), num(0)))) },
		"its placement _StridedShard(0) has the split_factor 0":                          func(s *rankState) { s.placements = list(strided(0, 0)) },
		"its placement _StridedShard(1) has the split_factor 10001":                      func(s *rankState) { s.placements = list(strided(1, maxFiles+1)) },
		"no later dimensions of its mesh of [2] have the 2 ranks of the":                 func(s *rankState) { s.placements = list(strided(0, 2)) },
		"_Partial: a sum over ranks is pending (partial)":                                func(s *rankState) { s.placements = list(obj("_Partial", dict(str("reduce_op"), str("sum")))) },
		"its placement _StridedShard stands for no order of shards": func(s *rankState) {
			s.placements, s.spec = list(strided(0, 1)), []string{str("use_strided_shard_as_shard_order"), "\x89"}
		},
		"its shard_order is not that of the placements":                                    func(s *rankState) { s.spec = []string{str("shard_order"), list(order(0, 1, 0))} },
		"its local tensor: expected a tensor":                                              func(s *rankState) { s.local = num(1) },
		"its local tensor is F32 [1,1], but [0:2,0:1] of size [4,1] is F32 of shape [2,1]": func(s *rankState) { s.local = s.floats(0, 1, 1) },

		"its layout is an int":      func(s *rankState) { s.device.layout = num(1) },
		"its axes are an int":       func(s *rankState) { s.device.layout = obj("_MeshLayout", dict(str("axes"), num(1))) },
		"its axes are a tuple of 9": func(s *rankState) { s.device.layout = axes(slicesOf(maxMeshDims+1, axis(num(1), num(1)))...) },
		"an axis is an int":         func(s *rankState) { s.device.layout = axes(num(1)) },
		"an axis of a mesh that was flattened, of shape [2,1] and strides [1,1]": func(s *rankState) {
			s.device.layout = axes(axis(tuple(num(2), num(1)), tuple(num(1), num(1))))
		},
		"the shape of its layout: ":                            func(s *rankState) { s.device.layout = flatLayout("N", num(1)) },
		"the stride of its layout: ":                           func(s *rankState) { s.device.layout = flatLayout(num(2), "N") },
		"2 strides for 1 dimensions":                           func(s *rankState) { s.device.layout = flatLayout(num(2), tuple(num(1), num(1))) },
		"a mesh of shape [0], strides [1]":                     func(s *rankState) { s.device.layout = flatLayout(num(0), num(1)) },
		"a mesh of shape [10001], strides [1]":                 func(s *rankState) { s.device.layout = flatLayout(num(maxFiles+1), num(1)) },
		"a mesh of shape [2,5001], strides [1,1":               func(s *rankState) { s.device.layout = flatLayout(tuple(num(2), num(5001)), tuple(num(1), num(1))) },
		"a mesh of shape [2], strides [10001]":                 func(s *rankState) { s.device.layout = flatLayout(num(2), num(maxFiles+1)) },
		"it has shape [3] and strides [1] in a job of 2 ranks": func(s *rankState) { s.device.layout = flatLayout(num(3), num(1)) },
		"it has shape [2] and strides [2] in a job of 2 ranks": func(s *rankState) { s.device.layout = flatLayout(num(2), num(2)) },
		"found F32 [2]":                                        func(s *rankState) { s.device.rankMap = s.floats(0, 2) },
		"expected the number of a rank, found 4294967296":      func(s *rankState) { s.device.rankMap = s.ints([]int{2}, 0, 1<<32) },
		"its mesh: expected a tensor, found an int":            func(s *rankState) { s.device.rankMap = num(1) },
		"a mesh with a rank twice":                             func(s *rankState) { s.device.rankMap = s.ints([]int{2}, 0, 0) },
		"or one beyond 0 to 9999":                              func(s *rankState) { s.device.ranks = s.ints([]int{2}, 0, maxFiles) },
		"a mesh with a rank twice, or one beyond":              func(s *rankState) { s.device.ranks = s.ints([]int{2}, 0, -1) },
		"a mesh of shape [0] with 0 ranks":                     func(s *rankState) { s.device.ranks = s.ints([]int{0}) },
		"a mesh of shape [] with 1 ranks":                      func(s *rankState) { s.device.ranks = s.ints(nil, 0) },
		"9 dimensions, at most 8 are read":                     func(s *rankState) { s.device.ranks = s.ints([]int{1, 1, 1, 1, 1, 1, 1, 1, 2}, 0, 1) },

		"the place of the rank in its mesh: ": func(s *rankState) { s.device.coordinate = num(0) },
		"the place of rank 1, [1,0], lies outside of its mesh of [2]": func(s *rankState) {
			s.device.coordinate, s.device.more = list(num(1), num(0)), []string{str("_rank"), num(1)}
		},
		"the place of the rank, [2], lies outside of a mesh of [2]":      func(s *rankState) { s.device.coordinate = list(num(2)) },
		"the place of rank 0, [1], lies outside of its mesh of [2]":      func(s *rankState) { s.device.coordinate, s.device.more = list(num(1)), []string{str("_rank"), num(0)} },
		"the place of rank 7, [0], lies outside of its mesh of [2]":      func(s *rankState) { s.device.more = []string{str("_rank"), num(7)} },
		"the place of the rank in its mesh has 2 dimensions, the mesh 1": func(s *rankState) { s.device.ranks, s.device.coordinate = s.ints([]int{2}, 0, 1), list(num(0), num(0)) },
		"the place of the rank, [2], lies outside of its mesh of [2]":    func(s *rankState) { s.device.ranks, s.device.coordinate = s.ints([]int{2}, 0, 1), list(num(2)) },
		"it is of rank 1, but its mesh has rank 0 at its place": func(s *rankState) {
			s.device.ranks, s.device.more = s.ints([]int{2}, 0, 1), []string{str("_rank"), num(1)}
		},
		"rank 0 is in its mesh, but has no place there": func(s *rankState) {
			s.device.ranks, s.device.coordinate, s.device.more = s.ints([]int{2}, 0, 1), "N", []string{str("_rank"), num(0)}
		},
		"it has shape [2] and strides [1] in a job of 2 ranks": func(s *rankState) { // the mesh begins at rank 1, so that it extends beyond the job
			s.device.coordinate, s.device.more = list(num(0)), []string{str("_rank"), num(1)}
		},
		`its mesh is an object of "torch.distributed.checkpoint.metadata.OtherMesh"`: func(s *rankState) {
			s.mesh = strings.Replace(s.device.String(), "DeviceMesh", "OtherMesh", 1)
		},
		`its mesh is an object of "other.DeviceMesh"`: func(s *rankState) {
			s.mesh = strings.Replace(s.device.String(), "torch.distributed.checkpoint.metadata", "other", 1)
		},
		"its mesh: expected a tensor, found a string": func(s *rankState) { s.device.ranks = str("x") },
		"the place of the rank in its mesh: an int": func(s *rankState) {
			s.device.more = []string{str("_root_mesh"), deviceMesh{layout: s.device.layout, coordinate: num(0)}.String()}
		},
		"its layout is a string": func(s *rankState) {
			s.device.more = []string{str("_root_mesh"), deviceMesh{layout: str("x"), coordinate: list(num(0))}.String()}
		},
		"the stride of its layout: None":                                   func(s *rankState) { s.device.layout = axes(axis(num(2), "N")) },
		"its shard_order is not that of the placements from left to right": func(s *rankState) { s.spec = []string{str("shard_order"), list(num(1))} },
		"it was cut from an int":                                           func(s *rankState) { s.device.more = []string{str("_root_mesh"), num(1)} },
		"the place of the rank, [], lies outside of a mesh of [2]": func(s *rankState) {
			s.device.more = []string{str("_root_mesh"), deviceMesh{layout: s.device.layout, rankMap: s.device.rankMap, coordinate: "N"}.String()}
		},
	} {
		t.Run(want, func(t *testing.T) {
			_, err := open(func(rank int, s *rankState) {
				if rank == 0 {
					change(s)
				}
			})
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, `"model_rank_0.pt": tensor "x": `)
			require.ErrorAs(t, err, new(*safetensors.FormatError))
		})
	}
}

// TestStageIsMissing: two stages of a pipeline have two ranks each, and tensors of their own. The
// mesh of a stage is cut from the mesh of all ranks. So it is an error if the files of the other
// stage are missing.
func TestStageIsMissing(t *testing.T) {
	var files []*fstest.MapFile
	for rank := range 4 {
		p := &rankPickle{}
		layout, all, stage, at := flatLayout(tuple(num(2), num(2)), tuple(num(2), num(1))), p.ints([]int{4}, 0, 1, 2, 3), rank/2, rank%2
		root := deviceMesh{layout: layout, rankMap: all, coordinate: list(num(stage), num(at))}
		mesh := deviceMesh{
			layout: flatLayout(tuple(num(2)), tuple(num(1))), rankMap: all, coordinate: list(num(at)), more: []string{str("_root_mesh"), root.String()},
		}
		x := dtensor{size: tuple(num(4), num(1)), local: p.floats(2*at, 2, 1), placements: list(shard(0)), mesh: mesh.String()}
		files = append(files, p.file(dict(str(fmt.Sprint("x", stage)), x.String())))
	}
	c, err := openRankFiles(files...)
	require.NoError(t, err)
	requireFloats(t, c, "x0", 4, 1)
	requireFloats(t, c, "x1", 4, 1)
	requireRefused(t, "the file of rank 2 is missing: there are files of 2 of the 4 ranks", files[:2]...)
	requireRefused(t, "the file of rank 0 is missing: there are files of 2 of the 4 ranks", files[2:]...)
}

// TestEmptyPart: the part of a rank without elements may have any shape, but not another dtype.
func TestEmptyPart(t *testing.T) {
	files := func(empty func(p *rankPickle) string) (all []*fstest.MapFile) {
		for rank := range 2 {
			p := &rankPickle{}
			local := p.floats(0, 3, 1)
			if rank == 1 {
				local = empty(p)
			}
			mesh := deviceMesh{ranks: p.ints([]int{2}, 0, 1), coordinate: list(num(rank))}
			x := dtensor{size: tuple(num(3), num(1)), local: local, placements: list(shard(1)), mesh: mesh.String()}
			all = append(all, p.file(dict(str("x"), x.String())))
		}
		return all
	}
	for _, shape := range [][]int{{3, 0}, {0, 0}, {0}} {
		c, err := openRankFiles(files(func(p *rankPickle) string { return p.floats(0, shape...) })...)
		require.NoError(t, err)
		requireFloats(t, c, "x", 3, 1)
	}
	requireRefused(t, `tensor "x": its local tensor is I64 [0,0], but [0:3,1:1] of size [3,1] is F32`, files(func(p *rankPickle) string { return p.ints([]int{0, 0}) })...)
	requireRefused(t, `tensor "x": its local tensor is F32 [1,1], but [0:3,1:1] of size [3,1] is F32`, files(func(p *rankPickle) string { return p.floats(0, 1, 1) })...)
}

// order returns an entry of a DTensor's shard_order: the dimensions of the mesh that cut one
// dimension of the tensor.
func order(dim int, mesh ...int) string {
	return "ctorch.distributed.tensor._dtensor_spec\nShardOrderEntry\n" + tuple(num(dim), tuple(nums(mesh)...)) + "\x81"
}

// slicesOf returns a slice that contains the same text n times.
func slicesOf(n int, text string) (all []string) {
	for range n {
		all = append(all, text)
	}
	return all
}

// TestNamesFirst: if the names of the files show that a rank is missing, no file is opened.
func TestNamesFirst(t *testing.T) {
	for missing := range 3 {
		folder := make(fstest.MapFS)
		for rank := range 3 {
			if rank != missing {
				folder[fmt.Sprintf("model_world_size_3_rank_%d.pt", rank)] = &fstest.MapFile{Data: []byte("not read")}
			}
		}
		fsys := &counted{FS: folder}
		_, err := OpenFS(fsys, ".")
		require.ErrorContains(t, err, fmt.Sprintf("the file of rank %d is missing: there are files of 2 of the 3 ranks", missing))
		require.Zero(t, fsys.most.Load(), "files that were open")
	}
}

// half returns a rank's part of a DTensor with four elements, which a mesh of two ranks divides.
// The rank is at this coordinate of the mesh, or outside of the mesh if the coordinate is negative.
func half(p *rankPickle, coordinate int, ranks ...int64) string {
	n := 4 / len(ranks)
	at, local := list(num(coordinate)), p.floats(n*coordinate, n)
	if coordinate < 0 {
		at, local = "N", p.floats(0, 0)
	}
	return dtensor{size: tuple(num(4)), local: local, placements: list(shard(0)), mesh: deviceMesh{ranks: p.ints([]int{len(ranks)}, ranks...), coordinate: at}.String()}.String()
}

// TestJobs: which sets of rank files form a checkpoint, and the errors for sets that do not.
func TestJobs(t *testing.T) {
	type entries = []string
	files := func(all ...func(p *rankPickle) entries) (made []*fstest.MapFile) {
		for _, of := range all {
			p := &rankPickle{}
			made = append(made, p.file(dict(of(p)...)))
		}
		return made
	}
	first := func(p *rankPickle) entries { return entries{str("x"), half(p, 0, 0, 1)} }
	second := func(p *rankPickle) entries { return entries{str("x"), half(p, 1, 0, 1)} }
	and := func(of func(p *rankPickle) entries, more ...string) func(p *rankPickle) entries {
		return func(p *rankPickle) entries { return append(of(p), more...) }
	}
	plain := func(name string, from int) func(p *rankPickle) entries {
		return func(p *rankPickle) entries { return entries{str(name), p.floats(from, 2)} }
	}
	both := func(a, b func(p *rankPickle) entries) func(p *rankPickle) entries {
		return func(p *rankPickle) entries { return append(a(p), b(p)...) }
	}
	alone := func(name string, rank int64) func(p *rankPickle) entries {
		return func(p *rankPickle) entries { return entries{str(name), half(p, 0, rank)} }
	}
	outside := func(p *rankPickle) entries { return entries{str("x"), half(p, -1, 0, 1)} }
	inLater := func(coordinate int) func(p *rankPickle) entries { // a mesh of the ranks 1 and 2
		return func(p *rankPickle) entries { return entries{str("x"), half(p, coordinate, 1, 2)} }
	}

	c := must(openRankFiles(files(first, second)...))
	requireFloats(t, c, "x", 4)
	requireFloats(t, must(openRankFiles(files(first, second, outside)...)), "x", 4) // rank 2 is not in the mesh
	c = must(openRankFiles(files(both(first, plain("p", 0)), both(second, plain("p", 0)))...))
	requireFloats(t, c, "p", 2)
	c = must(openRankFiles(files(both(alone("x", 0), plain("p", 0)), both(alone("y", 1), plain("q", 0)))...)) // two stages of a pipeline
	requireFloats(t, c, "x", 4)
	requireFloats(t, c, "y", 4)
	requireFloats(t, c, "q", 2)

	for want, made := range map[string][]*fstest.MapFile{
		`the file of rank 1 is missing, which is in the mesh of [2] in rank 0`: files(first),
		`rank 1 ("model_rank_1.pt") lacks it, which is in the mesh of [2]`:     files(both(first, plain("p", 0)), plain("p", 0)),
		`have different meshes of the same ranks`:                              files(first, inLater(0), inLater(1)),
		`tensor "x": the ranks of its mesh do not ascend: `:                    files(func(p *rankPickle) entries { return entries{str("x"), half(p, 1, 1, 0)} }, func(p *rankPickle) entries { return entries{str("x"), half(p, 0, 1, 0)} }),
		`tensor "p": rank 1 ("model_rank_1.pt") lacks it, which rank 0`:        files(both(first, plain("p", 0)), second),
		`tensor "p": rank 0 ("model_rank_0.pt") lacks it, which rank 1`:        files(first, both(second, plain("p", 0))),
		`tensor "p": it differs between the ranks that have it`:                files(both(first, plain("p", 0)), both(second, plain("p", 1))),
		`it is a plain tensor here, and a DTensor elsewhere: they differ`:      files(first, both(plain("x", 0), plain("p", 0))),
		`both of rank 0`: files(first, first),
		`tensor "p": its last element ends at byte 12 of a storage of 8 bytes`: files(and(first, str("p"), strings.Replace((&rankPickle{}).floats(0, 2), tuple(num(2))+tuple(num(1)), tuple(num(2))+tuple(num(2)), 1))),
	} {
		t.Run(want, func(t *testing.T) { requireRefused(t, want, made...) })
	}

	// Entries that are not tensors are metadata if they are equal in all files.
	c = must(openRankFiles(files(and(first, str("epoch"), num(1), str("step"), num(5), str("only"), num(7)), and(second, str("epoch"), num(1), str("step"), num(6)))...))
	require.Equal(t, map[string]string{"epoch": "1"}, c.Metadata())
	require.ElementsMatch(t, []string{"step", "only"}, c.objects)

	// A tensor that safetensors cannot hold is left out if Skip is set.
	sparse := "ctorch._utils\n_rebuild_sparse_tensor\n)R"
	unread := files(and(first, str("s"), sparse), and(second, str("s"), sparse))
	c = must(openRankFiles(unread...))
	require.ErrorContains(t, c.refused["s"], "a sparse tensor")
	requireFloats(t, c, "x", 4)
	_, err := OpenFS(fstest.MapFS{"model_rank_0.pt": unread[0], "model_rank_1.pt": unread[1]}, ".")
	require.ErrorContains(t, err, `tensor "s": `)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	c = must(openRankFiles(files(and(first, str("__metadata__"), num(1)), and(second, str("__metadata__"), num(1)))...))
	requireFloats(t, c, "x", 4)

	// If no tensor is divided, only the names show that the files are of ranks, and the highest
	// number in them determines the number of ranks.
	named := func(names ...string) error {
		folder := make(fstest.MapFS)
		for i, file := range files(plain("p", 0), plain("p", 0))[:len(names)] {
			folder[names[i]] = file
		}
		return errorOf(OpenFS(folder, "."))
	}
	require.NoError(t, named("model_rank_0.pt", "model_rank_1.pt"))
	require.ErrorContains(t, named("model_rank_0.pt", "model_rank_2.pt"), "the file of rank 1 is missing: there are files of 2 of the 3 ranks")
	require.ErrorContains(t, named("model_rank_1.pt"), "the file of rank 0 is missing: there are files of 1 of the 2 ranks")
	require.ErrorIs(t, named("model_0.pt", "model_1.pt"), fs.ErrNotExist)
	require.ErrorContains(t, named("model_0.pt", "model_1.pt"), "no tensor in it is divided between ranks")
	large := func(p *rankPickle) entries { // a tensor of 1.2 GiB in a file of 1.5 MiB
		return entries{str("large"), strings.Replace(p.floats(0, 1), tuple(num(1))+tuple(num(1)), tuple(num(300<<20))+tuple(num(0)), 1), str("p"), p.floats(0, 3<<17)}
	}
	require.NotNil(t, must(openRankFiles(files(large)...)))
	many := make(fstest.MapFS)
	for i := range maxFiles + 1 {
		many[fmt.Sprintf("model_rank_%d.pt", i)] = &fstest.MapFile{}
	}
	require.ErrorContains(t, errorOf(OpenFS(many, ".")), "10001 files exceed the limit of 10000")
	folder := fstest.MapFS{"model_rank_0.pt": files(first)[0]}
	require.ErrorContains(t, errorOf(OpenFS(&counted{FS: folder, plain: true}, ".")), "is not a file that can be read by offset")
}

// A faulty file system fails after a number of reads of its files.
type faulty struct {
	fs.FS
	left atomic.Int64
}

var errFaulty = errors.New("the disk failed")

func (f *faulty) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.FS, name) }

func (f *faulty) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	return faultyFile{file, f}, err
}

type faultyFile struct {
	fs.File
	*faulty
}

func (f faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if f.left.Add(-1) < 0 {
		return 0, errFaulty
	}
	return f.File.(io.ReaderAt).ReadAt(p, off)
}

// TestFaultyFiles: whichever read fails, Open returns the error of the file system, and not a
// FormatError.
func TestFaultyFiles(t *testing.T) {
	ranks := make(fstest.MapFS)
	for rank := range 2 {
		p := &rankPickle{}
		ranks[fmt.Sprintf("model_rank_%d.pt", rank)] = p.file(dict(str("x"), half(p, rank, 0, 1), str("p"), p.floats(0, 3)))
	}
	for name, folder := range map[string]fs.FS{"ranks": ranks, "distcp": must(fs.Sub(os.DirFS("testdata/distcp"), "one"))} {
		for reads := int64(0); ; reads++ {
			require.Less(t, reads, int64(1000))
			f := &faulty{FS: folder}
			f.left.Store(reads)
			opened, err := Opener{Skip: func(string, error) {}}.OpenFS(f, ".")
			if err == nil {
				err = safetensors.Write(io.Discard, mapOf(opened), nil)
			}
			if f.left.Load() >= 0 {
				require.NoError(t, err)
				require.Positive(t, reads)
				break
			}
			require.ErrorIs(t, err, errFaulty, "%s, read %d", name, reads)
			require.False(t, errors.As(err, new(*safetensors.FormatError)), "%v", err)
		}
	}
}
