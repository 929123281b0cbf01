package bench

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/dcp"
	"golang.org/x/sys/unix"
)

// BenchmarkCommand runs whole jobs: the command safetensors, a process per run, on 16
// tensors of F32, 2 GiB in total, in the page cache. Files that are written are
// flushed to the disk by everyone. stats makes one pass over all values; hash makes the
// sums of the file and of each tensor; consolidate joins what four ranks of PyTorch
// have saved, cut along the rows.
//
// Every contestant may use all CPUs. That the process of PyTorch starts, about two
// seconds, is not counted; that ours does is.
//
// What bounds it: copies, the disk; hash, the SHA instructions of all CPUs: sha256sum
// uses one.
//
//   - ours: safetensors cp, cp --dtype bf16, stats, hash, cp of the folder
//   - cp: cp --sparse=never, sync of the file
//   - sha256sum: sha256sum of the file
//   - torch: PyTorch 2.15.0: safe_open, Tensor.to and save_file; min, max, mean, std, count_nonzero, isnan, isinf and histc of each tensor; consolidate_safetensors_files
func BenchmarkCommand(b *testing.B) {
	size := sized(2*giB, 4*miB)
	model := input("command.safetensors", func(path string) { check(safetensors.WriteFile(path, randomModel(size), nil)) })
	folder := must(os.MkdirTemp(*inputs, "command-"))
	defer os.RemoveAll(folder)
	target := filepath.Join(folder, "new.safetensors")
	ranks := input("ranks", func(path string) { saveRanks(path, model, 4) })
	w := work{bytes: size, before: func() {
		check(os.RemoveAll(target))
		unix.Sync()
	}}

	b.Run("copy-all-CPUs/impl=ours", w.command("cp", "--quiet", model, target))
	b.Run("copy-all-CPUs/impl=cp", w.process("sh", "-c", `cp --sparse=never "$0" "$1" && sync "$1"`, model, target))
	b.Run("to-BF16-all-CPUs/impl=ours", w.command("cp", "--quiet", "--dtype", "bf16", model, target))
	b.Run("to-BF16-all-CPUs/impl=torch", w.foreign(torch, []string{"to-bf16", model, target}))
	b.Run("stats-all-CPUs/impl=ours", w.command("stats", "--json", model))
	b.Run("stats-all-CPUs/impl=torch", w.foreign(torch, []string{"stats", model}))
	b.Run("hash-all-CPUs/impl=ours", w.command("hash", "--tensors", model))
	b.Run("hash-all-CPUs/impl=sha256sum", w.process("sha256sum", model))
	b.Run("consolidate-all-CPUs/impl=ours", w.command("cp", "--quiet", ranks, target))
	b.Run("consolidate-all-CPUs/impl=torch", w.foreign(torch, []string{"consolidate", ranks, folder}))
}

// torch is a process that has PyTorch. It is far too large to install for a benchmark,
// so SAFETENSORS_TORCH names an interpreter that has it.
var torch = &contestant{
	language: "torch",
	build:    [][]string{{os.Getenv("SAFETENSORS_TORCH"), "-c", "import torch, safetensors"}},
	command:  []string{os.Getenv("SAFETENSORS_TORCH"), "python/jobs.py"},
}

// built returns the path of the command, which it builds once.
var built = sync.OnceValue(func() string {
	path := must(filepath.Abs(filepath.Join(*inputs, "safetensors")))
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = "../cmd/safetensors"
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	return path
})

// command returns a benchmark of a run of the command safetensors.
func (w work) command(args ...string) func(*testing.B) {
	return func(b *testing.B) { w.process(append([]string{built()}, args...)...)(b) }
}

// process returns a benchmark of a process, from its start to its end.
func (w work) process(args ...string) func(*testing.B) {
	return func(b *testing.B) {
		skipIfListed(b)
		b.SetBytes(w.bytes)
		for b.Loop() {
			w.prepare(b)
			cmd := exec.Command(args[0], args[1:]...)
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
	}
}

// randomModel returns 16 tensors of normally distributed F32, of size bytes in total.
func randomModel(size int64) map[string]safetensors.Tensor {
	const tensors, columns = 16, 2048
	model := make(map[string]safetensors.Tensor)
	for i := range tensors {
		data := make([]float32, size/tensors/4/columns*columns)
		rng := rand.New(rand.NewPCG(uint64(i), 0))
		for k := range data {
			data[k] = float32(rng.NormFloat64())
		}
		name := fmt.Sprintf("model.layers.%d.weight", i)
		model[name] = must(safetensors.NewTensor(safetensors.F32, []int{len(data) / columns, columns}, data))
	}
	return model
}

// saveRanks writes a distributed checkpoint of a model, cut along the rows.
func saveRanks(folder, model string, ranks int) {
	check(os.Mkdir(folder, 0o777))
	f := must(safetensors.Open(model))
	defer f.Close()
	for rank := range ranks {
		pieces := make(map[string]dcp.Piece)
		for name, t := range maps.Collect(f.Tensors()) {
			pieces[name] = must(must(dcp.NewPiece(t)).Part(0, rank, ranks))
		}
		check(dcp.WriteFile(filepath.Join(folder, dcp.FileName(rank)), pieces, nil))
	}
}
