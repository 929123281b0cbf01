// Package merge makes one model of several. Merged tensors are computed when they
// are read, in float32 (float64 where the first model has that), block by block, and
// rounded once.
package merge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/compare"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A checkpoint is the tensors of a model.
type checkpoint = map[string]safetensors.Tensor

// A number is a type that merges compute in.
type number interface{ float32 | float64 }

// Linear returns the sum of models, each times its weight. They must have the same
// tensors, of the same shapes; dtypes are those of the first. Tensors that are no
// floats, such as counters, have to be equal.
func Linear(models []checkpoint, weights []float64) (checkpoint, error) {
	return each(models, always(weights), false)
}

// always returns the same factors for tensors of every name.
func always(factors []float64) factorsOf {
	return func([]safetensors.Tensor) ([]float64, error) { return factors, nil }
}

func addEach[T number](sum []T, inputs [][]T, factors []float64) {
	clear(sum)
	for k, input := range inputs {
		w := T(factors[k])
		for i, x := range input {
			sum[i] += T(w * x)
		}
	}
}

// Task returns a base with what distinguishes models from it: base + Σ weight·(model -
// base), the arithmetic of task vectors (Ilharco et al., arXiv:2212.04089). All else
// is as for Linear.
func Task(base checkpoint, models []checkpoint, weights []float64) (checkpoint, error) {
	return each(append([]checkpoint{base}, models...), always(weights), true)
}

func addTasks[T number](sum []T, inputs [][]T, weights []float64) {
	base := inputs[0]
	copy(sum, base)
	for k, input := range inputs[1:] {
		w := T(weights[k])
		for i, x := range input {
			sum[i] += T(w * (x - base[i]))
		}
	}
}

// checkSize limits what a header may claim.
func checkSize(model checkpoint) error {
	left := int64(blocks.Most)
	for _, t := range model {
		if left -= t.Size(); left < 0 {
			return fmt.Errorf("the model has more than %s", term.Bytes(blocks.Most))
		}
	}
	return nil
}

// A factorsOf func returns what the tensors of one name are combined with.
type factorsOf = func(tensors []safetensors.Tensor) ([]float64, error)

// each merges the tensors of models by name, once all of them fit.
func each(models []checkpoint, factors factorsOf, task bool) (checkpoint, error) {
	first := models[0]
	if err := checkSize(first); err != nil {
		return nil, err
	}
	for k, m := range models[1:] {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if _, ok := first[name]; !ok {
				return nil, fmt.Errorf("tensor %q is in model %d and not in the first", name, k+2)
			}
		}
	}
	merged := make(checkpoint, len(first))
	for _, name := range slices.Sorted(maps.Keys(first)) {
		tensors := []safetensors.Tensor{first[name]}
		for k, m := range models[1:] {
			t, ok := m[name]
			switch {
			case !ok:
				return nil, fmt.Errorf("tensor %q is in the first model and not in model %d", name, k+2)
			case !slices.Equal(t.Shape(), first[name].Shape()):
				return nil, fmt.Errorf("tensor %q is %v in the first model and %v in model %d", name, first[name], t, k+2)
			}
			tensors = append(tensors, t)
		}
		t, err := mergeIf(tensors, factors, task)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, term.Bare(err))
		}
		merged[name] = t
	}
	return merged, nil
}

// mergeIf merges floats. Tensors that are not all floats have to be equal.
func mergeIf(tensors []safetensors.Tensor, factors factorsOf, task bool) (safetensors.Tensor, error) {
	first := tensors[0]
	mergeable := isNumber(first.DType())
	for k, t := range tensors[1:] {
		if mergeable && t.DType().IsFloat() {
			continue
		}
		same, err := Equal(first, t)
		if err != nil {
			return first, err
		}
		if !same {
			return first, fmt.Errorf("%v of the first model differs from %v of model %d, and only F64, F32, F16 and BF16 can be merged: narrower ones come with scales", first, t, k+2)
		}
	}
	if mergeable {
		return combine(tensors, factors, task)
	}
	return first, nil
}

// isNumber reports whether the elements of a dtype are numbers by themselves.
func isNumber(d safetensors.DType) bool {
	return slices.Contains([]safetensors.DType{safetensors.F64, safetensors.F32, safetensors.F16, safetensors.BF16}, d)
}

// Equal reports whether two tensors have the same dtype, shape and bytes.
func Equal(a, b safetensors.Tensor) (bool, error) {
	if a.DType() != b.DType() || !slices.Equal(a.Shape(), b.Shape()) {
		return false, nil
	}
	d, err := compare.Values(a, b, compare.Tolerance{})
	return d.Different == 0, err
}

// combine returns a tensor of the dtype and the shape of the first input, whose elements
// are computed block by block from the same block of all inputs. The first input of a task
// is its base, which has no factor.
func combine(inputs []safetensors.Tensor, factors factorsOf, task bool) (safetensors.Tensor, error) {
	if inputs[0].DType() == safetensors.F64 {
		return combineAs[float64](inputs, factors, task)
	}
	return combineAs[float32](inputs, factors, task)
}

func combineAs[T number](inputs []safetensors.Tensor, factors factorsOf, task bool) (safetensors.Tensor, error) {
	once := sync.OnceValues(func() ([]float64, error) { return factors(inputs) })
	memory := sync.Pool{New: func() any { m := make([][]T, len(inputs)); return &m }} // a block of each
	return blocks.Join(inputs[0].Shape(), func(block []safetensors.Range, shape []int) (safetensors.Tensor, error) {
		return safetensors.NewTensorFunc(inputs[0].DType(), shape, func(dst []T) error {
			by, err := once()
			if err != nil {
				return err
			}
			m := memory.Get().(*[][]T)
			defer memory.Put(m)
			for i, t := range inputs {
				if (*m)[i], err = numbers((*m)[i][:0], t, block...); err != nil {
					return err
				}
			}
			if task {
				addTasks(dst, *m, by)
			} else {
				addEach(dst, *m, by)
			}
			return nil
		})
	})
}

// numbers appends the elements of a block of t to dst, rounded if T does not have them.
func numbers[T number](dst []T, t safetensors.Tensor, block ...safetensors.Range) ([]T, error) {
	t, err := t.Slice(block...)
	if err == nil && any(T(0)) == any(float32(0)) && t.DType() == safetensors.F64 {
		t, err = t.Convert(safetensors.F32)
	}
	if err != nil {
		return nil, err
	}
	return safetensors.Append(dst, t)
}

// Slerp returns what is between two models, t of the way from a to b along the arc
// between each two tensors seen as vectors (Shoemake, "Animating Rotation with
// Quaternion Curves", 1985). Tensors in nearly the same or the opposite direction are
// interpolated linearly. All else is as for Linear.
//
// The angle between two tensors is computed when the first of their elements is read:
// that reads them twice.
func Slerp(a, b checkpoint, t float64) (checkpoint, error) {
	return each([]checkpoint{a, b}, func(tensors []safetensors.Tensor) ([]float64, error) {
		return arc(tensors[0], tensors[1], t)
	}, false)
}

// arc returns the factors of two tensors.
func arc(a, b safetensors.Tensor, t float64) ([]float64, error) {
	const straight = 0.9995 // |cos| from which the sine of the angle is too small to divide by
	var dot, squaresA, squaresB float64
	var x, y []float64
	_, err := blocks.Join(a.Shape(), func(block []safetensors.Range, _ []int) (part safetensors.Tensor, err error) {
		if x, err = numbers(x[:0], a, block...); err != nil {
			return part, err
		}
		if y, err = numbers(y[:0], b, block...); err != nil {
			return part, err
		}
		var d, p, q float64 // of the block, so that a large tensor is summed pairwise enough
		for i, v := range x {
			d += float64(v * y[i])
			p += float64(v * v)
			q += float64(y[i] * y[i])
		}
		dot, squaresA, squaresB = dot+d, squaresA+p, squaresB+q
		return a.Slice(block...) // which join to a, unused
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
