package bench

import (
	"errors"
	"maps"
	"os"
	"path/filepath"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
	"golang.org/x/sys/unix"
)

var writeWork = Work{
	Name:  "write",
	Title: "Write a file",
	Intro: `64 tensors in memory, 1 GiB together, to a new file. Returned: the data is in the page cache and fsync costs
nothing, because the file is on a tmpfs (WriteFile of this package always calls it). On the disk without fsync:
this package through Write, which cannot know where the bytes go. Durable: with fsync of the file and of its folder by all.
Memory is the peak of resident memory beyond the tensors.`,
	Unit:  "of file",
	Chart: "File written (GB/s; longer is better)",
	run:   runWrite,
}

// A writing is the tensors of the work in the types of each package.
type writing struct {
	source     string // the file they come from
	file       []byte // and all of its bytes
	ours       map[string]safetensors.Tensor
	maruel     *maruel.File
	nlpodyssey map[string]nlpodyssey.TensorView
}

func runWrite(b *Bench) error {
	path, err := b.file("write.safetensors", func(path string) error {
		header, dataSize := uniform(64, b.size(giB, 4*miB)).header()
		return filledFile(path, header, dataSize)
	})
	if err != nil {
		return err
	}
	w, err := readWriting(path)
	if err != nil {
		return err
	}
	ram, err := os.MkdirTemp(b.RAMDir, "safetensors-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(ram)
	for _, c := range []struct {
		name        string
		memory      bool
		contestants []*Contestant
	}{
		{"returned, tmpfs", false, b.writers(w, filepath.Join(ram, "new.safetensors"), false, w.writeFile)},
		{"returned, disk", false, b.writers(w, filepath.Join(b.Dir, "new.safetensors"), false, w.write)},
		{"durable, disk", true, b.writers(w, filepath.Join(b.Dir, "new.safetensors"), true, w.writeFile)},
	} {
		err := b.compare(Case{Name: c.name, Bytes: int64(len(w.file)), Memory: c.memory, Contestants: only(c.contestants...)})
		if err != nil {
			return err
		}
	}
	return nil
}

func readWriting(path string) (*writing, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	ours, err := safetensors.Parse(file)
	if err != nil {
		return nil, err
	}
	w := &writing{source: path, file: file, ours: maps.Collect(ours.Tensors())}
	if w.maruel, err = maruel.Parse(file); err != nil {
		return nil, err
	}
	theirs, err := nlpodyssey.Deserialize(file)
	if err != nil {
		return nil, err
	}
	w.nlpodyssey = make(map[string]nlpodyssey.TensorView)
	for _, t := range theirs.Tensors() {
		w.nlpodyssey[t.Name] = t.TensorView
	}
	return w, nil
}

// writeFile and write are this package with and without its fsync.
func (w *writing) writeFile(target string) Contestant {
	return Contestant{
		Name: "**this package**",
		Does: "`WriteFile`: a temporary file, fsync, rename, fsync of the folder",
		Run:  loop(func() error { return safetensors.WriteFile(target, w.ours, nil) }),
	}
}

func (w *writing) write(target string) Contestant {
	return Contestant{
		Name: "**this package**",
		Does: "`Write` to an `os.File`",
		Run: loop(func() error {
			return create(target, false, func(f *os.File) error { return safetensors.Write(f, w.ours, nil) })
		}),
	}
}

func (b *Bench) writers(w *writing, target string, durable bool, ours func(target string) Contestant) []*Contestant {
	task, and := "write", ""
	if durable {
		task, and = "write-fsync", ", fsync of file and folder"
	}
	first := ours(target)
	all := []*Contestant{
		&first,
		{Name: "maruel", Does: "`Serialize` to an `os.File`" + and, Run: loop(func() error {
			return create(target, durable, func(f *os.File) error { return w.maruel.Serialize(f) })
		})},
		{Name: "nlpodyssey", Does: "`SerializeToWriter` to an `os.File`" + and, Run: loop(func() error {
			return create(target, durable, func(f *os.File) error {
				return nlpodyssey.SerializeToWriter(w.nlpodyssey, nil, f)
			})
		})},
		b.rust("safetensors", "`serialize_to_file`: a temporary file, rename"+and, task, w.source, target),
		b.python("safetensors", "`save_file`"+and, task, w.source, target),
		{Name: "limit: pwrite", Does: "fallocate, then 16 MiB at a time, 8 threads" + and, Run: loop(func() error {
			err := writeParallel(target, w.file)
			if err == nil && durable {
				err = syncFile(target, filepath.Dir(target))
			}
			return err
		})},
	}
	for _, c := range all {
		if c != nil {
			c.Before = func() error { return startClean(target) }
		}
	}
	return all
}

// create writes a new file.
func create(target string, durable bool, write func(*os.File) error) error {
	f, err := os.Create(target)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil || !durable {
		return err
	}
	return syncFile(target, filepath.Dir(target))
}

// startClean removes what was written before and waits until the disk is idle.
func startClean(target string) error {
	err := os.Remove(target)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	unix.Sync()
	return err
}
