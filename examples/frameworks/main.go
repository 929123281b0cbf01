// Frameworks hands tensors to two Go libraries: gonum and GoMLX.
//
//	cd examples/frameworks && go run . ../../testdata/model.safetensors lm_head.weight
//
// gonum computes in float64. So an F64 matrix is viewed, and a matrix of a smaller float dtype is
// converted, which is exact: see gonumMatrix. The pattern is the same for every library: use View
// if possible, otherwise Append. View returns the elements in place, with the Go type of their
// dtype. If it cannot, the error wraps errors.ErrUnsupported, and Append copies and converts the
// elements.
//
// GoMLX has most dtypes, including BF16 and F16. It has memory of its own, into which Append reads
// the bytes: see gomlxTensor.
//
// gonum may write to the elements that it shares. So the program reads a file with Load, whose
// views are ordinary memory; the views of Open are read-only.
//
// If the argument is a directory, the program opens the model with package quant. A quantised
// weight is then the F32 matrix that it represents, which is computed while it is copied to the
// library.
//
// This is a module of its own, so that the libraries do not become dependencies of
// the package.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
	"gonum.org/v1/gonum/mat"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "frameworks:", err)
		os.Exit(1)
	}
}

// run prints properties of a matrix, as each library reports them.
func run(args []string, stdout io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: frameworks MODEL TENSOR")
	}
	f, err := open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	t, err := f.Tensor(args[1])
	if err != nil {
		return err
	}
	matrix, err := gonumMatrix(t)
	if err != nil {
		return fmt.Errorf("gonum: %w", err)
	}
	local, err := gomlxTensor(t)
	if err != nil {
		return fmt.Errorf("GoMLX: %w", err)
	}
	fmt.Fprintf(stdout, "%s: %v\n", args[1], t)
	fmt.Fprintf(stdout, "gonum: norm %.6g\n", mat.Norm(matrix, 2))
	fmt.Fprintf(stdout, "GoMLX: %v, %d bytes\n", local.Shape(), local.Memory())
	return nil
}

// open opens a file, or the directory of a model, which may be quantised and has its config.json.
func open(name string) (*safetensors.File, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return quant.Open(name)
	}
	return safetensors.Load(name)
}
