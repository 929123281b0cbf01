package safetensors

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"

	"github.com/gosafetensors/safetensors/internal/mem"
)

// NewTensorFunc returns a tensor whose elements are computed by fill when they are read. fill
// writes every element of dst, in row-major order. dst is pooled memory: its values are arbitrary
// at first, and fill must not use it after it returns. T is as for NewTensor.
//
// dst has all elements of the tensor, even if only a slice of it is read. To write a tensor that is
// larger than memory, compute its parts as tensors and join them with Concat, or use a Writer.
//
// All parts of the tensor that are written to one file share one call of fill; WriteShards calls
// it once per shard that holds a part. Several fills may run concurrently, but none may wait for
// another one to begin, because the other one may begin only after it returns. An error of fill, a
// panic and runtime.Goexit become the error of the operation. The error of a panic contains the
// panic's value and its place. If fill closes files that the operation still needs, the operation
// fails.
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
				err = fmt.Errorf("the func of a computed tensor panicked: %v (in %s)", p, panicPlaces())
			}
		}()
		err = errors.New("the func of a computed tensor called runtime.Goexit")
		err = f()
	}()
	<-done
	return bare(err)
}

// panicPlaces returns the place at which fill panicked, such as "main.value at main.go:50, called by
// main.fill at main.go:42". It names the innermost three calls only, because a whole stack is too long
// for an error. It must be called while the panic is being recovered.
func panicPlaces() string {
	var stack [32]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(0, stack[:])])
	var places []string
	panicking := false // whether the next frames are below runtime.gopanic: those of fill
	for more := true; more && len(places) < 3; {
		var f runtime.Frame
		f, more = frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicking = panicking || f.Function == "runtime.gopanic"
		case panicking && strings.Contains(f.Function, ".NewTensorFunc["):
			more = false // the caller of fill
		case panicking:
			places = append(places, fmt.Sprintf("%s at %s:%d", f.Function, path.Base(f.File), f.Line))
		}
	}
	return strings.Join(places, ", called by ")
}
