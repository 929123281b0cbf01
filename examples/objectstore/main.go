// Objectstore keeps checkpoints in a bucket and reads from there only what is
// needed: the headers to list the tensors, and of a tensor the part that one rank
// of a tensor-parallel group holds.
//
//	objectstore put s3://models/llama/step-2000 checkpoint
//	objectstore list s3://models/llama/step-2000
//	objectstore slice -rank 3 -of 8 -dim 0 s3://models/llama/step-2000 lm_head.weight part.safetensors
//
// Store, region and credentials come from the environment and from ~/.aws, as for
// the AWS command line. For another kind of store only bucket.go changes.
//
// This is a module of its own, so that the SDK does not become a dependency of the
// package. Its test runs these commands with an S3 server in memory:
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
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const usage = `usage: objectstore put [-max BYTES] s3://BUCKET/PREFIX CHECKPOINT
       objectstore list s3://BUCKET/PREFIX
       objectstore slice [-rank R -of N -dim D] s3://BUCKET/PREFIX TENSOR FILE`

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
	d, err := openFolder(ctx, flags.Arg(0))
	if err != nil {
		return err
	}
	switch command, operands := args[0], flags.NArg(); {
	case command == "put" && operands == 2:
		return put(stdout, d, flags.Arg(1), *maxBytes)
	case command == "list" && operands == 1:
		return list(stdout, d)
	case command == "slice" && operands == 3:
		return slice(stdout, d, flags.Arg(1), *dim, *rank, *of, flags.Arg(2))
	}
	return errors.New(usage)
}

// openFolder returns the folder of a URL like s3://models/llama/step-2000 without
// sending a request.
func openFolder(ctx context.Context, url string) (folder, error) {
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(url, "s3://"), "/")
	if !strings.HasPrefix(url, "s3://") || bucket == "" {
		return folder{}, fmt.Errorf("%q is not s3://BUCKET/PREFIX\n%s", url, usage)
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return folder{}, err
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = o.BaseEndpoint != nil // stores other than AWS have no host for each bucket
		// The store has a checksum of the whole object, not of a range.
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return folder{ctx, client, bucket, prefix}, nil
}
