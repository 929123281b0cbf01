// Inspect lists the contents of safetensors files: the tensors in file order, the
// number of parameters of each dtype, and the metadata. It reads headers only, so
// the size of a model does not matter.
//
//	go run ./examples/inspect testdata/model.safetensors
//
// A model is a file, a folder, the index of shards, a URL, or a repository on the
// Hugging Face Hub, as OWNER/NAME or OWNER/NAME@REVISION. With -json, inspect prints
// a line of JSON for each: see type listing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("inspect", flag.ExitOnError)
	asJSON := flags.Bool("json", false, "print a line of JSON for each model")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: inspect [-json] FILE|FOLDER|INDEX|URL|OWNER/NAME[@REVISION]...")
		flags.PrintDefaults()
	}
	flags.Parse(args)
	if flags.NArg() == 0 {
		return errors.New("inspect: expected a model; -h shows the usage")
	}
	// Like ls, continue after a file that cannot be listed.
	var errs []error
	listed := 0
	for _, name := range flags.Args() {
		l, err := list(name)
		switch {
		case err != nil:
		case *asJSON:
			err = printJSON(stdout, l)
		default:
			if listed > 0 {
				fmt.Fprintln(stdout)
			}
			err = printText(stdout, l)
			listed++
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("inspect: %w", err))
		}
	}
	return errors.Join(errs...)
}

// A listing is the contents of a file. Its fields are those of the JSON form.
type listing struct {
	File     string            `json:"file"`     // as named on the command line
	Metadata map[string]string `json:"metadata"` // null if the file has none
	Tensors  []tensor          `json:"tensors"`  // in file order
	DTypes   []total           `json:"dtypes"`   // in the order of their first tensor
	Total    total             `json:"total"`    // of all dtypes
}

type tensor struct {
	Name       string            `json:"name"`
	DType      safetensors.DType `json:"dtype"`      // as in the file: "BF16"
	Shape      []int             `json:"shape"`      // [] for a scalar
	Parameters int64             `json:"parameters"` // the product of the shape
	Bytes      int64             `json:"bytes"`      // in the file
}

type total struct {
	DType      safetensors.DType `json:"dtype,omitzero"` // absent in the total of all
	Tensors    int               `json:"tensors"`
	Parameters int64             `json:"parameters"`
	Bytes      int64             `json:"bytes"`
}

func (t *total) add(parameters, bytes int64) {
	t.Tensors++
	t.Parameters += parameters
	t.Bytes += bytes
}

var repository = regexp.MustCompile(`^([\w.-]+/[\w.-]+)(?:@(.+))?$`)

// open opens a model by its name. A name is a repository if it looks like one, if
// no such file exists, and if its ending is not that of a missing file.
func open(name string) (*safetensors.File, error) {
	ctx := context.Background()
	if strings.Contains(name, "://") {
		return remote.Open(ctx, name)
	}
	repo := repository.FindStringSubmatch(name)
	_, err := os.Stat(name)
	if repo != nil && errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(name, ".safetensors") && !strings.HasSuffix(name, ".json") {
		return remote.OpenRepo(ctx, repo[1], repo[2])
	}
	return safetensors.Open(name)
}

func list(name string) (*listing, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &listing{File: name, Metadata: f.Metadata(), Tensors: []tensor{}, DTypes: []total{}}
	place := make(map[safetensors.DType]int) // in l.DTypes
	for name, t := range f.Tensors() {
		size := t.Size()
		parameters := size * 8 / int64(t.DType().Bits()) // t.Len() is an int
		l.Tensors = append(l.Tensors, tensor{name, t.DType(), t.Shape(), parameters, size})
		i, ok := place[t.DType()]
		if !ok {
			i = len(l.DTypes)
			place[t.DType()] = i
			l.DTypes = append(l.DTypes, total{DType: t.DType()})
		}
		l.DTypes[i].add(parameters, size)
		l.Total.add(parameters, size)
	}
	return l, nil
}
