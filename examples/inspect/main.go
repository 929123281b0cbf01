// Inspect lists the contents of a safetensors file: its tensors in file order, the
// number of parameters of each dtype, and the metadata. It reads the header only, so
// the size of a model does not matter.
//
//	go run ./examples/inspect testdata/model.safetensors
//
// The argument is a file, a directory, the index of a model in shards, or the URL of a file or an
// index. For everyday use there is the command safetensors, which reads more sources and prints
// trees and JSON.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: inspect FILE|FOLDER|INDEX|URL")
		os.Exit(2)
	}
	if err := inspect(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// open opens a model. If its name is a URL, it is read by range requests.
func open(name string) (*safetensors.File, error) {
	if strings.Contains(name, "://") {
		return remote.Open(context.Background(), name)
	}
	return safetensors.Open(name)
}

func inspect(stdout io.Writer, name string) error {
	f, err := open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(stdout) // Flush returns the first error of all writes
	for name, t := range f.Tensors() {
		fmt.Fprintf(w, "%-50q %-20v %10d bytes\n", name, t, t.Size()) // quoted, because names may contain escape sequences
	}
	fmt.Fprintln(w, "\nparameters")
	count := f.ParameterCount()
	for _, dtype := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(w, "%-11v %12d\n", dtype, count[dtype])
	}
	metadata := f.Metadata()
	if len(metadata) > 0 {
		fmt.Fprintln(w, "\nmetadata")
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		fmt.Fprintf(w, "%q: %.80q\n", key, metadata[key])
	}
	return w.Flush()
}
