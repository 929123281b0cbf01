package bench

import (
	"fmt"
	"os"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
)

var openWork = Work{
	Name:  "open",
	Title: "Open a file and look at one tensor",
	Intro: `From the name of a file with 723 tensors to the first element of one of them, and close it again.
The data is a hole in the file, so that its size can be any; only the page with that element is ever read.`,
	run: runOpen,
}

func runOpen(b *Bench) error {
	for _, dataSize := range []int64{b.size(64*miB, miB*8), b.size(4*giB, 16*miB), b.size(tiB, 32*miB)} {
		name := fmt.Sprintf("open-%d.safetensors", dataSize)
		path, err := b.file(name, func(path string) error {
			header, dataSize := uniform(722, dataSize).header()
			return sparseFile(path, header, dataSize)
		})
		if err != nil {
			return err
		}
		if err := b.openOne(path, dataSize); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) openOne(path string, dataSize int64) error {
	const tensor = "norm"
	all := []*Contestant{
		{Name: "**this package**", Does: "`Open`, `Tensor`, `View`, `Close`",
			Run: loop(func() error { return openOurs(path, tensor) })},
		{Name: "maruel", Does: "`Mapped.Open`, search of the list, `Data`, `Close`",
			Run: loop(func() error { return openMaruel(path, tensor) })},
		b.rust("safetensors", "`Mmap::map`, `deserialize`, `tensor`, unmap", "open", path, tensor),
		b.python("safetensors", "`safe_open`, `get_tensor` (copies that tensor)", "open", path, tensor),
	}
	if dataSize <= 4*giB {
		all = append(all, &Contestant{Name: "nlpodyssey", Does: "`os.ReadFile` as its documentation shows, `Deserialize`, `Tensor`",
			Run: loop(func() error { return openNLPOdyssey(path, tensor) })})
	}
	return b.compare(Case{Name: roundSize(dataSize), Memory: true, Contestants: only(all...)})
}

func openOurs(path, tensor string) error {
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	t, err := f.Tensor(tensor)
	if err != nil {
		return err
	}
	view, err := safetensors.View[uint16](t)
	if err != nil {
		return err
	}
	sink.Store(uint64(view[0]))
	return nil
}

func openMaruel(path, tensor string) error {
	var f maruel.Mapped
	if err := f.Open(path); err != nil {
		return err
	}
	defer f.Close()
	for _, t := range f.Tensors {
		if t.Name == tensor {
			sink.Store(uint64(t.Data[0]))
			return nil
		}
	}
	return os.ErrNotExist
}

func openNLPOdyssey(path, tensor string) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := nlpodyssey.Deserialize(file)
	if err != nil {
		return err
	}
	t, ok := f.Tensor(tensor)
	if !ok {
		return os.ErrNotExist
	}
	sink.Store(uint64(t.Data()[0]))
	return nil
}
