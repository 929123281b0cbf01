package quant_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/stretchr/testify/require"
)

// zeros is an endless file of zeros.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// TestReadsWhatItNeeds reads an element, a few rows and a few columns of tensors with 2^40
// elements, in each packing. It may compute a few thousand superfluous elements, because that costs
// less than another read.
func TestReadsWhatItNeeds(t *testing.T) {
	const n = 1 << 20
	for _, c := range sizedLayouts(2, n, n) {
		t.Run(c.name, func(t *testing.T) {
			if math.MaxInt == math.MaxInt32 {
				t.Skip("the tensors are larger than memory can be")
			}
			file := onDisk{zeros{}, new(disk)}
			parts := zerosOf(file, c.parts...)
			if _, ok := parts["a.weight_shape"]; ok {
				numbers("a.weight_shape", n, n)(parts)
			}
			plain := dequantized(t, parts, c.config)
			require.Zero(t, file.bytes.Load())
			for _, x := range plain {
				last := func(row, column safetensors.Range) []safetensors.Range {
					return append(slices.Repeat([]safetensors.Range{safetensors.Span(0, 1)}, len(x.Shape())-2), row, column)
				}
				for _, s := range []struct {
					ranges []safetensors.Range
					most   int // largest number of elements
				}{
					{last(safetensors.Span(1000, 1001), safetensors.Span(5000, 5001)), 32},
					{last(safetensors.Span(1000, 1001), safetensors.Span(5000, 6000)), 32 * 1000},
					{last(safetensors.Span(1000, 1010), safetensors.Span(5000, 5100)), 4*1000 + 4096},
					{last(safetensors.Span(0, 4096), safetensors.Span(7, 8)), 32 * 4096},
					{last(safetensors.Span(1000, 2000).By(10), safetensors.Span(5000, 6000).By(10)), 4*10000 + 32*4096},
				} {
					file.bytes.Store(0)
					elements[float32](t, x, s.ranges...)
					// These bytes are for values, and as many again for scales and zero points if
					// each element has its own.
					require.Less(t, file.bytes.Load(), int64(s.most*(c.bits+32)/8+64), "%v", s.ranges)
				}
			}
		})
	}
}

// TestReadsTogether: a range that starts within an element takes no more reads than any other, and
// the elements of a column are computed together.
func TestReadsTogether(t *testing.T) {
	const n = 1 << 12
	file := onDisk{zeros{}, new(disk)}
	parts := zerosOf(file, "qweight", safetensors.I32, []int{n / 8, n}, "qzeros", safetensors.I32, []int{n / 128, n / 8}, "scales", safetensors.F16, []int{n / 128, n})
	x := dequantized(t, parts, method("gptq", object{"bits": 4, "group_size": 128}))["a.weight"]
	reads := func(off int64) int64 {
		file.reads.Store(0)
		must(x.ReadAt(make([]byte, 1<<20), off))
		return file.reads.Load()
	}
	require.LessOrEqual(t, reads(4*n+1), 2*reads(4*n))
	file.reads.Store(0)
	elements[float32](t, x, safetensors.All(), safetensors.Span(7, 8))
	require.EqualValues(t, len(parts), file.reads.Load())
}

// A sizedLayout is a quantised matrix: the suffixes, dtypes and shapes of its parts.
type sizedLayout struct {
	name, config string
	bits         int // number of bits of a value
	parts        []any
}

// sizedLayouts returns layouts of matrices with o rows and i columns. A layout that may hold
// several matrices holds this number of them.
func sizedLayouts(matrices, o, i int) []sizedLayout {
	packed := []any{"weight_packed", safetensors.I32, []int{o, i / 8}, "weight_scale", safetensors.BF16, []int{o, i / 128}, "weight_shape", safetensors.I64, []int{2}}
	return []sizedLayout{
		{"FP8Block", method("fp8", object{"weight_block_size": []int{128, 128}}), 8,
			[]any{"weight", safetensors.F8_E4M3, []int{o, i}, "weight_scale_inv", safetensors.F32, []int{o / 128, i / 128}}},
		{"FP8Channel", method("fp8", object{}), 8,
			[]any{"weight", safetensors.F8_E4M3, []int{o, i}, "weight_scale", safetensors.F32, []int{o, 1}}},
		{"NVFP4", "{}", 4,
			[]any{"weight_packed", safetensors.U8, []int{o, i / 2}, "weight_scale", safetensors.F8_E4M3, []int{o, i / 16}, "weight_global_scale", safetensors.F32, []int{1}}},
		{"MXFP4", "{}", 4, []any{"weight_packed", safetensors.U8, []int{o, i / 2}, "weight_scale", safetensors.U8, []int{o, i / 32}}},
		{"GPTOSS", method("mxfp4", object{}), 4,
			[]any{"_blocks", safetensors.U8, []int{matrices, o, i / 32, 16}, "_scales", safetensors.U8, []int{matrices, o, i / 32}}},
		{"Int4", "{}", 4, packed},
		{"Int4Zero", "{}", 4, append(packed, "weight_zero_point", safetensors.I32, []int{o / 8, i / 128})},
		{"GPTQ", method("gptq", object{"bits": 4, "group_size": 128}), 4,
			[]any{"qweight", safetensors.I32, []int{i / 8, o}, "qzeros", safetensors.I32, []int{i / 128, o / 8}, "scales", safetensors.F16, []int{i / 128, o}}},
		{"GPTQ3", method("gptq", object{"bits": 3, "group_size": 128}), 3,
			[]any{"qweight", safetensors.I32, []int{i / 32 * 3, o}, "qzeros", safetensors.I32, []int{i / 128, o / 32 * 3}, "scales", safetensors.F16, []int{i / 128, o}}},
		{"AWQ", method("awq", object{"bits": 4, "group_size": 128}), 4,
			[]any{"qweight", safetensors.I32, []int{i, o / 8}, "qzeros", safetensors.I32, []int{i / 128, o / 8}, "scales", safetensors.F16, []int{i / 128, o}}},
		{"MLX", text(object{"quantization": object{"bits": 4, "group_size": 64}}), 4,
			[]any{"weight", safetensors.U32, []int{o, i / 8}, "scales", safetensors.BF16, []int{o, i / 64}, "biases", safetensors.BF16, []int{o, i / 64}}},
	}
}

// eachPart calls put for each part of the module "a". parts contains a suffix, a dtype and a shape
// for each of them.
func eachPart(parts []any, put func(name string, d safetensors.DType, shape []int)) {
	for ; len(parts) > 0; parts = parts[3:] {
		suffix := parts[0].(string)
		if suffix[0] != '_' {
			suffix = "." + suffix
		}
		put("a"+suffix, parts[1].(safetensors.DType), parts[2].([]int))
	}
}

// zerosOf returns the parts that eachPart describes, as tensors in a file.
func zerosOf(file io.ReaderAt, parts ...any) map[string]safetensors.Tensor {
	m := map[string]safetensors.Tensor{}
	eachPart(parts, func(name string, d safetensors.DType, shape []int) {
		m[name], _ = safetensors.NewTensorAt(d, shape, file)
	})
	return m
}

// TestShapesInOneRead: opening a checkpoint with hundreds of modules does not take hundreds of
// requests.
func TestShapesInOneRead(t *testing.T) {
	m := newMaker()
	const modules = 300
	for i := range modules {
		stem := fmt.Sprintf("layers.%d.", i)
		m.random(stem+"weight_packed", safetensors.I32, 3, 2)
		m.floats(stem+"weight_scale", safetensors.BF16, 3, 1)
		m.tensors[stem+"weight_shape"], _ = safetensors.NewTensor(safetensors.I64, []int{2}, []int64{3, 9 + int64(i)%8})
	}
	m.random("other.weight", safetensors.F8_E4M3, 3, 2) // a module that stores no shape
	m.floats("other.weight_scale", safetensors.BF16, 3, 1)
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, m.tensors, nil))
	file := onDisk{bytes.NewReader(b.Bytes()), new(disk)}
	f := must(safetensors.NewFile(file, int64(b.Len())))
	file.reads.Store(0)
	config := []byte(compressedConfig("mixed-precision", object{"num_bits": 4, "type": "int", "strategy": "channel"}))
	tensors := maps.Collect(f.Tensors())
	plain := dequantized(t, tensors, config)
	require.EqualValues(t, 1, file.reads.Load())
	numbers("layers.5.weight_shape", 3, 14)(tensors) // a shape of 32-bit integers among shapes of 64-bit integers
	mixed := dequantized(t, tensors, config)
	for i := range modules {
		name := fmt.Sprintf("layers.%d.weight", i)
		require.Equal(t, []int{3, 9 + i%8}, plain[name].Shape())
		require.Equal(t, []int{3, 9 + i%8}, mixed[name].Shape())
	}

	cut := b.Bytes()[:b.Len()-modules*6*4-modules*3*2-1] // packed values and scales come after the shapes
	for name, x := range tensors {
		if x.DType() == safetensors.I64 {
			tensors[name] = must(safetensors.NewTensorAt(x.DType(), x.Shape(), bytes.NewReader(cut[len(cut)-3:])))
		}
	}
	_, err := quant.Dequantize(tensors, config)
	require.ErrorContains(t, err, `weight_shape": packed integers: `)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestScatteredGroups reads columns whose groups are far apart. The scales between these groups
// need not be in memory at the same time.
func TestScatteredGroups(t *testing.T) {
	const rows, columns = 2048, 1 << 15
	index := make([]int32, columns)
	for i := range index {
		index[i] = int32(i % 2 * (columns/8 - 1))
	}
	m := zerosOf(zeros{}, "weight_packed", safetensors.I32, []int{rows, columns / 8}, "weight_scale", safetensors.BF16, []int{rows, columns / 8})
	numbers("a.weight_g_idx", index...)(m)
	numbers("a.weight_shape", rows, columns)(m)
	plain := dequantized(t, m, compressedConfig("pack-quantized", object{"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8}))
	for _, n := range []int{2, 512} {
		part := must(plain["a.weight"].Slice(safetensors.All(), safetensors.Span(10, 10+n)))
		most := testplatform.Allocated(func() { require.Equal(t, make([]float32, n*rows), elements[float32](t, part)) })
		require.Less(t, most, uint64(20<<20+n*rows*8), "its scales are 32 MiB as float32")
	}
}

// TestWideRows quantises a row of 2^57 columns, which no memory can hold. Reading a result is an
// error.
func TestWideRows(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("the tensor is larger than memory can be")
	}
	for _, columns := range []int64{1 << 57, 1<<57 + 128} {
		x := must(safetensors.NewTensorAt(safetensors.F32, []int{1, int(columns)}, endless{}))
		for _, scheme := range schemes {
			q, _ := quantized(t, map[string]safetensors.Tensor{"a.weight": x}, scheme)
			require.Greater(t, len(q), 1)
			for _, part := range q {
				if part.Size() > 1<<40 {
					_, err := part.ReadAt(make([]byte, 1), 1<<40)
					require.ErrorContains(t, err, "exceed the address space")
				}
			}
		}
	}
}

// TestBandsOfColumns reads columns of a quantised tensor. The rows of the source are read once.
func TestBandsOfColumns(t *testing.T) {
	m := newMaker()
	m.floats("a.weight", safetensors.BF16, 256, 512)
	data := elements[byte](t, m.tensors["a.weight"])
	file := onDisk{bytes.NewReader(data), new(disk)}
	x := must(safetensors.NewTensorAt(safetensors.BF16, []int{256, 512}, file))
	for _, scheme := range schemes {
		q, _ := quantized(t, map[string]safetensors.Tensor{"a.weight": x}, scheme)
		for name, whole := range q {
			if len(whole.Shape()) < 2 || whole.Shape()[1] < 2 {
				continue
			}
			want := elements[byte](t, whole)
			file.bytes.Store(0)
			requireColumn(t, whole, want)
			require.LessOrEqual(t, file.bytes.Load(), int64(len(data)), "%s %s", scheme, name)
		}
	}
}

// requireColumn reads a column of a matrix whose bytes are whole, and compares it.
func requireColumn(t *testing.T, x safetensors.Tensor, whole []byte) {
	t.Helper()
	column := []safetensors.Range{safetensors.All(), safetensors.Span(1, 2)}
	want := must(safetensors.NewTensor(x.DType(), x.Shape(), whole))
	require.Equal(t, elements[byte](t, want, column...), elements[byte](t, x, column...))
}

// TestScatteredLines: reading GPTQ columns whose groups are far apart reads little more than their
// own scales, and not all scales between them.
func TestScatteredLines(t *testing.T) {
	const n, rows = 1 << 16, 2048
	number := make([]int32, n)
	for i := range number {
		number[i] = int32(i * 1000 % n)
	}
	file := onDisk{zeros{}, new(disk)}
	parts := zerosOf(file, "qweight", safetensors.I32, []int{n / 8, rows}, "qzeros", safetensors.I32, []int{n, rows / 8}, "scales", safetensors.F16, []int{n, rows})
	parts["a.g_idx"] = must(safetensors.NewTensor(safetensors.I32, []int{n}, number))
	plain := dequantized(t, parts, method("gptq", object{"bits": 4, "group_size": 1}))
	for _, columns := range []int{1, 2, 64} {
		file.bytes.Store(0)
		elements[float32](t, plain["a.weight"], safetensors.All(), safetensors.Span(n/2, n/2+columns))
		const word, scale, zero = 4, 2, 4
		require.LessOrEqual(t, file.bytes.Load(), int64(columns*rows*(word+16*scale+zero)))
	}
}

// BenchmarkDequantize computes the F32 numbers of 16 M elements in memory, for one layout after
// another. "plain" is the conversion of F8_E4M3 without scales.
func BenchmarkDequantize(b *testing.B) {
	const o, i = 4096, 4096
	for _, c := range append([]sizedLayout{
		{"GPTQScattered", method("gptq", object{"bits": 4, "group_size": 128}), 4,
			[]any{"qweight", safetensors.I32, []int{i / 8, o}, "qzeros", safetensors.I32, []int{i / 128, o / 8}, "scales", safetensors.F16, []int{i / 128, o}, "g_idx", safetensors.I32, []int{i}}},
		{"Plain", "{}", 8, []any{"weight", safetensors.F8_E4M3, []int{o, i}}},
		{"PlainF4", "{}", 4, []any{"weight", safetensors.F4, []int{o, i}}},
	}, sizedLayouts(1, o, i)...) {
		b.Run(c.name, func(b *testing.B) {
			m := newMaker()
			eachPart(c.parts, func(name string, d safetensors.DType, shape []int) {
				if name == "a.g_idx" {
					groups := make([]int32, i)
					for k, at := range m.Perm(i) {
						groups[k] = int32(at / 128)
					}
					m.tensors[name] = must(safetensors.NewTensor(d, shape, groups))
					return
				}
				switch d {
				case safetensors.I64:
					m.dimensions(name, o, i)
				case safetensors.F32, safetensors.BF16, safetensors.F16:
					m.floats(name, d, shape...)
				default:
					m.random(name, d, shape...)
				}
			})
			plain := dequantized(b, m.tensors, c.config)
			var t safetensors.Tensor
			for _, t = range plain {
			}
			buf := make([]float32, 0, o*i)
			b.SetBytes(4 * o * i)
			for b.Loop() {
				must(safetensors.Append(buf, t))
			}
		})
	}
}
