package merge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// LoRA returns a base with an adapter of the Python package peft merged into it: W +
// scale·B·A (Hu et al., arXiv:2106.09685), with scale = alpha/r, or alpha/√r with rsLoRA
// (Kalajdzievski, arXiv:2312.03732); biases of B are added, times scale. Tensors that the
// adapter holds whole, as modules to save and biases, replace those of the base. config is
// its adapter_config.json. merged counts the tensors that the adapter changes.
func LoRA(base, adapter checkpoint, config []byte) (all checkpoint, merged int, err error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, 0, fmt.Errorf("adapter_config.json: %w", err)
	}
	if err := checkSize(base); err != nil {
		return nil, 0, err
	}
	all = maps.Clone(base)
	changed := make(map[string]part)                         // by the tensor of the base
	for _, name := range slices.Sorted(maps.Keys(adapter)) { // what replaces one comes before what is added
		p := partOf(name)
		t, w, other := adapter[name], all[p.target], adapter[p.other]
		before, twice := changed[p.target]
		switch {
		case w.DType() == 0:
			return nil, 0, fmt.Errorf("adapter tensor %q: the base has no tensor %q", name, p.target)
		case p.letter != 0 && !t.DType().IsFloat():
			return nil, 0, fmt.Errorf("adapter tensor %q is %v, expected floats", name, t)
		case p.letter != 0 && (w.DType() == safetensors.F64 || !isNumber(w.DType())):
			return nil, 0, fmt.Errorf("adapter tensor %q: the base has %v; an adapter is added to F32, F16 and BF16", name, w)
		case twice && p.letter != 'B' && (p.letter == 0 || before.letter != 0):
			return nil, 0, fmt.Errorf("adapter tensors %q and %q are both for %q", before.name, name, p.target)
		case p.letter != 0 && other.DType() == 0:
			return nil, 0, fmt.Errorf("adapter tensor %q comes without %q", name, p.other)
		}
		switch p.letter {
		case 'A':
			all[p.target], err = c.add(w, other, t, p)
		case 'B': // added with A
			continue
		case 'b':
			all[p.target], err = c.addBias(w, t, other, p.module)
		default:
			all[p.target], err = replace(w, t)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("adapter tensor %q: %w", name, err)
		}
		changed[p.target] = p
		merged++
	}
	return all, merged, nil
}

// A part is what a tensor of an adapter is.
type part struct {
	name, module string
	target       string // the tensor of the base that it changes
	letter       byte   // A or B, the factors of an update; b of the bias of B; 0 of what replaces the target
	other        string // the tensor that A, B and b come with
}

// kinds are the parts by the ends of their names.
var kinds = []struct {
	end, target, other string
	letter             byte
}{
	{".lora_A.weight", ".weight", ".lora_B.weight", 'A'},
	{".lora_B.weight", ".weight", ".lora_A.weight", 'B'},
	{".lora_embedding_A", ".weight", ".lora_embedding_B", 'A'},
	{".lora_embedding_B", ".weight", ".lora_embedding_A", 'B'},
	{".lora_B.bias", ".bias", ".lora_B.weight", 'b'},
	{".base_layer.weight", ".weight", "", 0}, // of a module that has got an adapter
	{".base_layer.bias", ".bias", "", 0},
}

func partOf(name string) part {
	target := strings.TrimPrefix(name, "base_model.model.")
	for _, k := range kinds {
		if module, ok := strings.CutSuffix(target, k.end); ok {
			return part{name, module, module + k.target, k.letter, strings.TrimSuffix(name, k.end) + k.other}
		}
	}
	return part{name: name, target: target}
}

// replace returns what an adapter holds whole, in the dtype of the base.
func replace(w, whole safetensors.Tensor) (safetensors.Tensor, error) {
	if !slices.Equal(w.Shape(), whole.Shape()) {
		return w, fmt.Errorf("it is %v, that of the base is %v", whole, w)
	}
	if whole.DType() == w.DType() { // perhaps of integers, which Convert refuses
		return whole, nil
	}
	return whole.Convert(w.DType())
}

// add returns w + scale·b·a, or its transpose for weights that are stored as [in, out].
func (c *config) add(w, b, a safetensors.Tensor, p part) (safetensors.Tensor, error) {
	s := slices.Concat(w.Shape(), b.Shape(), a.Shape()) // out, in, out, r, r, in
	if len(w.Shape()) != 2 || len(b.Shape()) != 2 || len(s) != 6 {
		return w, fmt.Errorf("the base has %v, lora_B is %v, lora_A is %v: expected matrices", w, b, a)
	}
	transposed := strings.HasSuffix(p.name, ".lora_embedding_A") || c.FanInFanOut
	out, in := s[0], s[1]
	if transposed {
		out, in = in, out
	}
	if s[2] != out || s[3] != s[4] || s[5] != in || s[3] == 0 {
		return w, fmt.Errorf("the base has %v, lora_B is %v, lora_A is %v: their shapes do not fit", w, b, a)
	}
	if want := valueOf(c.ranks, p.module, c.Rank); want != nil && *want != float64(s[3]) {
		return w, fmt.Errorf("its rank is %d, adapter_config.json says %g", s[3], *want)
	}
	if !transposed {
		return product(w, b, a, c.scale(p.module, s[3]))
	}
	left, err := a.Transpose() // (B·A)ᵀ = Aᵀ·Bᵀ
	right, errB := b.Transpose()
	if err = cmp.Or(err, errB); err != nil {
		return w, err
	}
	return product(w, left, right, c.scale(p.module, s[3]))
}

// addBias returns w + scale·bias. b is the matrix that the bias belongs to.
func (c *config) addBias(w, bias, b safetensors.Tensor, module string) (safetensors.Tensor, error) {
	shape := b.Shape()
	switch {
	case len(shape) != 2 || shape[1] == 0:
		return w, fmt.Errorf("lora_B is %v, expected a matrix", b)
	case len(w.Shape()) != 1 || !slices.Equal(w.Shape(), bias.Shape()):
		return w, fmt.Errorf("the base has %v, the bias is %v: their shapes do not fit", w, bias)
	}
	factors := []float64{1, float64(c.scale(module, shape[1]))}
	return combine([]safetensors.Tensor{w, bias}, always(factors), false)
}

// product returns w + scale·left·right.
func product(w, left, right safetensors.Tensor, scale float32) (safetensors.Tensor, error) {
	return blocks.Join(w.Shape(), func(block []safetensors.Range, shape []int) (safetensors.Tensor, error) {
		ofRows := block[:min(len(block), 1)]
		ofColumns := append([]safetensors.Range{safetensors.All()}, block[len(ofRows):]...)
		return safetensors.NewTensorFunc(w.DType(), shape, func(sum []float32) error {
			if _, err := numbers(sum[:0], w, block...); err != nil {
				return err
			}
			l, err := numbers[float32](nil, left, ofRows...)
			if err != nil {
				return err
			}
			r, err := numbers[float32](nil, right, ofColumns...)
			if err != nil || len(sum) == 0 {
				return err
			}
			rows, columns, rank := shape[0], shape[1], left.Shape()[1]
			gonum.Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, rows, columns, rank, scale, l, rank, r, columns, 1, sum, columns)
			return nil
		})
	})
}
