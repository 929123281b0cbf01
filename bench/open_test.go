package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
	"golang.org/x/sys/unix"
)

// BenchmarkOpen starts from the name of a file with 723 tensors, looks at the
// first element of one of them, and closes the file. The data is a hole in the
// file, so its size can be any; only the page with that element is read.
//
// What bounds it: parsing the header; the rest is system calls and one page
// fault. The size of the file does not matter to those who map it.
//
//   - ours: Open, Tensor, View, Close
//   - maruel: Mapped.Open, search of the list, Data, Close
//   - nlpodyssey: os.ReadFile as its documentation shows, Deserialize, Tensor; not for 1 TiB
//   - rust: Mmap::map, deserialize, tensor, unmap
//   - python: safe_open, get_tensor, which copies that tensor
//   - ztensor: ztensor in Python: open of the same file, a view of that tensor
func BenchmarkOpen(b *testing.B) {
	for _, row := range []struct {
		name        string
		full, small int64
	}{
		{"64MiB", 64 * miB, 8 * miB},
		{"4GiB", 4 * giB, 16 * miB},
		{"1TiB", tiB, 32 * miB},
	} {
		b.Run(row.name, func(b *testing.B) {
			path := input("open-"+row.name, func(path string) {
				header, dataSize := uniform(722, sized(row.full, row.small)).header()
				sparseFile(path, header, dataSize)
			})
			const tensor = "norm"
			w := work{memory: true}
			b.Run("impl=ours", w.run(func() {
				f := must(safetensors.Open(path))
				defer f.Close()
				sink.Store(uint64(must(safetensors.View[uint16](must(f.Tensor(tensor))))[0]))
			}))
			b.Run("impl=maruel", w.run(func() {
				var f maruel.Mapped
				check(f.Open(path))
				defer f.Close()
				i := slices.IndexFunc(f.Tensors, func(t maruel.Tensor) bool { return t.Name == tensor })
				sink.Store(uint64(f.Tensors[i].Data[0]))
			}))
			if row.full < tiB {
				b.Run("impl=nlpodyssey", w.run(func() {
					t, _ := must(nlpodyssey.Deserialize(must(os.ReadFile(path)))).Tensor(tensor)
					sink.Store(uint64(t.Data()[0]))
				}))
			}
			b.Run("impl=rust", w.foreign(rust, "open", path, tensor))
			b.Run("impl=python", w.foreign(python, "open", path, tensor))
			b.Run("impl=ztensor", w.foreign(python, "open-ztensor", path, tensor))
		})
	}
}

// BenchmarkLoad starts from the name of a file of 64 tensors, 2 GiB in total,
// and ends with all of its data in memory of a new process. In rows named warm
// the file is in the page cache; in rows named cold it was dropped from there
// before every run, which cachestat confirmed.
//
// What bounds it: warm, the page faults of new memory: limit-pread, which has
// none, takes half the time or less. Cold, the disk; reading past the page cache is
// faster, but leaves the file cold for the next reader.
//
// On a machine that returns free memory to its host, the state of that memory decides
// more than the contestant does: hence intervals of 50 % and more. Ours asks for huge
// pages as long as they are quick. Warm runs on one CPU took 2.3 to 3.6 s without them
// and 0.7 to 0.9 with them, minutes later; cold ones 1.75 and 1.9 s, medians of seven.
// What counts in cold runs is explicit readahead: without it they took 4.0 s on one CPU
// instead of 1.7, because sixteen readers overwrite the kernel's readahead state.
//
//   - ours: Load
//   - ReadFile: os.ReadFile, the bytes alone, nothing parsed
//   - maruel: os.ReadFile, Parse
//   - nlpodyssey: os.ReadFile, Deserialize
//   - rust: fs::read, deserialize
//   - python: load_file of safetensors.numpy
//   - ztensor: ztensor in Python: open of the same file, tobytes of each tensor
//   - safetensors-0.9-mmap, -pread: safetensors 0.9.0rc1, safe_open for numpy with that backend, get_tensor of each
//   - runai: runai-model-streamer 0.17.0: SafetensorsStreamer, with its 16 threads, into PyTorch on the CPU
//   - fastsafetensors: fastsafetensors 0.5.0: SafeTensorsFileLoader to the CPU, nogds, with its 16 threads
//   - limit-pread: pread of 16 MiB at a time, 8 threads, into memory that the process had already touched
//   - limit-direct: the same with O_DIRECT, which reads from the disk
func BenchmarkLoad(b *testing.B) {
	path := input("load.safetensors", func(path string) {
		header, dataSize := uniform(64, sized(2*giB, 4*miB)).header()
		filledFile(path, header, dataSize)
	})
	size := must(os.Stat(path)).Size()
	warm := work{bytes: size, before: func() { readThrough(path) }}
	cold := work{bytes: size, before: func() { evict(path) }}
	b.Run("warm", func(b *testing.B) { warm.load(b, path, true) })
	b.Run("warm-all-CPUs", func(b *testing.B) { warm.load(b, path, false) })
	b.Run("cold", func(b *testing.B) { cold.load(b, path, true) })
	b.Run("cold-all-CPUs", func(b *testing.B) { cold.load(b, path, false) })
}

// load runs one row. Most peers use a single thread.
func (w work) load(b *testing.B, path string, peers bool) {
	b.Run("impl=ours", w.run(func() { must(safetensors.Load(path)) }))
	if peers {
		b.Run("impl=ReadFile", w.run(func() { must(os.ReadFile(path)) }))
		b.Run("impl=maruel", w.run(func() { must(maruel.Parse(must(os.ReadFile(path)))) }))
		b.Run("impl=nlpodyssey", w.run(func() { must(nlpodyssey.Deserialize(must(os.ReadFile(path)))) }))
		b.Run("impl=rust", w.foreign(rust, "load", path))
		b.Run("impl=python", w.foreign(python, "load", path))
		b.Run("impl=ztensor", w.foreign(python, "load-ztensor", path))
		for _, task := range []string{"safetensors-0.9-mmap", "safetensors-0.9-pread"} {
			b.Run("impl="+task, w.foreign(loaders, task, path))
		}
	}
	for _, task := range []string{"runai", "fastsafetensors"} {
		b.Run("impl="+task, w.foreign(loaders, task, path))
	}
	b.Run("impl=limit-pread", w.loadLimit(path, 0))
	b.Run("impl=limit-direct", w.loadLimit(path, unix.O_DIRECT))
}

// loadLimit reads all but the last sector with several preads in parallel.
func (w work) loadLimit(path string, flags int) func(*testing.B) {
	return func(b *testing.B) {
		buffer := noise(int(w.bytes &^ 4095)) // aligned by the Go heap, as O_DIRECT needs
		w.measure(b, func() {
			f := must(os.OpenFile(path, os.O_RDONLY|flags, 0))
			defer f.Close()
			inBlocks(buffer, f.ReadAt)
		})
	}
}

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
	header, dataSize := numbered(tensors, expert, safetensors.U8, size).header()
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
