// Lazyload reads one tensor of a model, or the part of it that one rank of a tensor-parallel group
// needs. It does not read the rest of the file.
//
//	go run ./examples/lazyload testdata/model.safetensors model.norm.weight
//	go run ./examples/lazyload -rank 3 -of 8 -dim 1 testdata/model.safetensors model.embed_tokens.weight
//	go run ./examples/lazyload -rank 3 -of 8 -count testdata/model.safetensors model.embed_tokens.weight
//
// It views the elements in the mapped file if possible, and copies them otherwise. With -count it
// reads a single file through an io.ReaderAt instead, as a program would read a network disk, and
// prints how many bytes it has read for the tensor.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lazyload:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("lazyload", flag.ExitOnError)
	rank := flags.Int("rank", 0, "the `part` to read, from 0")
	parts := flags.Int("of", 1, "the number of equal parts, one for each rank")
	dim := flags.Int("dim", 0, "the `dimension` to divide: 0 for rows, 1 for columns")
	count := flags.Bool("count", false, "read through an io.ReaderAt and count the bytes")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: lazyload [-rank R -of N -dim D] [-count] MODEL TENSOR")
		flags.PrintDefaults()
	}
	flags.Parse(args)
	if flags.NArg() != 2 {
		return errors.New("expected a model and the name of a tensor; -h shows the usage")
	}
	if *count {
		return countPart(stdout, flags.Arg(0), flags.Arg(1), *dim, *rank, *parts)
	}
	f, err := safetensors.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer f.Close() // views are invalid afterwards, so printPart must have used them
	return printPart(stdout, f, flags.Arg(1), *dim, *rank, *parts)
}

// countPart is like printPart, but reads the file through an io.ReaderAt, and also prints how many
// bytes it has read for the part.
func countPart(stdout io.Writer, model, name string, dim, rank, parts int) error {
	file, err := os.Open(model)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	r := &countingReader{ReaderAt: file}
	f, err := safetensors.NewFile(r, info.Size())
	if err != nil {
		return err
	}
	r.n.Store(0) // does not count the header
	if err := printPart(stdout, f, name, dim, rank, parts); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "read %d bytes besides the header, of the %d bytes of the file\n", r.n.Load(), info.Size())
	return nil
}

// printPart prints one rank's part of a tensor, which dimension dim divides into parts of equal
// size. Only View or Append reads data.
func printPart(w io.Writer, f *safetensors.File, name string, dim, rank, parts int) error {
	t, err := f.Tensor(name)
	if err == nil && parts != 1 { // a scalar has no dimension to divide
		t, err = t.Part(dim, rank, parts)
	}
	if err == nil && t.DType() == safetensors.F64 {
		t, err = t.Convert(safetensors.F32) // rounds; Append itself converts the smaller floats, because that is exact
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %v\n", name, t)
	values, err := safetensors.View[float32](t)
	if errors.Is(err, errors.ErrUnsupported) {
		fmt.Fprintln(w, "no view, so copied:", err)
		values, err = safetensors.Append[float32](nil, t)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d elements: %g ...\n", len(values), values[:min(4, len(values))])
	return nil
}

// A countingReader counts the bytes that concurrent calls of ReadAt return.
type countingReader struct {
	io.ReaderAt
	n atomic.Int64
}

func (r *countingReader) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(b, off)
	r.n.Add(int64(n))
	return n, err
}
