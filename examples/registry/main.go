// Registry keeps checkpoints in a container registry, as artifacts of the CNCF
// ModelPack specification (https://github.com/modelpack/model-spec), and reads from
// there only what is needed: the headers to list the tensors, and of a tensor the
// part that one rank of a tensor-parallel group holds.
//
//	registry push registry.example/llama:step-2000 checkpoint
//	registry list registry.example/llama:step-2000
//	registry slice -rank 3 -of 8 -dim 0 registry.example/llama:step-2000 lm_head.weight part.safetensors
//	registry pull registry.example/llama:step-2000 copy
//
// Each file of the folder becomes a layer: neither packed nor compressed, so that a
// range of the layer is a range of the file. Models that Docker's model runner has
// packaged can be read too. Credentials are those of "docker login".
//
// A registry names a layer by its digest. pull and push check it; a range of a layer
// cannot be checked, so that list and slice trust the registry and its connection.
// The registry must serve ranges. The distribution specification leaves that open, but
// those that are built on CNCF Distribution or redirect to a bucket do.
//
// This is a module of its own, so that the registry client does not become a
// dependency of the package. Its tests run these commands with a registry in memory:
//
//	cd examples/registry && go test .
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

const usage = `usage: registry push REFERENCE FOLDER
       registry list REFERENCE
       registry slice [-rank R -of N -dim D] REFERENCE TENSOR FILE
       registry pull REFERENCE FOLDER`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("registry", flag.ExitOnError)
	rank := flags.Int("rank", 0, "slice: the `part` to read, from 0")
	of := flags.Int("of", 1, "slice: the number of equal parts, one for each rank")
	dim := flags.Int("dim", 0, "slice: the `dimension` to divide")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags.Parse(args[1:])
	switch command, operands := args[0], flags.NArg(); {
	case command == "push" && operands == 2:
		return push(ctx, stdout, flags.Arg(0), flags.Arg(1))
	case command == "list" && operands == 1:
		return list(ctx, stdout, flags.Arg(0))
	case command == "slice" && operands == 3:
		return slice(ctx, stdout, flags.Arg(0), flags.Arg(1), *dim, *rank, *of, flags.Arg(2))
	case command == "pull" && operands == 2:
		return pull(ctx, stdout, flags.Arg(0), flags.Arg(1))
	}
	return errors.New(usage)
}
