package dcp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// The tests named TestTorch… run jobs of PyTorch, through scripts in testdata.
// They run if SAFETENSORS_TORCH is the absolute path of a Python that has the packages
// of testdata/requirements-torch.txt. Otherwise they are skipped, or fail if
// SAFETENSORS_REQUIRE_TORCH is 1.

// script returns a func that runs a script in testdata with arguments.
func script(t *testing.T, name string) func(args ...string) {
	t.Helper()
	python := testplatform.Torch(t)
	return func(args ...string) {
		t.Helper()
		// -B keeps Python from writing __pycache__ next to the script.
		out, err := exec.Command(python, append([]string{"-B", name}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// torchTensors returns tensors whose dtypes and shapes are divided in different ways: with sizes
// that are not multiples of the number of ranks, or are smaller than it, without elements, and
// scalars.
func torchTensors(t *testing.T) map[string]safetensors.Tensor {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 1))
	tensors := make(map[string]safetensors.Tensor)
	for _, dtype := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.I64, safetensors.BOOL} {
		for _, shape := range [][]int{{}, {1}, {3}, {8}, {0}, {1, 4}, {5, 7}, {8, 6}, {3, 0}, {2, 3, 5}, {7, 2, 4}, {2, 2, 2, 3}} {
			x := random(rng, dtype, shape...)
			if dtype == safetensors.BOOL {
				data := must(safetensors.Append[byte](nil, x))
				for i := range data {
					data[i] &= 1
				}
				x = must(safetensors.NewTensor(dtype, shape, data))
			}
			tensors[fmt.Sprintf("%v %v", dtype, shape)] = x
		}
	}
	return tensors
}

// job returns a spec for a mesh, with random placements for all tensors except scalars and a few
// others.
func job(tensors map[string]safetensors.Tensor, seed uint64, mesh ...int) spec {
	rng := rand.New(rand.NewPCG(4, seed))
	s := spec{Mesh: mesh, Placements: make(map[string][]string)}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		rank := len(tensors[name].Shape())
		if rank == 0 || rng.IntN(10) == 0 {
			continue
		}
		for range mesh {
			placement := "R"
			if rank == 4 {
				placement = "S0" // so that some pieces are empty
			} else if rng.IntN(4) > 0 {
				placement = "S" + strconv.Itoa(rng.IntN(rank))
			}
			s.Placements[name] = append(s.Placements[name], placement)
		}
	}
	return s
}

// writeWhole writes whole tensors to a new file and returns its name.
func writeWhole(t *testing.T, tensors map[string]safetensors.Tensor) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "whole.safetensors")
	require.NoError(t, safetensors.WriteFile(name, tensors, nil))
	return name
}

// torchMeshes are the meshes of the jobs that the tests run.
var torchMeshes = [][]int{{2}, {3}, {4}, {2, 2}}

// TestTorchSaves opens the checkpoints of PyTorch jobs. WriteFile writes the same file for the same
// pieces.
func TestTorchSaves(t *testing.T) {
	run := script(t, "testdata/dcp.py")
	tensors := torchTensors(t)
	whole := writeWhole(t, tensors)
	specs := make([]spec, len(torchMeshes))
	dirs := make([]string, len(torchMeshes))
	args := []string{"save"}
	for i, mesh := range torchMeshes {
		specs[i] = job(tensors, uint64(i), mesh...)
		dirs[i] = filepath.Join(t.TempDir(), "checkpoint")
		args = append(args, specs[i].file(t), whole, dirs[i])
	}
	run(args...)
	for i, s := range specs {
		f := must(Open(dirs[i]))
		defer f.Close()
		requireTensors(t, tensors, f)
		for rank := range s.ranks() {
			requireWritten(t, filepath.Join(dirs[i], FileName(rank)), s.rank(tensors, rank))
		}
	}
}

// TestTorchLoads lets PyTorch jobs load checkpoints that Go ranks have written for another mesh.
// Each Go rank writes all its pieces, even those that other ranks write, too.
func TestTorchLoads(t *testing.T) {
	run := script(t, "testdata/dcp.py")
	tensors := torchTensors(t)
	whole := writeWhole(t, tensors)
	args := []string{"load"}
	for i, mesh := range torchMeshes {
		saved := job(tensors, uint64(10+i), torchMeshes[(i+1)%len(torchMeshes)]...)
		dir := t.TempDir()
		for rank := range saved.ranks() {
			require.NoError(t, WriteFile(filepath.Join(dir, FileName(rank)), saved.rank(tensors, rank), nil))
		}
		args = append(args, job(tensors, uint64(20+i), mesh...).file(t), whole, dir)
	}
	run(args...)
}

// TestTorchRanks joins the files that the ranks of PyTorch jobs save with torch.save, for random
// meshes of one and two dimensions and random placements. The results equal the tensors before they
// were cut: along every dimension, twice along the same one, unevenly, with empty parts, replicated
// and plain.
func TestTorchRanks(t *testing.T) {
	run := script(t, "testdata/ranks.py")
	tensors := torchTensors(t)
	whole := writeWhole(t, tensors)
	meshes := [][]int{{1}, {2}, {3}, {5}, {2, 2}, {2, 3}, {3, 2}, {1, 4}}
	dirs := make([]string, len(meshes))
	var args []string
	seed := rand.Uint64()
	for i, mesh := range meshes {
		dirs[i] = filepath.Join(t.TempDir(), "ranks")
		args = append(args, job(tensors, seed+uint64(i), mesh...).file(t), whole, dirs[i])
	}
	run(args...)
	for i, dir := range dirs {
		f, err := Open(dir)
		require.NoError(t, err, "mesh %v, seed %d", meshes[i], seed)
		defer f.Close()
		requireTensors(t, tensors, f)
	}
}

// TestTorchGolden makes the files of testdata again. Only the order of the keys in the metadata may
// differ.
func TestTorchGolden(t *testing.T) {
	run := script(t, "testdata/dcp.py")
	dir := t.TempDir()
	whole, mesh := filepath.Join(dir, "whole.safetensors"), filepath.Join(dir, "mesh")
	run("whole", whole)
	run("save", "testdata/mesh.json", whole, mesh)
	got := must(os.ReadFile(whole))
	want := must(os.ReadFile(wholeFile))
	require.Equal(t, want, got)
	for name := range meshFiles(t) {
		want := must(safetensors.Load(filepath.Join(meshDir, name)))
		got := must(safetensors.Load(filepath.Join(mesh, name)))
		require.Equal(t, want.Metadata(), got.Metadata())
		requireTensors(t, maps.Collect(want.Tensors()), got)
	}
}
