// Objectstore keeps checkpoints in a bucket of S3, Google Cloud Storage or Azure
// Blob Storage and reads from there only what is needed: the headers to list the
// tensors, and of one tensor the part that one rank of a tensor-parallel group holds.
//
//	objectstore put s3://models/llama/step-2000 checkpoint
//	objectstore list gs://models/llama/step-2000
//	objectstore slice -rank 3 -of 8 -dim 0 azblob://models/llama/step-2000 lm_head.weight part.safetensors
//
// The path of the URL is the prefix of the keys of the objects, its query holds the
// parameters of https://gocloud.dev/howto/blob. Credentials come from the
// environment, as for the command line of each provider. A server that speaks S3 is
// s3://models/llama/step-2000?endpoint=http://127.0.0.1:9000&region=us-east-1&use_path_style=true,
// a folder file:///mnt/llama/step-2000?create_dir=true&no_tmp_dir=true.
//
// A training program writes its checkpoints in the same way, with one process for
// each shard: see the example of the test, and doc/cluster.md.
//
// This is a module of its own, so that the SDKs do not become dependencies of the
// package. Its tests run these commands with an S3 server on the loopback interface:
//
//	cd examples/objectstore && go test .
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

const usage = `usage: objectstore put [-max BYTES] URL CHECKPOINT
       objectstore list URL
       objectstore slice [-rank R -of N -dim D] URL TENSOR FILE`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "objectstore:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("objectstore", flag.ExitOnError)
	maxBytes := flags.Int64("max", 5_000_000_000, "put: the data of a shard in `bytes`")
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
	var do func(folder) error
	switch command, operands := args[0], flags.NArg(); {
	case command == "put" && operands == 2:
		do = func(d folder) error { return put(stdout, d, flags.Arg(1), *maxBytes) }
	case command == "list" && operands == 1:
		do = func(d folder) error { return list(stdout, d) }
	case command == "slice" && operands == 3:
		do = func(d folder) error { return slice(stdout, d, flags.Arg(1), *dim, *rank, *of, flags.Arg(2)) }
	default:
		return errors.New(usage)
	}
	d, err := openFolder(ctx, flags.Arg(0))
	if err != nil {
		return err
	}
	defer d.Close()
	return do(d)
}
