package bench

import (
	"os"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
	"golang.org/x/sys/unix"
)

var loadWork = Work{
	Name:  "load",
	Title: "Load a whole file into memory",
	Intro: `From the name of a file of 64 tensors to all of its data in memory of the process.
Warm: the file is in the page cache. Cold: it was dropped from there before every run, which mincore confirmed.
Every contestant has a process of its own.`,
	Unit:  "of file",
	Chart: "Whole file loaded (GB/s; longer is better)",
	run:   runLoad,
}

func runLoad(b *Bench) error {
	dataSize := b.size(2*giB, 4*miB)
	path, err := b.file("load.safetensors", func(path string) error {
		header, dataSize := uniform(64, dataSize).header()
		return filledFile(path, header, dataSize)
	})
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	memory, buffer, err := hugeBuffer(info.Size() &^ 4095)
	if err != nil {
		return err
	}
	defer unmap(memory)
	all := append(b.loaders(path), loadLimits(path, buffer)...)
	err = b.compare(Case{Name: "warm, " + roundSize(dataSize), Bytes: info.Size(), Contestants: only(all...)})
	if err != nil {
		return err
	}

	all = append(b.loaders(path), loadLimits(path, buffer)...)
	all = append(all, &Contestant{
		Name: "limit: pread O_DIRECT, reused memory",
		Does: "the same past the page cache",
		Run:  loop(func() error { return readParallel(path, unix.O_DIRECT, buffer) }),
	})
	cold := only(all...)
	for i := range cold {
		cold[i].Before = func() error { return evict(path) }
	}
	return b.compare(Case{Name: "cold, " + roundSize(dataSize), Bytes: info.Size(), Contestants: cold})
}

// loadTasks load a file, each in its way.
var loadTasks = map[string]func(path string) error{
	"load-ours": func(path string) error {
		f, err := safetensors.Load(path)
		if err != nil {
			return err
		}
		return f.Close()
	},
	"load-ReadFile": func(path string) error {
		_, err := os.ReadFile(path)
		return err
	},
	"load-maruel": func(path string) error {
		file, err := os.ReadFile(path)
		if err == nil {
			_, err = maruel.Parse(file)
		}
		return err
	},
	"load-nlpodyssey": func(path string) error {
		file, err := os.ReadFile(path)
		if err == nil {
			_, err = nlpodyssey.Deserialize(file)
		}
		return err
	},
}

func (b *Bench) loaders(path string) []*Contestant {
	return []*Contestant{
		b.alone("**this package**", "`Load`", "load-ours", path),
		b.alone("os.ReadFile", "the bytes alone, nothing parsed", "load-ReadFile", path),
		b.alone("maruel", "`os.ReadFile`, `Parse`", "load-maruel", path),
		b.alone("nlpodyssey", "`os.ReadFile`, `Deserialize`", "load-nlpodyssey", path),
		b.rust("safetensors", "`fs::read`, `deserialize`", "load", path),
		b.python("safetensors", "`load_file` of safetensors.numpy", "load", path),
	}
}

// loadLimits read the file with several preads at a time, into memory that is
// new as for every other contestant, and into memory that has its pages.
func loadLimits(path string, reused []byte) []*Contestant {
	clear(reused)
	return []*Contestant{{
		Name: "limit: pread, new huge pages",
		Does: "8 threads, 16 MiB at a time, into new memory with pages of 2 MiB",
		Run: loop(func() error {
			memory, buffer, err := hugeBuffer(int64(len(reused)))
			if err != nil {
				return err
			}
			defer unmap(memory)
			return readParallel(path, 0, buffer)
		}),
	}, {
		Name: "limit: pread, reused memory",
		Does: "the same into memory that the process had already touched",
		Run:  loop(func() error { return readParallel(path, 0, reused) }),
	}}
}
