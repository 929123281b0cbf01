package merge

import (
	"math"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
)

// Slerp returns what is between two models, t of the way from a to b along the arc
// between each two tensors seen as vectors (Shoemake, "Animating Rotation with
// Quaternion Curves", 1985). Tensors in nearly the same or the opposite direction are
// interpolated linearly. All else is as for Linear.
//
// The angle between two tensors is computed when the first of their elements is read:
// that reads them twice.
func Slerp(a, b checkpoint, t float64) (checkpoint, error) {
	return each([]checkpoint{a, b}, func(tensors []safetensors.Tensor) (safetensors.Tensor, error) {
		return combine(tensors, sync.OnceValues(func() ([]float64, error) {
			return arc(tensors[0], tensors[1], t)
		}))
	})
}

// arc returns the factors of two tensors.
func arc(a, b safetensors.Tensor, t float64) ([]float64, error) {
	const straight = 0.9995 // |cos| from which the sine of the angle is too small to divide by
	var dot, squaresA, squaresB float64
	var x, y []float64
	err := eachBlock(a.Shape(), func(block []safetensors.Range) error {
		var err error
		if x, err = part(x[:0], a, block); err != nil {
			return err
		}
		if y, err = part(y[:0], b, block); err != nil {
			return err
		}
		var d, p, q float64 // of the block, so that a large tensor is summed pairwise enough
		for i, v := range x {
			d += float64(v * y[i])
			p += float64(v * v)
			q += float64(y[i] * y[i])
		}
		dot, squaresA, squaresB = dot+d, squaresA+p, squaresB+q
		return nil
	})
	if err != nil {
		return nil, err
	}
	cos := dot / math.Sqrt(squaresA) / math.Sqrt(squaresB) // whose product may be beyond float64
	if !(math.Abs(cos) <= straight) {                      // or one of them is zero
		return []float64{1 - t, t}, nil
	}
	angle := math.Acos(cos)
	return []float64{math.Sin((1-t)*angle) / math.Sin(angle), math.Sin(t*angle) / math.Sin(angle)}, nil
}

// part appends the elements of a block of a tensor to dst.
func part(dst []float64, t safetensors.Tensor, block []safetensors.Range) ([]float64, error) {
	p, err := t.Slice(block...)
	if err != nil {
		return dst, err
	}
	return safetensors.Append(dst, p)
}

// eachBlock calls f for the blocks of package blocks.
func eachBlock(shape []int, f func(block []safetensors.Range) error) error {
	_, err := blocks.Join(shape, func(block []safetensors.Range, shape []int) (safetensors.Tensor, error) {
		none, _ := safetensors.NewTensorFunc(safetensors.U8, shape, func([]byte) error { return nil })
		return none, f(block)
	})
	return err
}
