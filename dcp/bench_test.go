package dcp_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/stretchr/testify/require"
)

// BenchmarkConsolidate joins the files of four ranks to one, of 256 MiB: rows, which
// are copied in large blocks, and columns, whose rows are put together. If
// SAFETENSORS_TORCH is set, it measures PyTorch's own consolidation of the same files,
// too: the seconds without the start of Python. That does not flush the file to the
// disk, as WriteFile does.
func BenchmarkConsolidate(b *testing.B) {
	const ranks, tensors, size = 4, 16, 2048
	for dim, name := range []string{"rows", "columns"} {
		dir, out := b.TempDir(), b.TempDir()
		of := make([]pieces, ranks)
		rng := rand.New(rand.NewPCG(6, 1))
		for i := range tensors {
			x := random(rng, safetensors.F32, size, size)
			for rank := range ranks {
				if of[rank] == nil {
					of[rank] = make(pieces)
				}
				of[rank][fmt.Sprintf("layers.%d.weight", i)] = must(must(dcp.NewPiece(x)).Shard(dim, rank, ranks))
			}
		}
		for rank := range ranks {
			require.NoError(b, dcp.WriteFile(filepath.Join(dir, dcp.FileName(rank)), of[rank], nil))
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(tensors * size * size * 4)
			for b.Loop() {
				f := must(dcp.Open(dir))
				require.NoError(b, safetensors.WriteFile(filepath.Join(out, "model.safetensors"), maps.Collect(f.Tensors()), nil))
				require.NoError(b, f.Close())
			}
		})
		python := os.Getenv("SAFETENSORS_TORCH")
		if python == "" {
			continue
		}
		b.Run(name+" by torch", func(b *testing.B) {
			sum := 0.0
			for b.Loop() {
				text := must(exec.Command(python, "-B", "testdata/dcp.py", "consolidate", dir, out).Output())
				sum += must(strconv.ParseFloat(strings.TrimSpace(string(text)), 64))
			}
			b.ReportMetric(sum/float64(b.N)*1e9, "ns/op")
			b.ReportMetric(tensors*size*size*4/1e6/(sum/float64(b.N)), "MB/s")
		})
	}
}

// BenchmarkOpen opens what 64 ranks have saved, 300 tensors each.
func BenchmarkOpen(b *testing.B) {
	const ranks, tensors = 64, 300
	dir := b.TempDir()
	x := random(rand.New(rand.NewPCG(6, 2)), safetensors.U8, ranks, 8)
	for rank := range ranks {
		of := make(pieces)
		for i := range tensors {
			of[fmt.Sprintf("model.layers.%d.self_attn.q_proj.weight", i)] = must(must(dcp.NewPiece(x)).Shard(0, rank, ranks))
		}
		require.NoError(b, dcp.WriteFile(filepath.Join(dir, dcp.FileName(rank)), of, nil))
	}
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, must(dcp.Open(dir)).Close())
	}
}

// BenchmarkSlice reads columns of a tensor of which four ranks have 512 each. All 2048
// take as long as one tensor of 16 MiB in a file. They pass through a buffer in the
// cache, which adds little: smaller ones, and copies straight from the mapping, gained
// nothing.
func BenchmarkSlice(b *testing.B) {
	const ranks, size = 4, 2048
	x := random(rand.New(rand.NewPCG(6, 3)), safetensors.F32, size, size)
	dir := b.TempDir()
	for rank := range ranks {
		require.NoError(b, dcp.WriteFile(filepath.Join(dir, dcp.FileName(rank)), pieces{"x": must(must(dcp.NewPiece(x)).Shard(1, rank, ranks))}, nil))
	}
	f := must(dcp.Open(dir))
	defer f.Close()
	x = must(f.Tensor("x"))
	for _, columns := range []int{1, 64, size / ranks, size} {
		b.Run(fmt.Sprint(columns), func(b *testing.B) {
			slice := must(x.Slice(safetensors.All(), safetensors.Span(0, columns)))
			b.SetBytes(slice.Size())
			var buf []float32
			for b.Loop() {
				buf = must(safetensors.Append(buf[:0], slice))
			}
		})
	}
}
