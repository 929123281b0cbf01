package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gosafetensors/safetensors"
)

// BenchmarkExperts starts from the name of a file of 4 GiB and reads 1,500 random
// tensors of 1 MiB, as an engine reads experts, in several goroutines that give the row
// its name, into memory that they reuse. The file was dropped from the page cache before
// every run.
//
// What bounds it: the disk.
//
//   - ours: Open, Tensor, Append
//   - ours-view: Open, Tensor, View, and a copy of it, which faults the pages in
//   - limit-pread: one pread for each tensor, at an offset that is known
func BenchmarkExperts(b *testing.B) {
	const size = miB
	tensors, read := int(sized(4096, 32)), int(sized(1500, 16))
	header, dataSize := experts(tensors, size).header()
	path := input("experts.safetensors", func(path string) { filledFile(path, header, dataSize) })
	order := rand.New(rand.NewPCG(1, 2)).Perm(tensors)
	w := work{bytes: int64(read) * size, before: func() { evict(path) }}
	for _, goroutines := range []int{8, 32} {
		buffers := make(chan []byte, goroutines)
		for range goroutines {
			buffers <- noise(size)
		}
		each := func(do func(buffer []byte, i int)) {
			parallel(goroutines, read, func(i int) {
				buffer := <-buffers
				do(buffer, order[i])
				buffers <- buffer
			})
		}
		ours := func(do func(buffer []byte, t safetensors.Tensor)) func(*testing.B) {
			return w.run(func() {
				f := must(safetensors.Open(path))
				defer f.Close()
				each(func(buffer []byte, i int) { do(buffer, must(f.Tensor(expert(i)))) })
			})
		}
		b.Run(fmt.Sprintf("%d-goroutines-all-CPUs", goroutines), func(b *testing.B) {
			b.Run("impl=ours", ours(func(buffer []byte, t safetensors.Tensor) { must(safetensors.Append(buffer[:0], t)) }))
			b.Run("impl=ours-view", ours(func(buffer []byte, t safetensors.Tensor) { copy(buffer, must(safetensors.View[byte](t))) }))
			b.Run("impl=limit-pread", w.run(func() {
				f := must(os.Open(path))
				defer f.Close()
				each(func(buffer []byte, i int) { must(f.ReadAt(buffer, int64(len(header))+int64(i)*size)) })
			}))
		})
	}
}

func expert(i int) string { return fmt.Sprintf("experts.%d", i) }

// experts has n tensors of as many bytes each.
func experts(n, bytes int) table {
	var t table
	for i := range n {
		t.add(safetensors.U8, expert(i), bytes)
	}
	return t
}
