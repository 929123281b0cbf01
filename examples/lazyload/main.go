// Lazyload reads one tensor out of a file, or the part of it that one rank of a
// tensor-parallel group needs, and leaves the rest of the file on the disk.
//
//	go run ./examples/lazyload testdata/model.safetensors model.embed_tokens.weight
//	go run ./examples/lazyload -rank 3 -of 8 -dim 1 testdata/model.safetensors model.embed_tokens.weight
//
// It maps the file, and copies only where it has to. With -copy it reads through
// an io.ReaderAt instead: then there are no views, and all that is read is a copy
// that stays valid when the file is closed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/gosafetensors/safetensors"
	"golang.org/x/exp/mmap"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lazyload:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	var s shard
	flags := flag.NewFlagSet("lazyload", flag.ExitOnError)
	flags.IntVar(&s.rank, "rank", 0, "the `shard` to read, from 0")
	flags.IntVar(&s.of, "of", 1, "the number of shards, one for each rank")
	flags.IntVar(&s.dim, "dim", 0, "the `dimension` that is cut: 0 for rows, 1 for columns")
	copying := flags.Bool("copy", false, "read through an io.ReaderAt rather than map the file")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: lazyload [-copy] [-rank R -of N -dim D] FILE TENSOR")
		flags.PrintDefaults()
	}
	flags.Parse(args)
	if flags.NArg() != 2 {
		return errors.New("a file and the name of a tensor are needed; -h shows the usage")
	}
	name := flags.Arg(0)
	s.tensor = flags.Arg(1)
	if *copying {
		return copyShard(stdout, name, s)
	}
	return viewShard(stdout, name, s)
}

// viewShard reads from a mapping.
func viewShard(stdout io.Writer, name string, s shard) error {
	f, err := safetensors.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // a view ends here, so all that uses it comes before
	t, err := s.find(f)
	if err != nil {
		return err
	}
	how := "viewed in the file, without a copy"
	values, err := safetensors.View[float32](t)
	if err != nil { // not F32, not contiguous or not aligned: Append takes them all
		how = fmt.Sprintf("copied, as there is no view (%v)", err)
		if values, err = safetensors.Append[float32](nil, t); err != nil {
			return fmt.Errorf("%s: %w", s.tensor, err)
		}
	}
	describe(stdout, s, t, values)
	fmt.Fprintln(stdout, how)
	return nil
}

// copyShard reads through an io.ReaderAt, which is asked only for the bytes that
// are needed. Here it is a mapping again. An *os.File serves as well, and is the
// better choice if others may truncate the file; so does an object store.
func copyShard(stdout io.Writer, name string, s shard) error {
	r, err := mmap.Open(name)
	if err != nil {
		return fmt.Errorf("mapping %s: %w", name, err)
	}
	defer r.Close()
	counting := &countingReaderAt{r: r}
	f, err := safetensors.NewFile(counting, int64(r.Len()))
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	header := counting.bytes.Load()
	t, err := s.find(f)
	if err != nil {
		return err
	}
	values, err := safetensors.Append[float32](nil, t)
	if err != nil {
		return fmt.Errorf("%s: %w", s.tensor, err)
	}
	describe(stdout, s, t, values)
	fmt.Fprintf(stdout, "read %d bytes for the header and %d for the tensor, of %d in the file\n",
		header, counting.bytes.Load()-header, r.Len())
	return nil
}
