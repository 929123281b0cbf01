package merge

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// random returns a tensor of random values, rounded to a dtype, and the values.
func random(t *testing.T, r *rand.Rand, d safetensors.DType, shape ...int) (safetensors.Tensor, []float64) {
	n := 1
	for _, size := range shape {
		n *= size
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	tensor := must(must(safetensors.NewTensor(safetensors.F32, shape, x)).Convert(d))
	return tensor, values(t, tensor)
}

func values(t *testing.T, tensor safetensors.Tensor) []float64 {
	return must(safetensors.Append[float64](nil, tensor))
}

// requireRounded requires that a tensor has the values, rounded once to its dtype.
func requireRounded(t *testing.T, want []float64, got safetensors.Tensor) {
	x := make([]float32, len(want))
	for i, v := range want {
		x[i] = float32(v)
	}
	w := must(safetensors.NewTensor(safetensors.F32, got.Shape(), x))
	require.True(t, slices.Equal(values(t, must(w.Convert(got.DType()))), values(t, got)), "%v", got)
}

// shapes are those of tensors below one block, of several blocks, of rows larger than a
// block, and with dimensions of 0 and 1.
var shapes = [][]int{{}, {0}, {7}, {3, 5}, {0, 4}, {blocks.Elements + 3}, {3, blocks.Elements/2 + 1}, {2, 1, blocks.Elements + 5}, {1, 1, 3}}

// TestLinear compares sums of models of several dtypes and shapes with sums of single elements,
// rounded once.
func TestLinear(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, shape := range shapes {
		a, x := random(t, r, safetensors.BF16, shape...)
		b, y := random(t, r, safetensors.F16, shape...)
		merged := must(Linear([]checkpoint{{"w": a}, {"w": b}}, []float64{0.5, 0.25}))
		require.Equal(t, a.DType(), merged["w"].DType())
		require.Equal(t, len(shape), len(merged["w"].Shape()))
		for i := range x {
			x[i] = float64(float32(0.5*x[i]) + float32(0.25*y[i]))
		}
		requireRounded(t, x, merged["w"])
	}
}

// TestLinearInFloat64: the dtype of the first model decides whether sums are computed in float64.
func TestLinearInFloat64(t *testing.T) {
	a := must(safetensors.NewTensor(safetensors.F64, []int{2}, []float64{1, 1e-300}))
	b := must(safetensors.NewTensor(safetensors.F32, []int{2}, []float32{1, 0}))
	merged := must(Linear([]checkpoint{{"w": a}, {"w": b}}, []float64{1.0 / 3, 1.0 / 7}))
	require.Equal(t, []float64{1.0/3 + 1.0/7, 1e-300 / 3}, values(t, merged["w"]))
	merged = must(Linear([]checkpoint{{"w": b}, {"w": a}}, []float64{0.5, 0.5}))
	require.Equal(t, []float64{1, 0}, values(t, merged["w"]), "the first decides")
}

// TestTask compares base + Σ weight·(model - base) with the same computed for single elements.
func TestTask(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	base, x := random(t, r, safetensors.F32, 3, 50)
	a, y := random(t, r, safetensors.F32, 3, 50)
	b, z := random(t, r, safetensors.BF16, 3, 50)
	merged := must(Task(checkpoint{"w": base}, []checkpoint{{"w": a}, {"w": b}}, []float64{0.5, 2}))
	want := make([]float64, len(x))
	for i := range want {
		sum := float32(x[i])
		sum += 0.5 * (float32(y[i]) - float32(x[i]))
		sum += 2 * (float32(z[i]) - float32(x[i]))
		want[i] = float64(sum)
	}
	requireRounded(t, want, merged["w"])
}

// TestSlerp interpolates between vectors whose results are known, among them parallel, opposite and
// zero ones.
func TestSlerp(t *testing.T) {
	eighth := math.Sin(math.Pi/8) / math.Sin(math.Pi/4)
	for _, c := range []struct {
		a, b   []float64
		amount float64
		want   []float64
	}{
		{[]float64{2, 0}, []float64{0, 2}, 0.5, []float64{math.Sqrt2, math.Sqrt2}}, // on the circle
		{[]float64{1, 0}, []float64{0, 1}, 1.0 / 3, []float64{math.Cos(math.Pi / 6), math.Sin(math.Pi / 6)}},
		{[]float64{1, 2}, []float64{1, 2}, 0.25, []float64{1, 2}}, // straight
		{[]float64{1, 2}, []float64{-1, -2}, 0.25, []float64{0.5, 1}},
		{[]float64{1, 2}, []float64{0, 0}, 0.25, []float64{0.75, 1.5}},
		{[]float64{0x1p300, 0}, []float64{0x1p300, 0x1p300}, 0.5, []float64{2 * eighth * 0x1p300, eighth * 0x1p300}}, // products of norms are beyond float64
		{[]float64{0x1p-300, 0}, []float64{0x1p-300, 0x1p-300}, 0.5, []float64{2 * eighth * 0x1p-300, eighth * 0x1p-300}},
	} {
		a := must(safetensors.NewTensor(safetensors.F64, []int{2}, c.a))
		b := must(safetensors.NewTensor(safetensors.F64, []int{2}, c.b))
		got := values(t, must(Slerp(checkpoint{"w": a}, checkpoint{"w": b}, c.amount))["w"])
		require.InEpsilonSlice(t, c.want, got, 1e-12, "%v %v", c.a, c.b)
	}
}

// TestClaims refuses models whose list of blocks would not fit into memory.
func TestClaims(t *testing.T) {
	x := must(safetensors.NewTensorAt(safetensors.F32, []int{1 << 15, 1 << 15, 1 << 15, 1 << 12}, bytes.NewReader(nil)))
	_, err := Linear([]checkpoint{{"w": x}, {"w": x}}, []float64{1, 1})
	require.EqualError(t, err, "the model has more than 8.0 TB")
	_, err = LoRA(checkpoint{"w": x}, nil, []byte("{}"))
	require.EqualError(t, err, "the model has more than 8.0 TB")

	// The largest model has exactly 8.0 TB.
	x = must(safetensors.NewTensorAt(safetensors.F32, []int{1 << 13, 15625, 15625}, bytes.NewReader(nil)))
	_, err = Linear([]checkpoint{{"w": x}, {"w": x}}, []float64{1, 1})
	require.NoError(t, err)
}

// TestModelsThatDoNotFit: models whose names, shapes or counters differ are refused before anything
// is computed.
func TestModelsThatDoNotFit(t *testing.T) {
	f := func(d safetensors.DType, shape ...int) safetensors.Tensor {
		return must(safetensors.NewTensorFunc(d, shape, func(b []byte) error { clear(b); return nil }))
	}
	ones := must(safetensors.NewTensor(safetensors.I64, []int{2}, []int64{0, 1}))
	for _, c := range []struct {
		a, b checkpoint
		want string
	}{
		{checkpoint{"x": f(safetensors.F32, 2)}, checkpoint{}, `tensor "x" is in the first model and not in model 2; cp --except makes a copy without it`},
		{checkpoint{}, checkpoint{"x": f(safetensors.F32, 2)}, `tensor "x" is in model 2 and not in the first; cp --except makes a copy without it`},
		{checkpoint{}, checkpoint{"x": ones, "y": ones}, `tensor "x" is in model 2 and not in the first, like 1 other; cp --except makes a copy without them, and cp --rename one with other names`},
		{checkpoint{"x": ones, "y": ones, "z": ones}, checkpoint{}, `tensor "x" is in the first model and not in model 2, like 2 others; cp --except`},
		{checkpoint{"x": f(safetensors.F32, 2)}, checkpoint{"x": f(safetensors.F32, 3)}, `tensor "x" is F32 [2] in the first model and F32 [3] in model 2`},
		{checkpoint{"x": f(safetensors.I64, 2)}, checkpoint{"x": ones}, `tensor "x" (I64) has other values in model 2, and only F64, F32, F16 and BF16 can be merged; cp --except leaves it out`},
		{checkpoint{"x": f(safetensors.BOOL, 16)}, checkpoint{"x": must(ones.Bitcast(safetensors.BOOL))}, `tensor "x" (BOOL) has other values in model 2, and only F64, F32, F16 and BF16 can be merged; cp --except`},
		{checkpoint{"x": f(safetensors.F8_E4M3, 16)}, checkpoint{"x": must(ones.Bitcast(safetensors.F8_E4M3))},
			`tensor "x" (F8_E4M3) has other values in model 2, and only F64, F32, F16 and BF16 can be merged (narrower ones come with scales); cp --except leaves it out`},
		{checkpoint{"x": f(safetensors.I64, 2)}, checkpoint{"x": f(safetensors.U64, 2)}, `tensor "x" is I64 in the first model and U64 in model 2, and only`},
		{checkpoint{"x": f(safetensors.F32, 2)}, checkpoint{"x": f(safetensors.U8, 2)}, `tensor "x" is F32 in the first model and U8 in model 2, and only F64, F32, F16 and BF16 can be merged; cp`},
	} {
		_, err := Linear([]checkpoint{c.a, c.b}, []float64{1, 1})
		require.ErrorContains(t, err, c.want)
	}
	merged := must(Linear([]checkpoint{{"x": ones}, {"x": ones}}, []float64{1, 1}))
	require.Equal(t, []int64{0, 1}, must(safetensors.Append[int64](nil, merged["x"])), "as it is")
}

// TestSlices requires that parts of a merged tensor are those of the whole.
func TestSlices(t *testing.T) {
	a, _ := random(t, rand.New(rand.NewPCG(5, 6)), safetensors.BF16, 5, blocks.Elements/2)
	merged := must(Linear([]checkpoint{{"w": a}, {"w": a}}, []float64{0.5, 0.25}))
	var whole bytes.Buffer
	must(merged["w"].WriteTo(&whole))
	part := must(merged["w"].Slice(safetensors.Span(1, 4), safetensors.Span(10, 20)))
	got := must(safetensors.Append[byte](nil, part))
	var want []byte
	for row := 1; row < 4; row++ {
		want = append(want, whole.Bytes()[(row*blocks.Elements/2+10)*2:][:20]...)
	}
	require.Equal(t, want, got)
}
