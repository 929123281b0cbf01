package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crypto "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/dcp"
	"golang.org/x/sys/unix"
)

// BenchmarkCommand runs whole jobs: the command safetensors, a process per run, on 16
// tensors of F32, 1 GiB in total, in the page cache. Files that are written are
// flushed to the disk by everyone. stats makes one pass over all values; hash makes the
// sums of the file and of each tensor; merge adds an adapter of rank 16 to all tensors
// of a model of BF16, half as large; consolidate joins what four ranks of PyTorch have
// saved, cut along the rows; from-distcp does that with what
// torch.distributed.checkpoint has saved in its own format.
//
// Every contestant may use all CPUs. That the process of PyTorch starts, about two
// seconds, is not counted; that ours does is.
//
// What bounds it: copies, the disk; hash, the SHA instructions of all CPUs: sha256sum
// uses one.
//
//   - ours: safetensors cp, cp --dtype bf16, stats, hash, merge --lora, cp of the folder
//   - cp: cp --sparse=never, sync of the file
//   - sha256sum: sha256sum of the file
//   - torch: PyTorch 2.15.0: safe_open, Tensor.to and save_file; min, max, mean, std, count_nonzero, isnan, isinf and histc of each tensor; addmm; consolidate_safetensors_files; dcp_to_torch_save, which writes a file of torch.save
func BenchmarkCommand(b *testing.B) {
	model, size := jobModel()
	half := input("half.safetensors", func(path string) { check(safetensors.WriteFile(path, toBF16(model), nil)) })
	ranks := input("ranks", func(path string) { saveRanks(path, model, 4) })
	adapter := input("adapter", func(path string) { saveAdapter(path, model) })
	w, target := job(b, *inputs, size, "new.safetensors", unix.Sync)

	b.Run("copy-all-CPUs/impl=ours", w.command("cp", "--quiet", model, target))
	b.Run("copy-all-CPUs/impl=cp", w.process("sh", "-c", `cp --sparse=never "$0" "$1" && sync "$1"`, model, target))
	b.Run("to-BF16-all-CPUs/impl=ours", w.command("cp", "--quiet", "--dtype", "bf16", model, target))
	b.Run("to-BF16-all-CPUs/impl=torch", w.foreign(torch, "to-bf16", model, target))
	b.Run("stats-all-CPUs/impl=ours", w.command("stats", "--json", model))
	b.Run("stats-all-CPUs/impl=torch", w.foreign(torch, "stats", model))
	b.Run("hash-all-CPUs/impl=ours", w.command("hash", "--tensors", model))
	b.Run("hash-all-CPUs/impl=sha256sum", w.process("sha256sum", model))
	merge := work{bytes: size / 2, before: w.before}
	b.Run("merge-all-CPUs/impl=ours", merge.command("merge", "--quiet", half, target, "--lora", adapter))
	b.Run("merge-all-CPUs/impl=torch", merge.foreign(torch, "merge", half, adapter, target))
	b.Run("consolidate-all-CPUs/impl=ours", w.command("cp", "--quiet", ranks, target))
	b.Run("consolidate-all-CPUs/impl=torch", w.foreign(torch, "consolidate", ranks, filepath.Dir(target)))
	distcp := filepath.Join(*inputs, "distcp") // by torch, which nobody else shall have to start
	if _, err := os.Stat(distcp); err != nil {
		if torch.start() != nil {
			return
		}
		torch.run(b, []string{"save-distcp", model, distcp}, 1)
	}
	b.Run("from-distcp-all-CPUs/impl=ours", w.command("cp", "--quiet", distcp, target))
	b.Run("from-distcp-all-CPUs/impl=torch", w.foreign(torch, "from-distcp", distcp, target))
}

// BenchmarkDiff compares two files of BF16, 512 MiB in 16 tensors each, in the page cache, of which a share of the
// elements differs in its lowest bit: how many elements, the largest absolute difference, and the norm of the
// difference by the norm of the tensor.
//
// Every contestant may use all CPUs. That the process of PyTorch starts, about two
// seconds, is not counted; that ours does is.
//
// What bounds it: equal files, the comparison of bytes; otherwise the division of each
// difference by its element.
//
//   - ours: safetensors diff
//   - torch: PyTorch 2.15.0: safe_open, float, sub, abs, count_nonzero, max and norm of each tensor
func BenchmarkDiff(b *testing.B) {
	model, size := jobModel()
	half := input("half.safetensors", func(path string) { check(safetensors.WriteFile(path, toBF16(model), nil)) })
	w := work{bytes: size}
	for _, percent := range []int{0, 1, 3, 10, 100} {
		other := input(fmt.Sprintf("differs-%d.safetensors", percent), func(path string) { saveChanged(path, half, percent) })
		row := fmt.Sprintf("%d-percent-all-CPUs/impl=", percent)
		compare := `"$0" diff "$1" "$2" >/dev/null; [ $? = 1 ]` // 1: they differ
		if percent == 0 {
			compare = `"$0" diff "$1" "$2" >/dev/null`
		}
		b.Run(row+"ours", func(b *testing.B) { w.process("sh", "-c", compare, built(), half, other)(b) })
		b.Run(row+"torch", w.foreign(torch, "diff", half, other))
	}
}

// saveChanged writes a copy of a file of BF16 in which so many percent of the elements have another lowest bit.
func saveChanged(path, of string, percent int) {
	f := must(safetensors.Open(of))
	defer f.Close()
	rng := rand.New(rand.NewPCG(0, 0))
	tensors := make(map[string]safetensors.Tensor)
	for name, t := range f.Tensors() {
		bits := must(safetensors.Append[uint16](nil, t))
		for i := range bits {
			if rng.IntN(100) < percent {
				bits[i] ^= 1
			}
		}
		tensors[name] = must(safetensors.NewTensor(t.DType(), t.Shape(), bits))
	}
	check(safetensors.WriteFile(path, tensors, nil))
}

// BenchmarkStart lists a file of 12 tensors that is in the page cache, a process per run,
// from its start to its end.
//
// What bounds it: the pages that the process touches for the first time, and what the
// packages of a program do before main: for ours 2.7 ms by GODEBUG=inittrace=1 on the
// Xeon, 1.2 of them for the tables of Amazon's SDK.
//
//   - ours: safetensors ls, built as go install builds it
//   - ours-release: the same without libc and symbols, as releases are built
//   - python: Python with safe_open of safetensors 0.8.0, which prints names, dtypes and shapes
//   - limit-net-http: a Go program that links net/http and prints a word
func BenchmarkStart(b *testing.B) {
	path := input("start.safetensors", func(path string) {
		header, dataSize := uniform(11, miB).header()
		sparseFile(path, header, dataSize)
	})
	var w work
	b.Run("ls/impl=ours", w.command("ls", path))
	b.Run("ls/impl=ours-release", w.process(release(), "ls", path))
	b.Run("ls/impl=python", func(b *testing.B) {
		if err := python.start(); err != nil {
			b.Skip("skipped: ", err)
		}
		w.process(python.command[0], "python/ls.py", path)(b)
	})
	b.Run("ls/impl=limit-net-http", w.process(hello()))
}

// BenchmarkDequantize turns a quantised model into one of BF16, 512 MiB in 16 tensors, as
// a whole job: the command safetensors, a process per run, from the page cache to a
// folder that is flushed to the disk. The throughput counts the bytes written.
//
// Every contestant may use all CPUs. That the processes of Python start, some seconds,
// is not counted; that ours does is.
//
// What bounds it: the disk.
//
//   - ours: safetensors cp --dequantize bf16
//   - compressed-tensors: compressed-tensors 0.20.0: convert_checkpoint with its CompressedTensorsDequantizer
//   - torch: PyTorch 2.15.0: a loop over all tensors, number times scale, save_file
func BenchmarkDequantize(b *testing.B) {
	model, size := jobModel()
	plain := input("plain", func(path string) {
		check(os.Mkdir(path, 0o777))
		check(safetensors.WriteFile(filepath.Join(path, "model.safetensors"), toBF16(model), nil))
		check(os.WriteFile(filepath.Join(path, "config.json"), []byte(`{"model_type": "llama"}`), 0o666))
	})
	w, target := job(b, *inputs, size/2, "new", unix.Sync)
	for _, scheme := range []string{"fp8-block", "nvfp4", "int4"} {
		source := input(scheme, func(path string) {
			must(exec.Command(built(), "cp", "--quiet", plain, path, "--quantize", scheme).Output())
		})
		b.Run(scheme+"-all-CPUs/impl=ours", w.command("cp", "--quiet", "--dequantize", "bf16", source, target))
		b.Run(scheme+"-all-CPUs/impl=compressed-tensors", w.foreign(compressed, "library", source, target))
		if scheme == "fp8-block" {
			b.Run(scheme+"-all-CPUs/impl=torch", w.foreign(compressed, "loop", source, target))
		}
	}
}

// BenchmarkSign signs a folder of one file, 1 GiB in the page cache, with a key of P-256,
// and verifies the signature, as a whole job: the command safetensors, a process per run.
//
// Every contestant may use all CPUs. That the process of Python starts, about a second,
// is not counted; that ours does is.
//
// What bounds it: SHA-256, which goes through a file from its start to its end: both
// contestants use the same instructions, and one CPU for one file.
//
//   - ours: safetensors sign, verify --signature
//   - model-signing: model-signing 1.1.1: signing.Config.sign, verifying.Config.verify, with their defaults
func BenchmarkSign(b *testing.B) {
	file, size := jobModel()
	model := input("model", func(path string) {
		check(os.Mkdir(path, 0o777))
		check(os.Link(file, filepath.Join(path, "model.safetensors")))
	})
	private := input("key.pem", makeKey)
	public := private + ".pub"
	signed := input("signed.sig", func(path string) {
		must(exec.Command(built(), "sign", "--quiet", model, "--key", private, "--out", path).Output())
	})
	w, target := job(b, *inputs, size, "new.sig", func() { readThrough(file) })
	b.Run("sign-all-CPUs/impl=ours", w.command("sign", "--quiet", model, "--key", private, "--out", target))
	b.Run("sign-all-CPUs/impl=model-signing", w.foreign(signing, "sign", model, private, target))
	b.Run("verify-all-CPUs/impl=ours", w.command("verify", "--quiet", model, "--signature", signed, "--public-key", public))
	b.Run("verify-all-CPUs/impl=model-signing", w.foreign(signing, "verify", model, public, signed))
}

// jobModel returns a model of F32 for whole jobs, and how many bytes its tensors have.
func jobModel() (path string, size int64) {
	size = sized(giB, 4*miB)
	return input("command.safetensors", func(path string) { check(safetensors.WriteFile(path, randomModel(size), nil)) }), size
}

// job returns what runs that write have in common: a target in a new folder below parent, which is
// removed before each run, and then prepare is called.
func job(b *testing.B, parent string, bytes int64, name string, prepare func()) (w work, target string) {
	folder := must(os.MkdirTemp(parent, "safetensors-bench-"))
	b.Cleanup(func() { os.RemoveAll(folder) })
	target = filepath.Join(folder, name)
	return work{bytes: bytes, before: func() {
		check(os.RemoveAll(target))
		prepare()
	}}, target
}

// Each of these funcs builds a program once, and returns its path: the command, the command as it is
// released, and a small program that links net/http.
var (
	built   = program("safetensors", "../cmd/safetensors", "build")
	release = program("safetensors-release", "../cmd/safetensors", "build", "-trimpath", "-ldflags", "-s -w")
	hello   = program("hello", "hello", "build", "-trimpath", "-ldflags", "-s -w")
)

// program returns a func that builds the program in a folder once, as a file with this name, and returns the path of that
// file. build is "build" and flags of the go command; if there are flags, the program does not use libc.
func program(name, folder string, build ...string) func() string {
	return sync.OnceValue(func() string {
		path := must(filepath.Abs(filepath.Join(*inputs, name)))
		cmd := exec.Command("go", append(build, "-o", path, ".")...)
		cmd.Dir = folder
		if len(build) > 1 {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v: %s", err, out))
		}
		return path
	})
}

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
			if w.before != nil {
				w.prepare(b)
			}
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
		name := fmt.Sprintf("model.layers.%d.mlp.down_proj.weight", i)
		model[name] = must(safetensors.NewTensor(safetensors.F32, []int{len(data) / columns, columns}, data))
	}
	return model
}

// toBF16 returns the tensors of a file, to be rounded when they are read.
func toBF16(model string) map[string]safetensors.Tensor {
	tensors := maps.Collect(must(safetensors.Open(model)).Tensors())
	for name, t := range tensors {
		tensors[name] = must(t.Convert(safetensors.BF16))
	}
	return tensors
}

// saveAdapter writes an adapter of peft for all tensors of a model.
func saveAdapter(folder, model string) {
	check(os.Mkdir(folder, 0o777))
	config := `{"peft_type": "LORA", "r": 16, "lora_alpha": 32, "target_modules": ["down_proj"]}`
	check(os.WriteFile(filepath.Join(folder, "adapter_config.json"), []byte(config), 0o666))
	f := must(safetensors.Open(model))
	defer f.Close()
	adapter := make(map[string]safetensors.Tensor)
	for name, t := range f.Tensors() {
		stem := "base_model.model." + strings.TrimSuffix(name, ".weight")
		for suffix, shape := range map[string][]int{".lora_A.weight": {16, t.Shape()[1]}, ".lora_B.weight": {t.Shape()[0], 16}} {
			values := elements[float32](safetensors.F32, shape[0]*shape[1])
			adapter[stem+suffix] = must(safetensors.NewTensor(safetensors.F32, shape, values))
		}
	}
	check(safetensors.WriteFile(filepath.Join(folder, "adapter_model.safetensors"), adapter, nil))
}

// saveRanks writes a distributed checkpoint of a model, cut along the rows.
func saveRanks(folder, model string, ranks int) {
	check(os.Mkdir(folder, 0o777))
	f := must(safetensors.Open(model))
	defer f.Close()
	for rank := range ranks {
		pieces := make(map[string]dcp.Piece)
		for name, t := range maps.Collect(f.Tensors()) {
			pieces[name] = must(must(dcp.NewPiece(t)).Shard(0, rank, ranks))
		}
		check(dcp.WriteFile(filepath.Join(folder, dcp.FileName(rank)), pieces, nil))
	}
}

// makeKey writes a private key, and next to it the public one.
func makeKey(path string) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), crypto.Reader))
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(key))})
	check(os.WriteFile(path, private, 0o600))
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(key.Public()))})
	check(os.WriteFile(path+".pub", public, 0o666))
}
