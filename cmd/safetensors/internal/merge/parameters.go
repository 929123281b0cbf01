package merge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A wrapper holds the factors of the update of one parameter. peft wraps each parameter of a module
// in a module of its own, and nests these wrappers. So the names of the factors depend on how deep
// the wrapper is nested, and do not contain the name of its parameter.
type wrapper struct {
	name string // name of the tensor lora_A
	a, b safetensors.Tensor
}

// addParameters adds the updates of those target_parameters that are fused: tensors with the
// matrices of all experts. It returns the other tensors of the adapter.
func (c *config) addParameters(r *Adapted, adapter checkpoint) (rest checkpoint, err error) {
	rest = maps.Clone(adapter)
	if len(c.Parameters) == 0 {
		return rest, nil
	}
	modules := make(map[string][]wrapper)
	for _, name := range slices.Sorted(maps.Keys(adapter)) {
		outer, ok := strings.CutSuffix(name, ".lora_A.weight")
		if !ok {
			continue
		}
		module := strings.TrimPrefix(outer, "base_model.model.")
		for strings.HasSuffix(module, ".base_layer") {
			module = strings.TrimSuffix(module, ".base_layer")
		}
		other := outer + ".lora_B.weight"
		fused, err := c.fusedIn(r.Tensors, module)
		if err != nil {
			return nil, fmt.Errorf("adapter tensor %q: %w", name, err)
		}
		if len(fused) == 0 {
			continue
		}
		b, ok := adapter[other]
		if !ok {
			return nil, fmt.Errorf("adapter tensor %q comes without %q", name, other)
		}
		modules[module] = append(modules[module], wrapper{name, adapter[name], b})
		delete(rest, name)
		delete(rest, other)
	}
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		if err := c.addWrappers(r, module, modules[module]); err != nil {
			return nil, fmt.Errorf("adapter tensor %q: %w", modules[module][0].name, err)
		}
	}
	return rest, nil
}

// fusedIn returns the sorted names of the fused tensors in a module of the base that
// target_parameters names. It returns none if target_parameters names only the weight of the
// module, or nothing in the module.
func (c *config) fusedIn(base checkpoint, module string) (names []string, err error) {
	for _, p := range c.Parameters {
		dot := strings.LastIndexByte(p, '.')
		leaf := p[dot+1:]
		if parent := p[:max(dot, 0)]; parent != "" && module != parent && !strings.HasSuffix(module, "."+parent) {
			continue
		}
		name := module + "." + leaf
		t, ok := base[name]
		switch {
		case ok && len(t.Shape()) == 3:
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		case leaf == "weight":
		case dot < 0: // a name without a module may be that of a parameter in another module
		case !ok:
			return nil, fmt.Errorf("target_parameters has %q; only those named weight and fused experts are supported, and the base has no tensor %q: its experts may be tensors of their own", p, name)
		default:
			return nil, fmt.Errorf("target_parameters has %q; only those named weight and fused experts are supported, and the base has %v", p, t)
		}
	}
	slices.Sort(names)
	return names, nil
}

var errManyWays = errors.New("their shapes fit target_parameters in several ways")

// addWrappers adds the updates of the fused tensors in a module. The shapes determine which update
// belongs to which tensor, and whether a matrix is [out, in], as in most models, or [in, out].
func (c *config) addWrappers(r *Adapted, module string, wrappers []wrapper) error {
	names, err := c.fusedIn(r.Tensors, module)
	if err != nil {
		return err
	}
	if len(names) != len(wrappers) {
		return fmt.Errorf("there are %d updates of %d tensors in %q", len(wrappers), len(names), module)
	}
	var found []string // the tensor of each wrapper
	turned, ways := false, 0
	for _, transposed := range []bool{false, true} {
		permutations(names, func(order []string) {
			for i, w := range wrappers {
				if !c.fits(r.Tensors[order[i]], w, transposed) {
					return
				}
			}
			found, turned, ways = slices.Clone(order), transposed, ways+1
		})
	}
	switch {
	case ways > 1:
		return errManyWays
	case ways == 0:
		return fmt.Errorf("lora_A is %v, lora_B is %v, and the base has %v as %q: their shapes do not fit", wrappers[0].a, wrappers[0].b, r.Tensors[names[0]], names[0])
	}
	for i, w := range wrappers {
		t, err := c.addExperts(r.Tensors[found[i]], w, turned)
		if err != nil {
			return err
		}
		r.Tensors[found[i]] = t
		r.Computed = append(r.Computed, found[i])
		r.Changed++
	}
	return nil
}

// permutations calls f with each order of the names. If there are more than four names, it does not
// call f.
func permutations(names []string, f func([]string)) {
	const most = 4
	if len(names) > most {
		return
	}
	var from func(k int, order []string)
	from = func(k int, order []string) {
		if k == len(order) {
			f(order)
			return
		}
		for i := k; i < len(order); i++ {
			order[k], order[i] = order[i], order[k]
			from(k+1, order)
			order[k], order[i] = order[i], order[k]
		}
	}
	from(0, slices.Clone(names))
}

// fits reports whether the factors of f have the right shapes for w, a tensor with the matrices of
// all experts.
func (c *config) fits(w safetensors.Tensor, f wrapper, transposed bool) bool {
	s, a, b := w.Shape(), f.a.Shape(), f.b.Shape()
	if len(s) != 3 || len(a) != 2 || len(b) != 2 || s[0] == 0 {
		return false
	}
	out, in := s[1], s[2]
	if transposed {
		out, in = in, out
	}
	return a[0] == b[1] && a[0] > 0 && a[0]%s[0] == 0 && a[1] == in && b[0] == out &&
		(c.Rank == nil || *c.Rank == float64(a[0]/s[0]))
}

// addExperts returns w + scale·B·A for each expert. In lora_A, the rows of one expert follow the
// rows of another. In lora_B, the columns of the experts alternate.
func (c *config) addExperts(w safetensors.Tensor, f wrapper, transposed bool) (safetensors.Tensor, error) {
	switch {
	case !f.a.DType().IsFloat() || !f.b.DType().IsFloat():
		return w, fmt.Errorf("lora_A is %v, lora_B is %v, expected floats", f.a, f.b)
	case w.DType() == safetensors.F64 || !isNumber(w.DType()):
		return w, fmt.Errorf("the base has %v; an adapter is added to F32, F16 and BF16", w)
	}
	experts, rows, columns := w.Shape()[0], w.Shape()[1], w.Shape()[2]
	rank := f.a.Shape()[0] / experts
	var all []safetensors.Tensor
	for e := range experts {
		matrix, err := w.Slice(safetensors.Span(e, e+1))
		if err == nil {
			matrix, err = matrix.Reshape(rows, columns)
		}
		if err != nil {
			return w, err
		}
		right, err := f.a.Slice(safetensors.Span(e*rank, (e+1)*rank))
		if err != nil {
			return w, err
		}
		left, err := f.b.Slice(safetensors.All(), safetensors.From(e).By(experts))
		if err == nil && transposed {
			left, right, err = transposedProduct(left, right)
		}
		if err != nil {
			return w, err
		}
		sum, err := product(matrix, left, right, c.scale("", rank))
		if err == nil {
			sum, err = sum.Reshape(1, rows, columns)
		}
		if err != nil {
			return w, err
		}
		all = append(all, sum)
	}
	return safetensors.Concat(0, all...)
}

// transposedProduct returns the factors of the transpose of b·a, which are aᵀ and bᵀ.
func transposedProduct(b, a safetensors.Tensor) (left, right safetensors.Tensor, err error) {
	if left, err = a.Transpose(); err != nil {
		return
	}
	right, err = b.Transpose()
	return
}
