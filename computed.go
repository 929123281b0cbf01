package safetensors

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gosafetensors/safetensors/internal/mem"
)

// NewTensorFunc returns a tensor whose elements are computed by fill when they are read. fill
// writes every element of dst, in row-major order. dst is pooled memory: its values are arbitrary
// at first, and fill must not use it after it returns. T is as for NewTensor.
//
// All parts of the tensor that are written to one file share one call of fill; WriteShards calls
// it once per shard that holds a part. Several fills may run concurrently, and none may wait for
// another. An error of fill, a panic and runtime.Goexit become the error of the operation. If
// fill closes files, the operation fails if it still needs them.
func NewTensorFunc[T Element](dtype DType, shape []int, fill func(dst []T) error) (Tensor, error) {
	if fill == nil {
		return Tensor{}, prefixed(errors.New("the func of a computed tensor is nil"))
	}
	t, err := newTensor[T](dtype, shape)
	if err != nil {
		return Tensor{}, prefixed(err)
	}
	t.origin = &computed{
		size: t.size,
		fill: func(b []byte) error {
			dst, _ := mem.SliceOf[T](b) // memory of results is aligned for every Element
			err := call(func() error { return fill(dst) })
			mem.Swap[T](b)
			return err
		},
	}
	return t, nil
}

// A computed is the origin of a computed tensor: the func that produces its data.
type computed struct {
	size int64                // size of the result in bytes
	fill func(b []byte) error // fills b with the elements, encoded as in a file
}

func (c *computed) notInMemory() string { return "its elements are computed" }

// call calls f on a goroutine of its own and turns a panic and runtime.Goexit into errors.
func call(f func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the func of a computed tensor panicked: %v\n\n%s", p, debug.Stack())
			}
		}()
		err = errors.New("the func of a computed tensor called runtime.Goexit")
		err = f()
	}()
	<-done
	return bare(err)
}
