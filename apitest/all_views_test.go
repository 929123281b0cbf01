package apitest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// An array is what a tensor should be: its elements as the bits that they have.
type array struct {
	dtype DType
	shape []int
	codes []uint64
}

// bytes returns the elements as a file has them.
func (a array) bytes() []byte { return twin{dtype: a.dtype, codes: a.codes}.bytes() }

// A viewOp is one step of an expression: what it does to a tensor, and what it should do.
type viewOp struct {
	name   func() string
	tensor func(Tensor) (Tensor, error)
	array  func(array) array
}

// allViews enumerates expressions. Its fields are the limits of the enumeration.
type allViews struct {
	t     testing.TB
	dtype DType
	rank  int      // the highest rank of a source
	size  int      // the largest size of its dimensions
	kinds []string // of sources
	brief bool     // whether results are read in one way, instead of all

	expressions int // whose result was read from every kind of source
	refused     int // because elements of less than a byte do not start on one
	reads       int

	rounded map[[3]uint64]uint64 // code by dtype, dtype and code
}

// viewRank is the highest rank of the shapes that Reshape gives, and that Transpose permutes.
const viewRank = 3

// shapes lists all shapes up to a rank with dimensions up to v.size.
func (v *allViews) shapes() (all [][]int) {
	all = append(all, []int{})
	for first := 0; len(all[first]) < v.rank; first++ {
		for size := range v.size + 1 {
			all = append(all, append(slices.Clone(all[first]), size))
		}
	}
	return all
}

// allRanges lists the ranges of a dimension: one for each selection that a start, a stop and
// a step can make, and each index.
func allRanges(size int) []naiveRange {
	all := []naiveRange{{1, 0, 0, 1}}
	for start := range size {
		all = append(all, naiveRange{2, start, 0, 1})
		all = append(all, naiveRange{1, start, start + 1, 1})
		for step := 1; start+step < size; step++ {
			for stop := start + step + 1; stop <= size; stop += step {
				all = append(all, naiveRange{1, start, stop, step})
			}
		}
	}
	return all
}

// product yields all lists with one item of each of several lists.
func product[T any](lists [][]T) (all [][]T) {
	all = [][]T{{}}
	for _, list := range lists {
		var longer [][]T
		for _, begun := range all {
			for _, item := range list {
				longer = append(longer, append(slices.Clip(begun), item))
			}
		}
		all = longer
	}
	return all
}

// ops lists all steps that an array can take.
func (v *allViews) ops(a array) (all []viewOp) {
	all = append(all, v.slices(a)...)
	all = append(all, v.transposes(a)...)
	all = append(all, v.reshapes(a)...)
	all = append(all, v.concats(a)...)
	return append(all, v.converts(a)...)
}

// slices has one range of each dimension, and fewer ranges than dimensions.
func (v *allViews) slices(a array) (all []viewOp) {
	dims := make([][]naiveRange, len(a.shape))
	for k, size := range a.shape {
		dims[k] = allRanges(size)
	}
	for given := range len(dims) + 1 {
		lists := product(dims[:given])
		if given < len(dims) {
			lists = lists[:min(len(lists), 3)] // the other dimensions are whole: a case of those with all ranges
		}
		for _, list := range lists {
			ranges := make([]Range, len(list))
			for k := range list {
				ranges[k] = list[k].Range()
			}
			all = append(all, viewOp{func() string { return fmt.Sprint("Slice", ranges) }, func(x Tensor) (Tensor, error) { return x.Slice(ranges...) }, func(a array) array {
				shape, offsets := []int{}, [][]int{}
				for k, stride := range strides(a.shape) {
					r := naiveRange{step: 1}
					if k < len(list) {
						r = list[k]
					}
					at, ok := r.indices(a.shape[k])
					require.True(v.t, ok)
					if r.kind != 2 {
						shape = append(shape, len(at))
					}
					for i := range at {
						at[i] *= stride
					}
					offsets = append(offsets, at)
				}
				return array{a.dtype, shape, gathered(nil, a.codes, 0, offsets)}
			}})
		}
	}
	return all
}

// transposes has all permutations of the dimensions.
func (v *allViews) transposes(a array) (all []viewOp) {
	if len(a.shape) > viewRank {
		return nil
	}
	dims := slices.Repeat([][]int{nil}, len(a.shape))
	for k := range dims {
		for i := range dims {
			dims[k] = append(dims[k], i)
		}
	}
	for _, perm := range product(dims) {
		if len(slices.Compact(slices.Sorted(slices.Values(perm)))) < len(perm) {
			continue
		}
		all = append(all, viewOp{func() string { return fmt.Sprint("Transpose", perm) }, func(x Tensor) (Tensor, error) { return x.Transpose(perm...) }, func(a array) array {
			from, offsets := strides(a.shape), make([][]int, len(perm))
			for k, dim := range perm {
				for i := range a.shape[dim] {
					offsets[k] = append(offsets[k], i*from[dim])
				}
			}
			return array{a.dtype, permuted(a.shape, perm), gathered(nil, a.codes, 0, offsets)}
		}})
	}
	return all
}

// reshapes returns a Reshape to each shape that has as many elements as a and at most viewRank
// dimensions. If a has no elements, there is no end of such shapes, and it uses four.
func (v *allViews) reshapes(a array) (all []viewOp) {
	n := len(a.codes)
	shapes := [][]int{{n}}
	switch n {
	case 0:
		shapes = [][]int{{0}, {0, 3}, {2, 0}, {0, 2, 0}}
	case 1:
		shapes = append(shapes, []int{})
	}
	for i := 1; i <= n; i++ {
		if n%i > 0 {
			continue
		}
		shapes = append(shapes, []int{i, n / i})
		for j := 1; j <= n/i; j++ {
			if n/i%j == 0 {
				shapes = append(shapes, []int{i, j, n / i / j})
			}
		}
	}
	for _, shape := range shapes {
		all = append(all, viewOp{func() string { return fmt.Sprint("Reshape", shape) }, func(x Tensor) (Tensor, error) { return x.Reshape(shape...) }, func(a array) array {
			return array{a.dtype, shape, a.codes}
		}})
	}
	return all
}

// concats joins along each dimension a tensor with itself, and another one with it and itself.
func (v *allViews) concats(a array) (all []viewOp) {
	for dim := range a.shape {
		shape := slices.Clone(a.shape)
		shape[dim] = 2
		other := array{a.dtype, shape, make([]uint64, elements(shape))}
		for i := range other.codes {
			other.codes[i] = uint64(1 + i%7)
		}
		second, err := NewTensor(other.dtype, other.shape, other.bytes())
		if err != nil { // it is not whole bytes
			continue
		}
		joined := func(pieces ...array) array {
			joined := array{a.dtype, slices.Clone(a.shape), nil}
			joined.shape[dim] = 0
			rows := elements(a.shape[:dim])
			for _, p := range pieces {
				joined.shape[dim] += p.shape[dim]
			}
			for row := range rows {
				for _, p := range pieces {
					n := len(p.codes) / rows
					joined.codes = append(joined.codes, p.codes[row*n:][:n]...)
				}
			}
			return joined
		}
		all = append(all,
			viewOp{func() string { return fmt.Sprint("Concat twice along ", dim) }, func(x Tensor) (Tensor, error) { return Concat(dim, x, x) }, func(a array) array { return joined(a, a) }},
			viewOp{func() string { return fmt.Sprint("Concat with others along ", dim) }, func(x Tensor) (Tensor, error) { return Concat(dim, second, x, second) }, func(a array) array { return joined(other, a, other) }})
	}
	return all
}

// converts has a wider dtype and a narrower one, which rounds.
func (v *allViews) converts(array) (all []viewOp) {
	for _, d := range []DType{F32, F8_E4M3} {
		all = append(all, viewOp{func() string { return "Convert " + d.String() }, func(x Tensor) (Tensor, error) { return x.Convert(d) }, func(a array) array {
			to := array{d, a.shape, make([]uint64, len(a.codes))}
			for i, code := range a.codes {
				to.codes[i] = v.round(a.dtype, d, code)
			}
			return to
		}})
	}
	return all
}

// round returns the code that an element has in another dtype, as that of a tensor of few
// elements in memory, which other tests check.
func (v *allViews) round(from, to DType, code uint64) uint64 {
	key := [3]uint64{uint64(from), uint64(to), code}
	if known, ok := v.rounded[key]; ok {
		return known
	}
	n := max(1, 8/from.Bits())
	one := array{from, []int{n}, slices.Repeat([]uint64{code}, n)}
	x := must(NewTensor(from, one.shape, one.bytes()))
	v.rounded[key] = codesOf(to, appended[byte](must(x.Convert(to))))[0]
	return v.rounded[key]
}

// mayRefuse matches errors of tensors whose elements have less than a byte.
var mayRefuse = regexp.MustCompile("on a byte boundary|do not fill whole bytes")

// apply takes a step from every kind of source. A nil result was refused: by all kinds or by
// none.
func (v *allViews) apply(from map[string]Tensor, a array, op viewOp) map[string]Tensor {
	to := make(map[string]Tensor, len(from))
	for kind, x := range from {
		y, err := op.tensor(x)
		if err == nil {
			to[kind] = y
		} else if v.dtype.Bits() >= 8 || !mayRefuse.MatchString(err.Error()) {
			require.NoError(v.t, err, "%s of %s %v", op.name(), kind, x)
		}
	}
	if len(to) == 0 {
		return nil
	}
	require.Len(v.t, to, len(from), "%s is refused from some kinds of source only", op.name())
	return to
}

// source returns the array of a shape that is enumerated, and false if its elements are not
// whole bytes.
func (v *allViews) source(shape []int) (a array, whole bool) {
	a = array{v.dtype, shape, make([]uint64, elements(shape))}
	for i := range a.codes {
		a.codes[i] = uint64(i % 16)
		if v.dtype == F16 { // distinct integers, of which Convert rounds some
			a.codes[i] = v.round(F32, F16, uint64(math.Float32bits(float32(i))))
		}
	}
	return a, len(a.codes)*v.dtype.Bits()%8 == 0
}

// run enumerates the expressions of no step, of one and of two, from all shapes.
func (v *allViews) run(t testing.TB) {
	v.t, v.rounded = t, make(map[[3]uint64]uint64)
	for _, shape := range v.shapes() {
		a, whole := v.source(shape)
		if !whole {
			continue
		}
		x := must(NewTensor(v.dtype, shape, a.bytes()))
		from := make(map[string]Tensor)
		for _, kind := range v.kinds {
			from[kind] = sources[kind](&expression{TB: t}, x)
		}
		v.read(from, a)
		for _, first := range v.ops(a) {
			b, once := first.array(a), v.apply(from, a, first)
			if once == nil {
				v.refused++
				continue
			}
			v.read(once, b, first)
			for _, second := range v.ops(b) {
				if twice := v.apply(once, b, second); twice != nil {
					v.read(twice, second.array(b), first, second)
				} else {
					v.refused++
				}
			}
		}
	}
}

// count returns how many expressions run reads if none is refused. It makes no tensor: how
// many steps an array can take depends on its shape.
func (v *allViews) count(t testing.TB) (n int) {
	v.t, v.rounded = t, make(map[[3]uint64]uint64)
	steps := make(map[string]int)
	for _, shape := range v.shapes() {
		a, _ := v.source(shape)
		n++
		for _, first := range v.ops(a) {
			b := first.array(a)
			key := fmt.Sprint(b.shape)
			if _, known := steps[key]; !known {
				steps[key] = len(v.ops(b))
			}
			n += 1 + steps[key]
		}
	}
	return n
}

// read reads a tensor from every kind of source in every way.
func (v *allViews) read(from map[string]Tensor, a array, steps ...viewOp) {
	v.expressions++
	want := a.bytes()
	floats := make([]float64, len(a.codes))
	for i, code := range a.codes {
		floats[i] = math.Float64frombits(v.round(a.dtype, F64, code))
	}
	for kind, x := range from {
		if x.DType() != a.dtype || !slices.Equal(x.Shape(), a.shape) || x.Len() != len(a.codes) || int(x.Size()) != len(want) {
			require.FailNow(v.t, "another tensor", "%s of %s: %v of %d elements and %d bytes, not %v %v", spelledOut(steps), kind, x, x.Len(), x.Size(), a.dtype, a.shape)
		}
		ways := viewReads
		if v.brief {
			ways = ways[:1]
		}
		for _, way := range ways {
			got, err := way.read(x)
			if way.name == "View" && errors.Is(err, errors.ErrUnsupported) {
				continue
			}
			if err != nil || !bytes.Equal(want, got) {
				require.FailNow(v.t, "wrong bytes", "%s of %s of %s: %x, %v, not %x", way.name, spelledOut(steps), kind, got, err, want)
			}
			v.reads++
		}
		if v.brief {
			continue
		}
		got, err := Append[float64](nil, x)
		if err != nil || !slices.Equal(floats, got) {
			require.FailNow(v.t, "wrong numbers", "%s of %s: %v, %v, not %v", spelledOut(steps), kind, got, err, floats)
		}
		v.requireFile(x, a, want, steps)
		v.reads += 2
	}
}

// requireFile writes a tensor and reads the file.
func (v *allViews) requireFile(x Tensor, a array, want []byte, steps []viewOp) {
	var file bytes.Buffer
	err := Write(&file, map[string]Tensor{"x": x}, nil)
	require.NoError(v.t, err)
	y := must(must(Parse(file.Bytes())).Tensor("x"))
	if y.DType() != a.dtype || !slices.Equal(y.Shape(), a.shape) || !bytes.Equal(want, appended[byte](y)) {
		require.FailNow(v.t, "another file", "%s: %v", spelledOut(steps), y)
	}
}

// spelledOut returns the names of steps.
func spelledOut(steps []viewOp) string {
	names := make([]string, len(steps))
	for i, step := range steps {
		names[i] = step.name()
	}
	return strings.Join(names, ", ")
}

// viewReads are the ways to read the bytes of a tensor. A brief enumeration has the first.
var viewReads = []struct {
	name string
	read func(x Tensor) ([]byte, error)
}{
	{"ReadAt", func(x Tensor) ([]byte, error) {
		b := make([]byte, x.Size())
		_, err := x.ReadAt(b, 0)
		return b, err
	}},
	{"View", func(x Tensor) ([]byte, error) { return View[byte](x) }},
	{"Append", func(x Tensor) ([]byte, error) { return Append[byte](nil, x) }},
	{"Append numbers", func(x Tensor) ([]byte, error) {
		switch x.DType().Bits() {
		case 16:
			return asBytes(binary.LittleEndian.AppendUint16, Append[uint16])(x)
		case 32:
			return asBytes(binary.LittleEndian.AppendUint32, Append[uint32])(x)
		}
		return Append([]byte{}, x)
	}},
	{"ReadAt twice", func(x Tensor) ([]byte, error) { // two windows, which meet in the middle of an element
		b := make([]byte, x.Size())
		seam := len(b) - len(b)*2/3
		_, second := x.ReadAt(b[seam:], int64(seam))
		_, first := x.ReadAt(b[:seam], 0)
		return b, errors.Join(first, second)
	}},
	{"WriteTo", func(x Tensor) ([]byte, error) {
		var out bytes.Buffer
		n, err := x.WriteTo(&out)
		if int(n) != out.Len() {
			return nil, fmt.Errorf("WriteTo says %d of %d bytes: %v", n, out.Len(), err)
		}
		return out.Bytes(), err
	}},
}

// asBytes appends numbers and returns their bytes.
func asBytes[T Element](put func([]byte, T) []byte, read func([]T, Tensor) ([]T, error)) func(Tensor) ([]byte, error) {
	return func(x Tensor) ([]byte, error) {
		all, err := read(nil, x)
		var b []byte
		for _, number := range all {
			b = put(b, number)
		}
		return b, err
	}
}

// fewKinds are the kinds of sources that are read in different ways.
var fewKinds = []string{"bytes", "Open", "reader", "ranges", "computed bytes"}

// smallViews are those of which TestAllViews reads all in CI, and manyViews those that a
// workflow has it read every week.
func smallViews() *allViews {
	return &allViews{dtype: F16, rank: 3, size: 2, kinds: slices.Sorted(maps.Keys(sources))}
}
func manyViews() *allViews {
	return &allViews{dtype: F16, rank: 3, size: 4, kinds: fewKinds, brief: true}
}

// TestAllViews reads all expressions of up to two steps of Slice, Transpose, Reshape, Concat and
// Convert on all shapes up to a size, from each kind of source and in each way: the bytes that
// are read are those promised by the shape, and those that a naive array has. doc/testing.md
// has the sizes. Elements of half a byte may be refused, but then from every kind of source.
func TestAllViews(t *testing.T) {
	every := slices.Sorted(maps.Keys(sources))
	all := []*allViews{{dtype: F16, rank: 2, size: 1, kinds: every}, {dtype: F4, rank: 1, size: 4, kinds: every}}
	switch {
	case testplatform.Exhaustive():
		all = []*allViews{manyViews(), {dtype: F4, rank: 3, size: 2, kinds: every}}
	case testplatform.Long():
		all = []*allViews{smallViews(), {dtype: F4, rank: 2, size: 2, kinds: every}}
	case !testing.Short() && !testplatform.RaceEnabled:
		all = []*allViews{{dtype: F16, rank: 2, size: 2, kinds: fewKinds}, {dtype: F4, rank: 2, size: 2, kinds: fewKinds}}
	}
	for _, v := range all {
		v.run(t)
		t.Logf("%v, rank %d, up to %d: %d expressions, %d refused, %d reads", v.dtype, v.rank, v.size, v.expressions, v.refused, v.reads)
		if v.dtype.Bits() >= 8 {
			require.Equal(t, v.count(t), v.expressions)
			require.Zero(t, v.refused)
		}
		require.Greater(t, v.expressions, v.refused)
	}
}

// TestAllViewsCount: the number of expressions is the one in doc/testing.md.
func TestAllViewsCount(t *testing.T) {
	if testing.Short() || testplatform.RaceEnabled {
		t.Skip("counting takes several seconds")
	}
	requireStated(t, "views, in CI", smallViews().count(t), "expressions")
	requireStated(t, "views, weekly", manyViews().count(t), "expressions")
}
