package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// errDiffer ends the comparison of Equal at the first block that differs.
var errDiffer = errors.New("the tensors differ")

// Equal reports whether a and b have the same dtype, the same shape and the same bytes, as
// WriteTo writes them. So +0 and -0 differ, and NaNs are equal if their bits are.
//
// Equal reads nothing if the dtype or the shape differs; otherwise it reads both tensors, block by
// block in constant memory, and stops at the first block that differs. Tensors from Transpose and
// NewTensorFunc need additional memory. If a read fails before a difference is found, Equal returns
// that error and false. The zero Tensor is an error.
func Equal(a, b Tensor) (bool, error) {
	equal, err := equalTensors(a, b)
	return equal, prefixed(err)
}

func equalTensors(a, b Tensor) (bool, error) {
	if err := errors.Join(a.check(), b.check()); err != nil {
		return false, err
	}
	if a.dtype != b.dtype || !slices.Equal(a.shape, b.shape) {
		return false, nil
	}
	first, err := a.open()
	if err != nil {
		return false, fmt.Errorf("reading %v: %w", a, err)
	}
	defer first.release()
	second, err := b.open()
	if err != nil {
		return false, fmt.Errorf("reading %v: %w", b, err)
	}
	defer second.release()
	both := streams{first, second}
	block := both.block()
	workers := min(both.workers(), blocksAhead(block))
	err = parallel.Blocks(workers, a.Size(), block, func(pos, n int64) error {
		return compareBlock(both, pos, n)
	})
	if err == errDiffer {
		return false, nil
	}
	return err == nil, err
}

// compareBlock compares n bytes of two streams from position pos on. It returns errDiffer if
// they differ.
func compareBlock(both streams, pos, n int64) error {
	var blocks [2]*mem.Block
	for i, s := range both {
		b, err := mem.Filled(n, func(b []byte) error { return s.readAt(b, pos) })
		if err != nil {
			return err
		}
		defer b.Free()
		blocks[i] = b
	}
	if !bytes.Equal(blocks[0].Bytes, blocks[1].Bytes) {
		return errDiffer
	}
	return nil
}
