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
// is still data to come. In tmpfs, new pages and one copy of the data: two thirds of
// our time is fallocate, which makes the pages that others get as they write.
// Nobody copies it once more; the memory of ours is that of a few more threads.
//
//   - ours: WriteFile (a temporary file, fsync, rename, fsync of the folder); in the row disk Write to an os.File
//   - maruel: Serialize to an os.File
//   - nlpodyssey: SerializeToWriter to an os.File
//   - rust: serialize_to_file (a temporary file, rename)
//   - python: save_file
//   - limit-pwrite: fallocate, then pwrite of 16 MiB at a time, 8 threads
func BenchmarkWrite(b *testing.B) {
	for _, row := range []writing{
		{name: "tmpfs", folder: "/dev/shm"},
		{name: "disk", folder: *inputs},
		{name: "durable", folder: *inputs, durable: true},
	} {
		row.source = input("write.safetensors", func(path string) {
			header, dataSize := uniform(64, sized(giB, 4*miB)).header()
			filledFile(path, header, dataSize)
		})
		row.work = work{bytes: must(os.Stat(row.source)).Size(), memory: true, before: row.startClean}
		b.Run(row.name, func(b *testing.B) { row.bench(b, false) })
		b.Run(row.name+"-all-CPUs", func(b *testing.B) { row.bench(b, true) })
	}
}

type writing struct {
	work
	name, folder, source, target string
	durable                      bool
}

func (w *writing) bench(b *testing.B, allCPUs bool) {
	folder := must(os.MkdirTemp(w.folder, "safetensors-bench-"))
	defer os.RemoveAll(folder)
	w.target = filepath.Join(folder, "new.safetensors")
	b.Run("impl=ours", w.ours)
	if !allCPUs {
		w.peers(b)
	}
	b.Run("impl=limit-pwrite", func(b *testing.B) {
		file := must(os.ReadFile(w.source))
		w.create(b, func(f *os.File) { writeParallel(f, file) })
	})
}

func (w *writing) ours(b *testing.B) {
	tensors := maps.Collect(must(safetensors.Parse(must(os.ReadFile(w.source)))).Tensors())
	if w.name == "disk" {
		w.create(b, func(f *os.File) { check(safetensors.Write(f, tensors, nil)) })
	} else {
		w.measure(b, func() { check(safetensors.WriteFile(w.target, tensors, nil)) })
	}
}

func (w *writing) peers(b *testing.B) {
	b.Run("impl=maruel", func(b *testing.B) {
		f := must(maruel.Parse(must(os.ReadFile(w.source))))
		w.create(b, func(to *os.File) { check(f.Serialize(to)) })
	})
	b.Run("impl=nlpodyssey", func(b *testing.B) {
		views := nlpodysseyViews(must(os.ReadFile(w.source)))
		w.create(b, func(to *os.File) { check(nlpodyssey.SerializeToWriter(views, nil, to)) })
	})
	task := "write"
	if w.durable {
		task = "write-fsync"
	}
	b.Run("impl=rust", w.foreign(rust, task, w.source, w.target))
	b.Run("impl=python", w.foreign(python, task, w.source, w.target))
}

// create measures writing a new file.
func (w *writing) create(b *testing.B, write func(*os.File)) {
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

// startClean removes what was written before and waits until the disk is idle.
func (w *writing) startClean() {
	check(os.RemoveAll(w.target))
	unix.Sync()
}
