// Frameworks hands tensors to two Go libraries: gonum and GoMLX.
//
//	cd examples/frameworks && go run . ../../testdata/model.safetensors lm_head.weight
//
// gonum computes in float64, so a matrix is viewed if it is F64 and converted,
// exactly, if it is of a smaller float dtype: see gonumMatrix. The pattern is the same
// everywhere: View where possible, else Append. View returns the elements in place, as the
// Go type of their dtype; where it cannot, the error wraps errors.ErrUnsupported, and
// Append copies and converts them.
//
// GoMLX has most dtypes, BF16 and F16 among them, and memory of its own, into which Append
// reads the bytes: see gomlxTensor.
//
// Since gonum writes to what it shares, main reads the file with Load: its views are
// ordinary memory. Those of Open are read-only.
//
// Given a folder, it opens the model with package quant: a quantised weight is the F32
// matrix that it stands for, which is computed as it is copied to the library.
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

// run prints what each library makes of a matrix.
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

// open opens a file, or a folder: that of a model, which may be quantised, with its
// config.json.
func open(name string) (*safetensors.File, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return quant.Open(name)
	}
	return safetensors.Load(name)
}
