package bench

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
	"golang.org/x/sys/unix"
)

// BenchmarkWrite writes 64 tensors in memory, 1 GiB in total, to a new file. In
// the row tmpfs fsync costs nothing, since the file is in memory; WriteFile
// always calls it. In the row disk nobody calls it: the time is that until the
// data is in the page cache. In rows named durable all call it, for the file
// and its folder.
//
// What bounds it: not durable, the page cache: limit-pwrite of the same bytes
// takes as long. Durable, the disk, and whether it starts to write while there
// is still data to come. In tmpfs, new pages and one copy of the data. Nobody
// copies it once more; the memory of ours is that of a few more threads.
//
//   - ours: WriteFile (a temporary file, fsync, rename, fsync of the folder); in the row disk Write to an os.File
//   - maruel: Serialize to an os.File
//   - nlpodyssey: SerializeToWriter to an os.File
//   - rust: serialize_to_file (a temporary file, rename)
//   - python: save_file
//   - limit-pwrite: fallocate, then pwrite of 16 MiB at a time, 8 threads
func BenchmarkWrite(b *testing.B) {
	source := input("write.safetensors", func(path string) {
		header, dataSize := uniform(64, sized(giB, 4*miB)).header()
		filledFile(path, header, dataSize)
	})
	for _, row := range []writing{
		{name: "tmpfs", folder: "/dev/shm"},
		{name: "disk", folder: *inputs},
		{name: "durable", folder: *inputs, durable: true},
	} {
		for _, cpus := range []string{"", "-all-CPUs"} {
			b.Run(row.name+cpus, func(b *testing.B) {
				row.work, row.target = job(b, row.folder, must(os.Stat(source)).Size(), "new.safetensors", unix.Sync)
				row.memory = true
				row.bench(b, source, cpus == "")
			})
		}
	}
}

type writing struct {
	work
	name, folder, target string
	durable              bool
}

// bench runs one row. The peers use a single thread.
func (w writing) bench(b *testing.B, source string, peers bool) {
	b.Run("impl=ours", func(b *testing.B) {
		tensors := maps.Collect(must(safetensors.Parse(must(os.ReadFile(source)))).Tensors())
		if w.name == "disk" {
			w.create(b, func(f *os.File) { check(safetensors.Write(f, tensors, nil)) })
		} else {
			w.measure(b, func() { check(safetensors.WriteFile(w.target, tensors, nil)) })
		}
	})
	if peers {
		b.Run("impl=maruel", func(b *testing.B) {
			f := must(maruel.Parse(must(os.ReadFile(source))))
			w.create(b, func(to *os.File) { check(f.Serialize(to)) })
		})
		b.Run("impl=nlpodyssey", func(b *testing.B) {
			views := nlpodysseyViews(must(os.ReadFile(source)))
			w.create(b, func(to *os.File) { check(nlpodyssey.SerializeToWriter(views, nil, to)) })
		})
		task := "write"
		if w.durable {
			task = "write-fsync"
		}
		b.Run("impl=rust", w.foreign(rust, task, source, w.target))
		b.Run("impl=python", w.foreign(python, task, source, w.target))
	}
	b.Run("impl=limit-pwrite", func(b *testing.B) {
		file := must(os.ReadFile(source))
		w.create(b, func(f *os.File) {
			check(unix.Fallocate(int(f.Fd()), 0, 0, int64(len(file))))
			inBlocks(file, f.WriteAt)
		})
	})
}

// create measures writing a new file.
func (w writing) create(b *testing.B, write func(*os.File)) {
	w.measure(b, func() {
		f := must(os.Create(w.target))
		write(f)
		check(f.Close())
		if w.durable {
			syncFile(w.target)
			syncFile(filepath.Dir(w.target))
		}
	})
}
