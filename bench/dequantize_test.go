package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"golang.org/x/sys/unix"
)

// BenchmarkDequantize turns a quantised model into one of BF16, 512 MiB in 16 tensors, as
// a whole job: the command safetensors, a process per run, from the page cache to a
// folder that is flushed to the disk. The throughput counts the bytes written.
//
// Every contestant may use all CPUs. That the processes of Python start, some seconds,
// is not counted; that ours does is.
//
// What bounds it: the disk. A copy writes 1.1 GB/s in BenchmarkCommand.
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
	w, target := job(b, size/2, "new", unix.Sync)
	for _, scheme := range []string{"fp8-block", "nvfp4", "int4"} {
		source := input(scheme, func(path string) {
			must(exec.Command(built(), "cp", "--quiet", plain, path, "--quantize", scheme).Output())
		})
		b.Run(scheme+"-all-CPUs/impl=ours", w.command("cp", "--quiet", "--dequantize", "bf16", source, target))
		b.Run(scheme+"-all-CPUs/impl=compressed-tensors", w.foreign(compressed, []string{"library", source, target}))
		if scheme == "fp8-block" {
			b.Run(scheme+"-all-CPUs/impl=torch", w.foreign(compressed, []string{"loop", source, target}))
		}
	}
}
