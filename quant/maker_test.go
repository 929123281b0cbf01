package quant_test

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// elements reads a tensor, or a slice of it.
func elements[T safetensors.Element](t testing.TB, x safetensors.Tensor, ranges ...safetensors.Range) []T {
	t.Helper()
	if ranges != nil {
		x = must(x.Slice(ranges...))
	}
	return must(safetensors.Append[T](nil, x))
}

// dequantized returns the result of Dequantize, which must not fail.
func dequantized[C string | []byte](t testing.TB, tensors map[string]safetensors.Tensor, config C) map[string]safetensors.Tensor {
	t.Helper()
	plain, err := quant.Dequantize(tensors, []byte(config))
	require.NoError(t, err, string(config))
	return plain
}

// dequantizes requires that the error of Dequantize contains want, or that there is no error if
// want is "". If config is "", there is no config.
func dequantizes(t testing.TB, tensors map[string]safetensors.Tensor, config, want string) {
	t.Helper()
	var text []byte
	if config != "" {
		text = []byte(config)
	}
	_, err := quant.Dequantize(tensors, text)
	if want == "" {
		require.NoError(t, err, config)
		return
	}
	require.ErrorContains(t, err, want)
	require.ErrorContains(t, err, "safetensors: ")
	require.Less(t, len(err.Error()), 1000)
}

// quantized returns the results of Quantize, which must not fail.
func quantized(t testing.TB, tensors map[string]safetensors.Tensor, scheme quant.Scheme) (map[string]safetensors.Tensor, []byte) {
	t.Helper()
	q, config, err := quant.Quantize(tensors, quant.Recipe{Scheme: scheme})
	require.NoError(t, err)
	return q, config
}

// A change modifies a checkpoint: without removes a tensor, zeroed adds a tensor of zeros, numbers
// adds one of integers, and bytesOf adds one of bytes.
type change = func(map[string]safetensors.Tensor)

func without(name string) change {
	return func(m map[string]safetensors.Tensor) { delete(m, name) }
}

func zeroed(name string, d safetensors.DType, shape ...int) change {
	return func(m map[string]safetensors.Tensor) {
		m[name], _ = safetensors.NewTensor(d, shape, make([]byte, size(d, shape...)))
	}
}

func numbers(name string, v ...int32) change {
	return func(m map[string]safetensors.Tensor) {
		m[name], _ = safetensors.NewTensor(safetensors.I32, []int{len(v)}, v)
	}
}

func bytesOf(name, text string) change {
	return func(m map[string]safetensors.Tensor) {
		m[name], _ = safetensors.NewTensor(safetensors.U8, []int{len(text)}, []byte(text))
	}
}

func checkpoint(changes ...change) map[string]safetensors.Tensor {
	m := map[string]safetensors.Tensor{}
	for _, change := range changes {
		change(m)
	}
	return m
}

// A maker makes random tensors, and keeps their bytes.
type maker struct {
	*rand.Rand
	tensors map[string]safetensors.Tensor
}

func newMaker() maker {
	return maker{rand.New(rand.NewPCG(1, 2)), map[string]safetensors.Tensor{}}
}

// size returns the number of bytes of a tensor.
func size(d safetensors.DType, shape ...int) int {
	n := d.Bits()
	for _, s := range shape {
		n *= s
	}
	return n / 8
}

func (m maker) put(name string, d safetensors.DType, b []byte, shape ...int) []byte {
	m.tensors[name] = must(safetensors.NewTensor(d, shape, b))
	return b
}

// dimensions adds a tensor that contains the shape [o,i].
func (m maker) dimensions(name string, o, i int) {
	m.put(name, safetensors.I64, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(o)), uint64(i)), 2)
}

// random adds a tensor of random bytes, and returns the bytes.
func (m maker) random(name string, d safetensors.DType, shape ...int) []byte {
	b := make([]byte, size(d, shape...))
	for i := range b {
		b[i] = byte(m.Uint32())
	}
	return m.put(name, d, b, shape...)
}

// floats adds a tensor of random floats, and returns their values as float32.
func (m maker) floats(name string, d safetensors.DType, shape ...int) []float32 {
	v := make([]float32, size(safetensors.U8, shape...))
	for i := range v {
		v[i] = float32(m.NormFloat64() / 16)
	}
	t := must(must(safetensors.NewTensor(safetensors.F32, shape, v)).Convert(d))
	m.put(name, d, must(safetensors.Append[byte](nil, t)), shape...)
	return must(safetensors.Append[float32](nil, m.tensors[name]))
}

// A grid returns the number of a part at a line and a position.
type grid func(line, position int) float32

// grid adds a tensor of random numbers: floats, or bytes. Bytes of U8 represent powers of two.
func (m maker) grid(name string, d safetensors.DType, shape ...int) grid {
	width := 1
	if len(shape) > 0 {
		width = shape[len(shape)-1]
	}
	var v []float32
	if d.Bits() > 8 {
		v = m.floats(name, d, shape...)
	} else {
		m.random(name, d, shape...)
		x := m.tensors[name]
		if d == safetensors.U8 {
			x = must(x.Bitcast(safetensors.F8_E8M0))
		}
		v = must(safetensors.Append[float32](nil, x))
	}
	return func(line, position int) float32 { return v[line*width+position] }
}

// codes adds a tensor whose elements hold codes of a few bits, which are packed along its lines.
func (m maker) codes(name string, d safetensors.DType, bits int, number func(code int) float32, width int, lines ...int) grid {
	words := cdiv(width*bits, d.Bits())
	b := m.random(name, d, append(lines, words)...)
	return func(line, position int) float32 {
		return number(code(b, line*words*d.Bits()+position*bits, bits))
	}
}

// values adds a tensor of values with 8 bits, or of E2M1 values in another dtype.
func (m maker) values(name string, d safetensors.DType, bits, width int, lines ...int) grid {
	if bits == 8 {
		return m.grid(name, d, append(lines, width)...)
	}
	return m.codes(name, d, 4, e2m1, width, lines...)
}

// down adds a tensor of 32-bit words, in which codes are packed down the columns.
func (m maker) down(name string, bits int, number func(code int) float32, lines, width int) grid {
	b := m.random(name, safetensors.I32, cdiv(lines*bits, 32), width)
	return func(line, column int) float32 {
		c := 0
		for k := range bits {
			bit := line*bits + k
			c |= code(b, 32*(bit/32*width+column)+bit%32, 1) << k
		}
		return number(c)
	}
}

// index adds a tensor that contains the group of each of n columns.
func (m maker) index(name string, n, groups int) func(column int) int {
	of := make([]int32, n)
	for i := range of {
		of[i] = m.Int32N(int32(groups))
	}
	numbers(name, of...)(m.tensors)
	return func(column int) int { return int(of[column]) }
}

func unsigned(code int) float32 { return float32(code) }

func offset(bits int) func(code int) float32 {
	return func(code int) float32 { return float32(code - 1<<(bits-1)) }
}

func cdiv(n, d int) int { return (n + d - 1) / d }

// code returns the number in some bits of a stream, starting at bit first.
func code(b []byte, first, bits int) int {
	v := 0
	for k := range bits {
		v |= int(b[(first+k)/8]>>((first+k)%8)&1) << k
	}
	return v
}

func e2m1(code int) float32 {
	magnitude := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7]
	if code >= 8 {
		return -magnitude
	}
	return magnitude
}

func text(v any) string {
	return string(must(json.Marshal(v)))
}

type object map[string]any

func method(name string, more object) string {
	more["quant_method"] = name
	return text(object{"quantization_config": more})
}

func compressedConfig(format string, weights object) string {
	return method("compressed-tensors", object{"format": format, "config_groups": object{"g": object{"targets": []string{"Linear"}, "weights": weights}}})
}
