package apitest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// An expression knows where the tensors of a random expression come from. Its choices
// are the bytes of raw as long as there are any, then random numbers.
type expression struct {
	testing.TB
	raw     []byte
	random  *rand.Rand
	leaves  int
	calls   []*atomic.Int64  // of the funcs of computed tensors
	readers []*failingReader // that have not failed yet
	opened  []*File
}

// choose returns a number below n.
func (e *expression) choose(n int) int {
	if len(e.raw) == 0 {
		return e.random.IntN(n)
	}
	b := e.raw[0]
	e.raw = e.raw[1:]
	return int(b) % n
}

// leaf returns a random tensor of a shape from any kind of source, watched or not.
func (e *expression) leaf(dtype DType, shape ...int) twin {
	kinds := slices.Sorted(maps.Keys(sources))
	x := e.leafOf(kinds[e.choose(len(kinds))], dtype, shape...)
	if e.choose(4) == 0 {
		return x.watch()
	}
	return x
}

// leafOf returns a random tensor from a kind of source.
func (e *expression) leafOf(kind string, dtype DType, shape ...int) twin {
	data := make([]byte, elements(shape)*dtype.Bits()/8)
	for i := range len(data) / 8 {
		binary.NativeEndian.PutUint64(data[8*i:], e.random.Uint64())
	}
	for i := range len(data) % 8 {
		data[len(data)-1-i] = byte(e.random.Uint32())
	}
	x := must(NewTensor(dtype, shape, data))
	e.leaves++
	return twin{sources[kind](e, x), dtype, shape, codesOf(dtype, data), []string{fmt.Sprint(kind, " ", x)}, dtype.Bits() < 8}
}

// sources lists the kinds of sources, by what makes a tensor of each out of one in memory.
var sources = func() map[string]func(*expression, Tensor) Tensor {
	kinds := map[string]func(*expression, Tensor) Tensor{
		"bytes":          fromMemory[byte],
		"computed bytes": fromFunc[byte],
		"numbers": func(e *expression, x Tensor) Tensor {
			return byBits(x, fromMemory[uint8], fromMemory[uint16], fromMemory[uint32], fromMemory[uint64])(e, x)
		},
		"computed numbers": func(e *expression, x Tensor) Tensor {
			return byBits(x, fromFunc[uint8], fromFunc[uint16], fromFunc[uint32], fromFunc[uint64])(e, x)
		},
		"reader": func(e *expression, x Tensor) Tensor { return must(NewTensorAt(x.DType(), x.Shape(), e.reader(x))) },
		"ranges": func(e *expression, x Tensor) Tensor {
			return must(NewTensorAt(x.DType(), x.Shape(), rangesOf(e.reader(x))))
		},
	}
	for way, open := range openedBy {
		kinds[way] = func(e *expression, x Tensor) Tensor {
			f := must(open(writeTemp(e, map[string]Tensor{"x": x, "other": counting(U32, 3)})))
			e.Cleanup(func() { f.Close() })
			e.opened = append(e.opened, f)
			return must(f.Tensor("x"))
		}
	}
	return kinds
}()

// byBits returns the func for the unsigned integers that have the size of an element.
func byBits[F any](x Tensor, of8, of16, of32, of64 F) F {
	return map[int]F{16: of16, 32: of32, 64: of64, 8: of8}[max(8, x.DType().Bits()&^7)]
}

func fromMemory[T Element](e *expression, x Tensor) Tensor {
	return must(NewTensor(x.DType(), x.Shape(), appended[T](x)))
}

func fromFunc[T Element](e *expression, x Tensor) Tensor {
	y, calls := counted[T](x)
	e.calls = append(e.calls, calls)
	return y
}

// reader returns a reader of the bytes of x that can fail.
func (e *expression) reader(x Tensor) *failingReader {
	r := &failingReader{ReaderAt: bytes.NewReader(appended[byte](x)), left: math.MaxInt64}
	e.readers = append(e.readers, r)
	return r
}

// sourcesOf returns tensors of the same elements from sources of every kind.
func sourcesOf(t testing.TB, x Tensor) map[string]Tensor {
	all := make(map[string]Tensor)
	for _, kind := range []string{"bytes", "Open", "reader", "ranges", "computed bytes"} {
		all[kind] = sources[kind](&expression{TB: t}, x)
	}
	return all
}

// shape returns a random shape of n elements.
func (e *expression) shape(n int) []int {
	shape := []int{}
	if n == 0 {
		for range e.choose(3) {
			shape = append(shape, e.choose(4))
		}
		return slices.Insert(shape, e.choose(len(shape)+1), 0)
	}
	for n > 1 && len(shape) < 4 {
		f := 1 + e.choose(n)
		for n%f != 0 {
			f--
		}
		shape = append(shape, f)
		n /= f
	}
	if n > 1 || e.choose(8) == 0 {
		shape = append(shape, n)
	}
	return permuted(shape, e.perm(len(shape)))
}

// perm returns the numbers below n in any order.
func (e *expression) perm(n int) []int {
	dims := make([]int, n)
	for i := range dims {
		k := e.choose(i + 1)
		dims[i], dims[k] = dims[k], i
	}
	return dims
}

// span returns a range of a dimension that has at least one of its elements, if it has any.
func (e *expression) span(size int) naiveRange {
	start := e.choose(size+1) / 2
	stop := min(size, start+1+e.choose(max(1, size-start)))
	return naiveRange{1, start, stop, []int{1, 1, 1, 1, 2, 3}[e.choose(6)]}
}

// anyRange returns a range of a dimension, or one just beyond it.
func (e *expression) anyRange(size int) naiveRange {
	around := func() int { return e.choose(2*size+3) - size - 1 }
	step := []int{1, 1, 1, 1, 2, 3, 0, math.MaxInt, math.MaxInt - 1}[e.choose(9)]
	return naiveRange{e.choose(3), around(), around(), step}
}

// ranges returns a range for each dimension, or for some.
func (e *expression) ranges(shape []int) (list []naiveRange) {
	of := e.span
	if e.choose(3) == 0 {
		of = e.anyRange
		shape = shape[:e.choose(len(shape)+1)]
	}
	for _, size := range shape {
		list = append(list, of(size))
	}
	return list
}

// step takes a twin one random step further.
func (e *expression) step(x twin) twin {
	rank := len(x.shape)
	switch op := e.choose(10); {
	case op < 2:
		return x.reshape(e, e.shape(len(x.codes))...)
	case op < 4:
		return x.transpose(e, e.perm(rank)...)
	case op < 6:
		return x.slice(e, e.ranges(x.shape)...)
	case op == 6 && rank > 0:
		return e.parts(x, e.choose(rank))
	case op == 7 && rank > 0 && len(x.codes) < 2000:
		return e.join(x, e.choose(rank))
	case op == 8:
		return x.convert(e, []DType{F64, F32, BF16, F16, F8_E4M3}[e.choose(5)])
	case op == 9:
		return x.cast(e, dtypes[e.choose(len(dtypes))])
	}
	return x.watch()
}

// parts cuts a tensor along a dimension and joins the parts: it is that tensor again.
func (e *expression) parts(x twin, dim int) twin {
	n := max(1, x.shape[dim])
	for n > 1 && (x.shape[dim]%n > 0 || e.choose(2) == 0) {
		n--
	}
	parts := make([]Tensor, n)
	for i := range parts {
		var err error
		if parts[i], err = x.Part(dim, i, n); err != nil {
			require.Regexp(e, "on a byte boundary|do not fill whole bytes", err.Error(), x.steps)
			return x
		}
	}
	y, err := Concat(dim, parts...)
	require.NoError(e, err, x.steps)
	_, was := View[byte](x.Tensor)
	_, is := View[byte](y)
	require.Equal(e, was == nil || len(x.codes) == 0, is == nil, "%v cut along %d into %d: %v", x.steps, dim, n, is)
	return x.became(y, fmt.Sprint("cut into ", n, " along ", dim), x.shape, x.codes)
}

// join joins a tensor with parts of it, with what is read through, and with other tensors,
// in any order.
func (e *expression) join(x twin, dim int) twin {
	pieces := []twin{}
	for range 1 + e.choose(4) {
		piece := x
		switch e.choose(4) {
		case 0, 1:
			ranges := make([]naiveRange, len(x.shape))
			for k := range ranges {
				ranges[k].step = 1
			}
			ranges[dim] = e.span(x.shape[dim])
			piece = x.slice(e, ranges...)
		case 2:
			flat := x.transpose(e, reversed(len(x.shape))...)
			piece = flat.reshape(e, len(x.codes)).reshape(e, flat.shape...).transpose(e, reversed(len(x.shape))...)
		case 3:
			shape := slices.Clone(x.shape)
			shape[dim] = e.choose(5)
			if elements(shape)*x.dtype.Bits()%8 == 0 {
				piece = e.leaf(x.dtype, shape...)
			}
		}
		if slices.Equal(piece.shape[:dim], x.shape[:dim]) && slices.Equal(piece.shape[dim+1:], x.shape[dim+1:]) {
			pieces = append(pieces, piece)
		}
	}
	if len(pieces) == 0 {
		return x
	}
	return pieces[0].concat(e, dim, pieces[1:]...)
}

func permuted(shape, dims []int) []int {
	out := make([]int, len(dims))
	for i, dim := range dims {
		out[i] = shape[dim]
	}
	return out
}

func reversed(n int) []int {
	dims := make([]int, n)
	for i := range dims {
		dims[i] = n - 1 - i
	}
	return dims
}

// dtypes holds all dtypes, from which expressions choose.
var dtypes = slices.Collect(DTypes())

// requireExpression reads a random expression in every way.
func requireExpression(t *testing.T, seed uint64, raw []byte) twin {
	e := &expression{TB: t, raw: raw, random: rand.New(rand.NewPCG(seed, 1))}
	dtype, n := dtypes[e.choose(len(dtypes))], 1+e.choose([]int{24, 720}[e.choose(2)])
	shape := e.shape(n)
	if dtype.Bits() < 8 { // rows of whole bytes
		shape = append(shape, 4)
	}
	x := e.leaf(dtype, shape...)
	x.steps = append([]string{fmt.Sprintf("seed %d, %x: ", seed, raw)}, x.steps...)
	for range 1 + e.choose(8) {
		x = e.step(x)
		x.requirePromise(t)
	}
	x.requireShape(t)
	x.requireElements(t)
	want := x.bytes()
	x.requireWindows(e, want)
	x.requireWays(e, want)
	x.requireFailures(e)
	return x
}

// TestExpressions reads random expressions of Slice, Part, Transpose, Reshape, Concat,
// Convert, Bitcast, and Watch, from every kind of source, in every way.
func TestExpressions(t *testing.T) {
	n := uint64(600)
	switch {
	case testplatform.Long():
		n = 20_000
	case testing.Short() || testplatform.RaceEnabled:
		n = 150
	}
	steps := make(map[string]int)
	for seed := range n {
		for _, step := range requireExpression(t, seed, nil).steps {
			steps[step[:min(3, len(step))]]++
		}
	}
	for _, step := range []string{"res", "tra", "sli", "con", "cut", "cas", "wat", "F64", "BF1"} {
		require.Greater(t, steps[step], int(n)/50, step)
	}
}

// TestLargeExpressions reads more than one tile, chunk, block, or panel, with seams within
// and between them, from several kinds of source.
func TestLargeExpressions(t *testing.T) {
	type made = func(e *expression, x twin) twin
	turned := func(dims ...int) made { return func(e *expression, x twin) twin { return x.transpose(e, dims...) } }
	columns := func(from, to int) made {
		return func(e *expression, x twin) twin { return x.slice(e, naiveRange{step: 1}, naiveRange{1, from, to, 1}) }
	}
	beside := func(shape ...int) made {
		return func(e *expression, x twin) twin { return x.concat(e, 1, e.leaf(U32, shape...)) }
	}
	to := func(d DType) made { return func(e *expression, x twin) twin { return x.convert(e, d) } }
	type row struct {
		rule  string
		dtype DType
		shape []int
		made
	}
	rows := []row{
		{"a matrix of bytes", U8, []int{1025, 611}, turned(1, 0)},
		{"a matrix of halves", BF16, []int{600, 1111}, turned(1, 0)},
		{"a matrix of floats", F32, []int{521, 517}, turned(1, 0)},
		{"a matrix of doubles", F64, []int{515, 300}, turned(1, 0)},
		{"matrices of bytes", U8, []int{3, 1030, 1100}, turned(0, 2, 1)},
		{"matrices", F32, []int{7, 500, 601}, turned(0, 2, 1)},
		{"filters", F32, []int{70, 80, 3, 3}, turned(2, 3, 1, 0)},
		{"rows that stay whole", BF16, []int{70, 33, 64}, turned(1, 0, 2)},
		{"rows of half bytes", F4, []int{70, 33, 64}, turned(1, 0, 2)},
		{"columns of what is read through", U32, []int{512, 3, 1400}, func(e *expression, x twin) twin {
			return columns(256, 512)(e, x.transpose(e, 2, 0, 1).reshape(e, 2800, 768))
		}},
		{"columns of it transposed", U32, []int{512, 3, 1400}, func(e *expression, x twin) twin {
			return columns(256, 512)(e, x.transpose(e, 2, 0, 1).reshape(e, 2800, 768)).transpose(e, 1, 0)
		}},
		{"wide columns", U32, []int{700, 3001}, columns(1, 3000)},
		{"columns", U32, []int{700, 3001}, columns(5, 2000)},
		{"narrow columns", U32, []int{700, 3001}, columns(7, 300)},
		{"one column", U32, []int{700, 3001}, columns(9, 10)},
		{"columns converted in chunks", BF16, []int{3, 2<<16/3 + 7}, func(e *expression, x twin) twin {
			return columns(5, 2<<16/3+6)(e, x).convert(e, F64).convert(e, F32)
		}},
		{"narrow rows joined", U32, []int{3000, 1}, beside(3000, 3)},
		{"long and short rows", U32, []int{700, 2000}, beside(700, 5)},
		{"rows of a block", U32, []int{3, 270_000}, beside(3, 100)},
		{"blocks joined", U32, []int{300, 1024}, func(e *expression, x twin) twin {
			return x.concat(e, 0, e.leaf(U32, 2100, 1024), e.leaf(U32, 1, 1024), e.leaf(U32, 777, 1024), e.leaf(U32, 1900, 1024))
		}},
		{"many dimensions", U16, slices.Repeat([]int{2}, 16), turned(reversed(16)...)},
		{"blocks of half bytes widened", F4, []int{mem.BlockSize/8 + 12}, to(F64)},
		{"blocks of 6 bits widened", F6_E2M3, []int{mem.BlockSize/8 + 12}, to(F64)},
	}
	kinds := 2 // of five, for each row
	switch {
	case testplatform.RaceEnabled: // which takes most of its time for the twins
		kinds = 1
		rows = slices.DeleteFunc(rows, func(c row) bool { return elements(c.shape) > 1<<20 })
	case testplatform.Long():
		kinds = 5
		rows = append(rows, []row{
			{"many matrices", F32, []int{4, 2, 1500, 601}, turned(1, 0, 3, 2)},
			{"blocks narrowed", F32, []int{mem.BlockSize/2 + 12}, to(BF16)},
			{"long rows", U32, []int{40, 5000}, beside(40, 70_000)},
			{"rows of several blocks", U32, []int{3, 900_000}, beside(3, 2_500_000)},
		}...)
	}
	for n, c := range rows {
		for i, kind := range []string{"bytes", "Open", "reader", "ranges", "computed bytes"} {
			if (i+n)%5 >= kinds {
				continue
			}
			e := &expression{TB: t, random: rand.New(rand.NewPCG(1, uint64(i)))}
			x := c.made(e, e.leafOf(kind, c.dtype, c.shape...))
			x.steps = append([]string{c.rule}, x.steps...)
			x.requireShape(t)
			want := x.bytes()
			x.requireWindows(e, want)
			x.requireWays(e, want)
			if kind == "reader" {
				x.requireFailures(e)
			}
		}
	}
}

// FuzzExpression reads the expressions that any bytes choose. After each step, a tensor gives as
// many bytes as it promises, and as its new shape demands.
func FuzzExpression(f *testing.F) {
	for seed := range uint64(20) {
		raw := make([]byte, 40)
		for i := range raw {
			raw[i] = byte(seed * uint64(i*i+1))
		}
		f.Add(seed, raw)
	}
	f.Fuzz(func(t *testing.T, seed uint64, raw []byte) { requireExpression(t, seed, raw) })
}
