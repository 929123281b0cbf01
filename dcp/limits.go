package dcp

import (
	"errors"
	"fmt"

	"github.com/gosafetensors/safetensors"
)

const (
	// shardsAtOnce is the number of files that are opened concurrently. Latency dominates, because
	// headers are small.
	shardsAtOnce = 20

	// maxFiles and maxRank limit checkpoints. PyTorch has tensors of up to 64 dimensions, which is
	// maxRank.
	maxFiles = 10_000
	maxRank  = 64

	suffix = ".safetensors"
)

func checkCount(files int) error {
	if files > maxFiles {
		return fmt.Errorf("%d files exceed the limit of %d", files, maxFiles)
	}
	return nil
}

// closeAll closes all files that are not nil.
func closeAll(files []*safetensors.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
