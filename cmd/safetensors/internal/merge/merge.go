// Package merge merges several models into one. A merged tensor is computed when it is read, block
// by block, in float32, or in float64 if the first model has F64. Its elements are rounded once.
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

// A checkpoint maps the names of a model's tensors to the tensors.
type checkpoint = map[string]safetensors.Tensor

// A number is one of the types in which merged tensors are computed.
type number interface{ float32 | float64 }

// Linear returns the sum of models, each multiplied by its weight. The models must have tensors of
// the same names and shapes. The result has the dtypes of the first model. Tensors that are not
// floats, such as counters, must be equal in all models.
func Linear(models []checkpoint, weights []float64) (checkpoint, error) {
	return each(models, always(weights), false)
}

// always returns a factorsOf that returns the same factors for all tensors.
func always(factors []float64) factorsOf {
	return func([]safetensors.Tensor) ([]float64, error) { return factors, nil }
}

// add adds an input, multiplied by its factor, to a sum.
func add[T number](sum, input []T, factor float64) {
	w := T(factor)
	for i, x := range input {
		sum[i] += T(w * x)
	}
}

// Task returns base + Σ weight·(model - base): it adds the differences between models and their
// base to the base. This is the arithmetic of task vectors (Ilharco et al., arXiv:2212.04089).
// Apart from that, the rules of Linear apply.
func Task(base checkpoint, models []checkpoint, weights []float64) (checkpoint, error) {
	return each(append([]checkpoint{base}, models...), always(weights), true)
}

// addTask adds the difference between an input and the base, multiplied by its weight, to a sum.
func addTask[T number](sum, base, input []T, weight float64) {
	w := T(weight)
	for i, x := range input {
		sum[i] += T(w * (x - base[i]))
	}
}

// checkSize returns an error for a model of more than blocks.Most bytes, a size that a header may
// falsely claim.
func checkSize(model checkpoint) error {
	left := int64(blocks.Most)
	for _, t := range model {
		if left -= t.Size(); left < 0 {
			return fmt.Errorf("the model has more than %s", term.Bytes(blocks.Most))
		}
	}
	return nil
}

// A factorsOf is a func that returns the factors for the tensors that have the same name in all
// models, one factor for each model.
type factorsOf = func(tensors []safetensors.Tensor) ([]float64, error)

// each merges the tensors of models by name. It checks first that the models fit together.
func each(models []checkpoint, factors factorsOf, task bool) (checkpoint, error) {
	first := models[0]
	if err := checkSize(first); err != nil {
		return nil, err
	}
	for k, m := range models[1:] {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if _, ok := first[name]; !ok {
				return nil, &UnpairedError{Name: name, With: k + 1, others: countMissing(m, first) - 1}
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
				return nil, &UnpairedError{Name: name, Without: k + 1, others: countMissing(first, m) - 1}
			case !slices.Equal(t.Shape(), first[name].Shape()):
				return nil, fmt.Errorf("tensor %q is %v in the first model and %v in model %d", name, first[name], t, k+2)
			}
			tensors = append(tensors, t)
		}
		t, err := mergeIf(name, tensors, factors, task)
		if err != nil {
			return nil, err
		}
		merged[name] = t
	}
	return merged, nil
}

// An UnpairedError reports a tensor that is in the model With and not in the model Without. These are
// indices, and one of them is 0.
type UnpairedError struct {
	Name          string
	With, Without int

	others int // number of other tensors that are in the model With and not in the model Without
}

func (e *UnpairedError) Error() string {
	if e.others > 0 {
		return fmt.Sprintf("%s, like %s; cp --except makes a copy without them, and cp --rename one with other names", e.Fact(), term.Plural(e.others, "other"))
	}
	return e.Fact() + "; cp --except makes a copy without it"
}

// countMissing returns the number of tensors of one model that the other model does not have.
func countMissing(of, in checkpoint) (n int) {
	for name := range of {
		if _, ok := in[name]; !ok {
			n++
		}
	}
	return n
}

// Fact returns the error without advice. It numbers the models from 1 on.
func (e *UnpairedError) Fact() string {
	if e.Without == 0 {
		return fmt.Sprintf("tensor %q is in model %d and not in the first", e.Name, e.With+1)
	}
	return fmt.Sprintf("tensor %q is in the first model and not in model %d", e.Name, e.Without+1)
}

// mergeIf merges the tensors with a name if all of them are floats. Otherwise they must be equal, and it
// returns the first.
func mergeIf(name string, tensors []safetensors.Tensor, factors factorsOf, task bool) (safetensors.Tensor, error) {
	first := tensors[0]
	mergeable := isNumber(first.DType())
	for k, t := range tensors[1:] {
		if mergeable && t.DType().IsFloat() {
			continue
		}
		same, err := Equal(first, t)
		if err != nil {
			return first, ofTensor(name, err)
		}
		if !same {
			return first, notMergeable(name, first, t, k+2)
		}
	}
	if mergeable {
		merged, err := combine(tensors, factors, task)
		return merged, ofTensor(name, err)
	}
	return first, nil
}

// ofTensor adds the name of a tensor to err, if err is not nil.
func ofTensor(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tensor %q: %w", name, term.Bare(err))
}

// notMergeable returns the error for a tensor of model number k that differs from the first one, although they are not
// both numbers.
func notMergeable(name string, first, t safetensors.Tensor, k int) error {
	what := fmt.Sprintf("(%v) has other values in model %d", first.DType(), k)
	if t.DType() != first.DType() {
		what = fmt.Sprintf("is %v in the first model and %v in model %d", first.DType(), t.DType(), k)
	}
	why := ""
	if d := first.DType(); d.IsFloat() && !isNumber(d) {
		why = " (narrower ones come with scales)"
	}
	return fmt.Errorf("tensor %q %s, and only F64, F32, F16 and BF16 can be merged%s; cp --except leaves it out", name, what, why)
}

// isNumber reports whether the elements of a dtype are numbers without scales.
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

// combine returns a tensor with the dtype and the shape of the first input. Each block of it is
// computed from the same block of all inputs. If task is true, the first input is the base, and has
// no factor.
func combine(inputs []safetensors.Tensor, factors factorsOf, task bool) (safetensors.Tensor, error) {
	if inputs[0].DType() == safetensors.F64 {
		return combineAs[float64](inputs, factors, task)
	}
	return combineAs[float32](inputs, factors, task)
}

// blocks32 and blocks64 hold buffers of type *[2][]T, for a block of the base and of one other
// input. All tensors of a job share them: if each tensor had a pool, the buffers of finished
// tensors would stay in memory until the second garbage collection afterwards.
var blocks32, blocks64 sync.Pool

// combineAs computes in the arithmetic of T. It adds one input after another, so that many inputs
// take no more memory than two.
func combineAs[T number](inputs []safetensors.Tensor, factors factorsOf, task bool) (safetensors.Tensor, error) {
	once := sync.OnceValues(func() ([]float64, error) { return factors(inputs) })
	memory := &blocks32
	if any(T(0)) == any(float64(0)) {
		memory = &blocks64
	}
	return blocks.Join(inputs[0].Shape(), func(block []safetensors.Range, shape []int) (safetensors.Tensor, error) {
		return safetensors.NewTensorFunc(inputs[0].DType(), shape, func(sum []T) error {
			by, err := once()
			if err != nil {
				return err
			}
			m, _ := memory.Get().(*[2][]T)
			if m == nil {
				m = new([2][]T)
			}
			defer memory.Put(m)
			others := inputs
			if task {
				if m[0], err = numbers(m[0][:0], inputs[0], block...); err != nil {
					return err
				}
				copy(sum, m[0])
				others = inputs[1:]
			} else {
				clear(sum)
			}
			for k, t := range others {
				if m[1], err = numbers(m[1][:0], t, block...); err != nil {
					return err
				}
				if task {
					addTask(sum, m[0], m[1], by[k])
				} else {
					add(sum, m[1], by[k])
				}
			}
			return nil
		})
	})
}

// numbers appends the elements of a block of t to dst. It rounds elements that T cannot represent.
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

// Slerp interpolates between two models. It treats each pair of tensors as vectors, and moves by
// the fraction t along the arc from a to b (Shoemake, "Animating Rotation with Quaternion Curves",
// 1985). Tensors with nearly the same or the opposite direction are interpolated linearly, as
// mergekit and others do. Apart from that, the rules of Linear apply.
//
// The angle between two tensors is computed when their first element is read, so that they are read
// twice.
func Slerp(a, b checkpoint, t float64) (checkpoint, error) {
	return each([]checkpoint{a, b}, func(tensors []safetensors.Tensor) ([]float64, error) {
		return arc(tensors[0], tensors[1], t)
	}, false)
}

// eachBlock divides two tensors into blocks with at most the given number of elements, and calls f
// with each block of a and the same block of b.
func eachBlock(most int64, a, b safetensors.Tensor, f func(a, b safetensors.Tensor) error) error {
	_, err := blocks.JoinOf(most, a.Shape(), func(block []safetensors.Range, _ []int) (safetensors.Tensor, error) {
		x, err := a.Slice(block...)
		if err != nil {
			return x, err
		}
		y, err := b.Slice(block...)
		if err != nil {
			return x, err
		}
		return x, f(x, y) // the joined result equals a, and is not used
	})
	return err
}

// arcs holds the buffers of arc, of type *[2][]float64.
var arcs sync.Pool

// arc returns the factors for two tensors at the fraction t of the arc from a to b.
func arc(a, b safetensors.Tensor, t float64) ([]float64, error) {
	// From this |cos| on, interpolation is linear. mergekit has the same limit, which is an angle of 1.8
	// degrees. The arc is at most 0.0125 % farther from the origin than the straight line there.
	const straight = 0.9995
	var dot, squaresA, squaresB float64
	memory, _ := arcs.Get().(*[2][]float64)
	if memory == nil {
		memory = new([2][]float64)
	}
	defer arcs.Put(memory)
	add := func(a, b safetensors.Tensor) (err error) {
		if memory[0], err = numbers(memory[0][:0], a); err != nil {
			return err
		}
		if memory[1], err = numbers(memory[1][:0], b); err != nil {
			return err
		}
		// These are sums over this block only, so that the sums over a large tensor lose less
		// precision.
		var d, p, q float64
		for i, v := range memory[0] {
			w := memory[1][i]
			d += float64(v * w)
			p += float64(v * v)
			q += float64(w * w)
		}
		dot, squaresA, squaresB = dot+d, squaresA+p, squaresB+q
		return nil
	}
	err := eachBlock(blocks.Elements, a, b, func(a, b safetensors.Tensor) error {
		return eachBlock(blocks.Elements/16, a, b, add)
	})
	if err != nil {
		return nil, err
	}
	cos := dot / math.Sqrt(squaresA) / math.Sqrt(squaresB) // two divisions, since the product could exceed float64
	if !(math.Abs(cos) <= straight) {                      // nearly parallel, or NaN because a tensor consists of zeros
		return []float64{1 - t, t}, nil
	}
	angle := math.Acos(cos)
	return []float64{math.Sin((1-t)*angle) / math.Sin(angle), math.Sin(t*angle) / math.Sin(angle)}, nil
}
