package merge

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

var errUnplugged = errors.New("unplugged")

// A faulty set of tensors fails at one of the reads of their elements.
type faulty struct{ at, seen int }

// through returns a tensor with the same elements that fails if it is the turn of the read.
func (f *faulty) through(t safetensors.Tensor) safetensors.Tensor {
	return must(safetensors.NewTensorFunc(t.DType(), t.Shape(), func(dst []byte) error {
		if f.seen++; f.seen == f.at {
			return errUnplugged
		}
		_, err := safetensors.Append(dst[:0], t)
		return err
	}))
}

func (f *faulty) all(tensors checkpoint) checkpoint {
	faulty := make(checkpoint)
	for name, t := range tensors {
		faulty[name] = f.through(t)
	}
	return faulty
}

// TestEveryReadFails: whatever is merged, a read that fails is the error of the merge, or of the tensor that needs it.
func TestEveryReadFails(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	f := func(d safetensors.DType, shape ...int) safetensors.Tensor {
		x, _ := random(t, r, d, shape...)
		return x
	}
	codes := must(safetensors.NewTensor(safetensors.I8, []int{3}, []int8{1, 2, 3}))
	a := checkpoint{"w": f(safetensors.F32, 4, 5), "codes": codes}
	b := checkpoint{"w": f(safetensors.BF16, 4, 5), "codes": codes}
	base := checkpoint{"model.layers.0.q_proj.weight": f(safetensors.F32, 4, 5), "model.layers.0.q_proj.bias": f(safetensors.F32, 4)}
	square := checkpoint{"model.layers.0.q_proj.weight": f(safetensors.F16, 5, 4)}
	adapter := checkpoint{module + ".lora_A.weight": f(safetensors.F32, 2, 5), module + ".lora_B.weight": f(safetensors.F32, 4, 2)}
	withBias := checkpoint{module + ".lora_B.bias": f(safetensors.F32, 4)}
	for name, x := range adapter {
		withBias[name] = x
	}
	fused := checkpoint{"mlp.experts.up": f(safetensors.F32, 3, 5, 4)}
	turned := checkpoint{"mlp.experts.up": f(safetensors.F32, 3, 4, 5)}
	factors := checkpoint{experts + ".lora_A.weight": f(safetensors.F32, 6, 4), experts + ".lora_B.weight": f(safetensors.F32, 5, 6)}
	lora := func(base, adapter checkpoint, config string) func(*faulty) (checkpoint, error) {
		return func(f *faulty) (checkpoint, error) {
			got, err := LoRA(f.all(base), f.all(adapter), []byte(config))
			if err != nil {
				return nil, err
			}
			return got.Tensors, nil
		}
	}
	for name, merge := range map[string]func(*faulty) (checkpoint, error){
		"linear": func(f *faulty) (checkpoint, error) {
			return Linear([]checkpoint{f.all(a), f.all(b)}, []float64{0.5, 0.5})
		},
		"task":       func(f *faulty) (checkpoint, error) { return Task(f.all(a), []checkpoint{f.all(b)}, []float64{0.5}) },
		"slerp":      func(f *faulty) (checkpoint, error) { return Slerp(f.all(a), f.all(b), 0.5) },
		"lora":       lora(base, adapter, `{}`),
		"transposed": lora(square, adapter, `{"fan_in_fan_out": true}`),
		"bias":       lora(base, withBias, `{"lora_bias": true}`),
		"whole":      lora(base, checkpoint{"base_model.model.model.layers.0.q_proj.weight": f(safetensors.BF16, 4, 5)}, `{}`),
		"experts":    lora(fused, factors, `{"r": 2, "target_parameters": ["mlp.experts.up"]}`),
		"turned":     lora(turned, factors, `{"r": 2, "target_parameters": ["mlp.experts.up"]}`),
	} {
		for at := 1; ; at++ {
			f := &faulty{at: at}
			merged, err := merge(f)
			for _, x := range merged {
				if err == nil {
					_, err = safetensors.Append[float64](nil, x)
				}
				if errors.Is(err, errors.ErrUnsupported) || err != nil && strings.Contains(err.Error(), "I8") {
					_, err = safetensors.Append[byte](nil, must(x.Bitcast(safetensors.U8)))
				}
			}
			if f.seen < at {
				require.NoError(t, err, name)
				require.Greater(t, at, 1, name)
				break
			}
			require.ErrorIs(t, err, errUnplugged, fmt.Sprintf("%s, read %d", name, at))
		}
	}
}

// TestMergeableFirst: each tensor that is not of floats is compared with the first, wherever it is among those of floats.
func TestMergeableFirst(t *testing.T) {
	f := func(d safetensors.DType) safetensors.Tensor {
		return must(safetensors.NewTensorFunc(d, []int{2}, func(b []byte) error { clear(b); return nil }))
	}
	floats, codes := f(safetensors.F32), f(safetensors.U8)
	for k := 1; k < 4; k++ {
		models := []checkpoint{{"x": floats}, {"x": floats}, {"x": floats}, {"x": floats}}
		models[k] = checkpoint{"x": codes}
		_, err := Linear(models, []float64{1, 1, 1, 1})
		require.ErrorContains(t, err, fmt.Sprintf("is F32 in the first model and U8 in model %d,", k+1))
	}
}

// TestLoRAShapes: matrices of which any dimension does not fit are refused, and each number of dimensions but two.
func TestLoRAShapes(t *testing.T) {
	f := func(shape ...int) safetensors.Tensor {
		return must(safetensors.NewTensorFunc(safetensors.F32, shape, func(b []float32) error { clear(b); return nil }))
	}
	for _, c := range []struct {
		w, b, a []int
		want    string // of the error; "" for none
	}{
		{[]int{4, 5}, []int{4, 2}, []int{2, 5}, ""},
		{[]int{4, 5}, []int{4, 1}, []int{1, 5}, ""},
		{[]int{3, 5}, []int{4, 2}, []int{2, 5}, "their shapes do not fit"},
		{[]int{4, 6}, []int{4, 2}, []int{2, 5}, "their shapes do not fit"},
		{[]int{4, 5}, []int{4, 3}, []int{2, 5}, "their shapes do not fit"},
		{[]int{4, 5}, []int{4, 0}, []int{0, 5}, "their shapes do not fit"},
		{[]int{4}, []int{4, 2}, []int{2, 5}, "expected matrices"},
		{[]int{4}, []int{4, 2, 2}, []int{2, 5}, "expected matrices"},
		{[]int{4, 5}, []int{4}, []int{4, 2, 5}, "expected matrices"},
		{[]int{4, 5}, []int{4, 2}, []int{2}, "expected matrices"},
		{[]int{4, 5, 4}, []int{2}, []int{2, 5}, "expected matrices"},
		{[]int{4, 5}, []int{4, 2}, []int{2, 5, 1}, "expected matrices"},
	} {
		base := checkpoint{"model.layers.0.q_proj.weight": f(c.w...)}
		_, err := LoRA(base, checkpoint{module + ".lora_A.weight": f(c.a...), module + ".lora_B.weight": f(c.b...)}, []byte(`{}`))
		if c.want == "" {
			require.NoError(t, err, "%v", c)
		} else {
			require.ErrorContains(t, err, c.want, "%v", c)
		}
	}
	for rank, want := range map[int]string{2: "", 3: "its rank is 2, adapter_config.json specifies 3"} {
		_, err := LoRA(checkpoint{"model.layers.0.q_proj.weight": f(4, 5)}, checkpoint{module + ".lora_A.weight": f(2, 5), module + ".lora_B.weight": f(4, 2)},
			fmt.Appendf(nil, `{"r": %d}`, rank))
		require.Equal(t, want == "", err == nil)
	}

	for _, c := range []struct {
		w, b, bias []int
		ok         bool
	}{
		{[]int{4}, []int{4, 2}, []int{4}, true}, {[]int{4}, []int{4, 1}, []int{4}, true}, {[]int{4}, []int{4, 0}, []int{4}, false}, {[]int{4}, []int{4}, []int{4}, false},
		{[]int{4}, []int{4, 2, 1}, []int{4}, false}, {[]int{4}, []int{4, 2}, []int{5}, false}, {[]int{4, 1}, []int{4, 2}, []int{4, 1}, false}, {[]int{4}, []int{4, 2}, []int{4, 1}, false},
	} {
		base := checkpoint{"model.layers.0.q_proj.weight": f(4, 5), "model.layers.0.q_proj.bias": f(c.w...)}
		b := checkpoint{module + ".lora_A.weight": f(2, 5), module + ".lora_B.weight": f(c.b...), module + ".lora_B.bias": f(c.bias...)}
		if len(c.b) == 2 {
			b[module+".lora_A.weight"] = f(c.b[1], 5)
		}
		_, err := LoRA(base, b, []byte(`{"lora_bias": true}`))
		require.Equal(t, c.ok, err == nil, "%v: %v", c, err)
	}

	// A module of one expert, and experts whose shapes do not fit.
	for _, c := range []struct {
		w, b, a []int
		ok      bool
	}{
		{[]int{1, 5, 4}, []int{5, 2}, []int{2, 4}, true}, {[]int{2, 5, 4}, []int{5, 4}, []int{4, 4}, true}, {[]int{1, 4, 5}, []int{5, 2}, []int{2, 4}, true},
		{[]int{0, 5, 4}, []int{5, 2}, []int{2, 4}, false}, {[]int{3, 5, 4}, []int{5, 2}, []int{2, 4}, false}, {[]int{1, 5, 4}, []int{5, 2, 1}, []int{2, 4}, false},
		{[]int{1, 5, 4}, []int{5, 2}, []int{2, 4, 1}, false}, {[]int{1, 5, 4}, []int{5, 0}, []int{0, 4}, false}, {[]int{1, 5, 4}, []int{5, 3}, []int{2, 4}, false},
		{[]int{1, 5, 4}, []int{6, 2}, []int{2, 4}, false}, {[]int{1, 5, 4}, []int{5, 2}, []int{2, 6}, false}, {[]int{1, 5, 4}, []int{5, 1}, []int{1, 4}, false},
	} {
		_, err := LoRA(checkpoint{"mlp.experts.up": f(c.w...)}, checkpoint{experts + ".lora_A.weight": f(c.a...), experts + ".lora_B.weight": f(c.b...)},
			[]byte(`{"r": 2, "target_parameters": ["mlp.experts.up"]}`))
		require.Equal(t, c.ok, err == nil, "%v: %v", c, err)
	}
	for rank, config := range map[int]string{0: `{"r": 0, %s}`, 1: `{"r": 1, %s}`, 2: `{%s}`} {
		_, err := LoRA(checkpoint{"mlp.experts.up": f(1, 5, 4)}, checkpoint{experts + ".lora_A.weight": f(rank, 4), experts + ".lora_B.weight": f(5, rank)},
			fmt.Appendf(nil, config, `"target_parameters": ["mlp.experts.up"]`))
		require.Equal(t, rank > 0, err == nil, "%d: %v", rank, err)
	}
}
