package apitest_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// refusal returns the error of an operation, which returns nothing else.
func refusal[T any](v T, err error) error {
	if !reflect.ValueOf(&v).Elem().IsZero() {
		return fmt.Errorf("%v stands next to the error", v)
	}
	return err
}

// kept returns the error of appending to the text "kept", which stays as it is.
func kept(b []byte, err error) error {
	if string(b) != "kept" {
		return fmt.Errorf("%q stands next to the error", b)
	}
	return err
}

// noHeader returns the error of making a header of tensors, with nothing written.
func noHeader(t *testing.T, tensors ...TensorInfo) error {
	t.Helper()
	h, dir := &Header{Tensors: tensors}, t.TempDir()
	err := kept(h.AppendBinary([]byte("kept")))
	require.Error(t, err)
	require.EqualError(t, refusal(NewWriter(writerFunc(nil), h)), err.Error())
	require.EqualError(t, refusal(Create(filepath.Join(dir, "x"), h)), err.Error())
	requireEmptyDir(t, dir)
	return err
}

// TestRefusals has the error of each rule of the operations on tensors, of headers to write, and
// of indexes. What a caller passes is no fault of a file.
func TestRefusals(t *testing.T) {
	x, ints, scalar := counting(F32, 4, 6), counting(U32, 2, 3), counting(U32)
	nibbles, oddNibbles := must(NewTensor(F4, []int{2, 6}, make([]byte, 6))), must(NewTensor(F4, []int{2, 3}, make([]byte, 3)))
	oddRows := must(NewTensor(F4, []int{4, 3, 3}, make([]byte, 18)))
	sixBits := must(NewTensor(F6_E3M2, []int{2, 2, 4}, make([]byte, 12)))
	huge := must(NewTensor[byte](U8, []int{0, math.MaxInt}, nil))
	converted := must(x.Convert(BF16))
	joined, through := must(Concat(0, x, x)), must(must(x.Transpose()).Reshape(24))
	every2nd, wide := must(counting(U32, 4).Slice(All().By(2))), counting(U32, 2, 5)
	floats, doubles := []float32{1, 2, 3, 4, 5, 6}, make([]float32, 8)
	fill := func([]byte) error { return nil }
	largest := strconv.Itoa(math.MaxInt)
	var zero Tensor
	var eight []TensorInfo // each of 2^60 bytes
	for i := range 8 {
		eight = append(eight, TensorInfo{Name: string(rune('a' + i)), DType: U8, Shape: []int{1 << 30, 1 << 30}})
	}
	many := make(map[string]string)
	for i := range 10_001 {
		many[fmt.Sprintf("t%05d", i)] = fmt.Sprint(i)
	}
	noIndex := func(shards map[string]string, metadata string) error {
		return kept((&Index{Shards: shards, Metadata: []byte(metadata)}).AppendBinary([]byte("kept")))
	}
	for _, c := range []struct {
		rule string
		err  error
		want string
	}{
		{"Slice: an index is below the size", refusal(x.Slice(At(4))), "slicing F32 [4,6]: dimension 0: index 4 is out of range for size 4"},
		{"Slice: a negative index counts from the end", refusal(x.Slice(All(), At(-7))), "slicing F32 [4,6]: dimension 1: index -7 is out of range for size 6"},
		{"Slice: a span ends in the dimension", refusal(x.Slice(All(), Span(2, 7))), "slicing F32 [4,6]: dimension 1: range [2:7] is out of range for size 6"},
		{"Slice: a span starts before it ends", refusal(x.Slice(Span(3, 2))), "slicing F32 [4,6]: dimension 0: range [3:2] ends before it starts, for size 4"},
		{"Slice: a span of negative indices, too", refusal(x.Slice(Span(-1, -2).By(2))), "slicing F32 [4,6]: dimension 0: range [-1:-2:2] ends before it starts, for size 4"},
		{"Slice: a step is not zero", refusal(x.Slice(All().By(0))), "slicing F32 [4,6]: dimension 0: the step 0 of range [:] is below 1"},
		{"Slice: a step is not negative", refusal(x.Slice(All().By(-1))), "slicing F32 [4,6]: dimension 0: the step -1 of range [:] is below 1"},
		{"Slice: a step is not the least integer", refusal(x.Slice(All().By(math.MinInt))), fmt.Sprintf("slicing F32 [4,6]: dimension 0: the step %d of range [:] is below 1", -math.MaxInt)},
		{"Slice: no more ranges than dimensions", refusal(x.Slice(All(), All(), All())), "slicing F32 [4,6]: 3 ranges for rank 2"},
		{"Slice: the first run starts a byte", refusal(nibbles.Slice(All(), Span(1, 3))), "slicing F4 [2,6]: element 1 of 4 bits does not start on a byte boundary"},
		{"Slice: a run ends with a byte", refusal(nibbles.Slice(All(), Span(0, 3))), "slicing F4 [2,6]: runs of 3 elements of 4 bits do not end on a byte boundary"},
		{"Slice: a single element fills bytes", refusal(nibbles.Slice(All(), All().By(2))), "slicing F4 [2,6]: runs of 1 element of 4 bits do not end on a byte boundary"},
		{"Slice: a scalar fills bytes", refusal(nibbles.Slice(At(0), At(0))), "slicing F4 [2,6]: runs of 1 element of 4 bits do not end on a byte boundary"},
		{"Slice: a row fills bytes", refusal(oddNibbles.Slice(At(1))), "slicing F4 [2,3]: runs of 3 elements of 4 bits do not end on a byte boundary"},
		{"Slice: elements of 6 bits fill bytes", refusal(sixBits.Slice(All(), All(), Span(0, 2))), "slicing F6_E3M2 [2,2,4]: runs of 2 elements of 6 bits do not end on a byte boundary"},
		{"Slice: every run starts a byte", refusal(oddRows.Slice(Span(0, 2), All().By(2), Span(0, 2))), "slicing F4 [4,3,3]: every 9-th element of 4 bits does not start on a byte boundary"},
		{"Part: n divides the dimension", refusal(x.Part(1, 0, 4)), "part 0 of 4 along dimension 1 of F32 [4,6]: 4 does not divide the size 6"},
		{"Part: a dimension of the tensor", refusal(x.Part(2, 0, 2)), "part 0 of 2 along dimension 2 of F32 [4,6]: it has rank 2"},
		{"Part: no negative dimension", refusal(x.Part(-1, 0, 2)), "part 0 of 2 along dimension -1 of F32 [4,6]: it has rank 2"},
		{"Part: i is below n", refusal(x.Part(0, 2, 2)), "part 2 of 2 along dimension 0 of F32 [4,6]: parts are numbered from 0 to 1"},
		{"Part: i is not negative", refusal(x.Part(0, -1, 2)), "part -1 of 2 along dimension 0 of F32 [4,6]: parts are numbered from 0 to 1"},
		{"Part: there is at least one", refusal(x.Part(0, 0, 0)), "part 0 of 0 along dimension 0 of F32 [4,6]: there is no such part"},
		{"Concat: at least one tensor", refusal(Concat(0)), "concatenating along dimension 0: there are no tensors"},
		{"Concat: one dtype", refusal(Concat(0, ints, counting(F32, 2, 3))), "concatenating along dimension 0: tensor 1 is F32 [2,3], tensor 0 is U32 [2,3]: only that dimension may differ"},
		{"Concat: one rank", refusal(Concat(0, ints, counting(U32, 3))), "concatenating along dimension 0: tensor 1 is U32 [3], tensor 0 is U32 [2,3]: only that dimension may differ"},
		{"Concat: one size of the dimensions before", refusal(Concat(1, ints, counting(U32, 3, 3))), "concatenating along dimension 1: tensor 1 is U32 [3,3], tensor 0 is U32 [2,3]: only that dimension may differ"},
		{"Concat: one size of the dimensions after", refusal(Concat(0, ints, counting(U32, 2, 4))), "concatenating along dimension 0: tensor 1 is U32 [2,4], tensor 0 is U32 [2,3]: only that dimension may differ"},
		{"Concat: a dimension of the tensors", refusal(Concat(2, ints)), "concatenating along dimension 2: U32 [2,3] has rank 2"},
		{"Concat: no negative dimension", refusal(Concat(-1, ints)), "concatenating along dimension -1: U32 [2,3] has rank 2"},
		{"Concat: no scalars", refusal(Concat(0, scalar)), "concatenating along dimension 0: U32 [] has rank 0"},
		{"Concat: no zero Tensor", refusal(Concat(0, ints, zero)), "concatenating along dimension 0: tensor 1: the zero Tensor has no dtype and no data"},
		{"Concat: the dimension fits int", refusal(Concat(1, huge, huge)), "concatenating along dimension 1: the dimension overflows"},
		{"Concat: rows fill bytes", refusal(Concat(1, oddNibbles, must(NewTensor(F4, []int{2, 4}, make([]byte, 4))))), "concatenating along dimension 1: rows of piece 0, F4 [2,3], have 3 elements of 4 bits, which do not fill whole bytes"},
		{"Transpose: as many dims as dimensions", refusal(x.Transpose(0)), "transposing F32 [4,6]: [0] is not a permutation of its 2 dimensions"},
		{"Transpose: no more", refusal(x.Transpose(1, 0, 2)), "transposing F32 [4,6]: [1,0,2] is not a permutation of its 2 dimensions"},
		{"Transpose: each once", refusal(x.Transpose(1, 1)), "transposing F32 [4,6]: [1,1] is not a permutation of its 2 dimensions"},
		{"Transpose: below the rank", refusal(x.Transpose(0, 2)), "transposing F32 [4,6]: [0,2] is not a permutation of its 2 dimensions"},
		{"Transpose: not negative", refusal(x.Transpose(0, -1)), "transposing F32 [4,6]: [0,-1] is not a permutation of its 2 dimensions"},
		{"Transpose: a scalar has none", refusal(scalar.Transpose(0)), "transposing U32 []: [0] is not a permutation of its 0 dimensions"},
		{"Transpose: elements of half a byte stay", refusal(nibbles.Transpose()), "transposing F4 [2,6]: runs of 1 element of 4 bits do not end on a byte boundary: unsupported operation"},
		{"Transpose: rows fill bytes", refusal(oddRows.Transpose(1, 0, 2)), "transposing F4 [4,3,3]: runs of 3 elements of 4 bits do not end on a byte boundary: unsupported operation"},
		{"Reshape: elements do not become fewer", refusal(x.Reshape(23)), "reshaping F32 [4,6] to [23]: it has 24 elements, the new shape 23"},
		{"Reshape: one element does not become two", refusal(scalar.Reshape(2)), "reshaping U32 [] to [2]: it has 1 element, the new shape 2"},
		{"Reshape: elements do not become more", refusal(x.Reshape(25)), "reshaping F32 [4,6] to [25]: it has 24 elements, the new shape 25"},
		{"Reshape: dimensions are not negative", refusal(x.Reshape(-4, -6)), "reshaping F32 [4,6] to [-4,-6]: shape [-4,-6] has a negative dimension"},
		{"Reshape: the number of elements fits 64 bits", refusal(x.Reshape(math.MaxInt, math.MaxInt, 24)), "reshaping F32 [4,6] to [" + largest + "," + largest + ",24]: the number of elements of shape [" + largest + "," + largest + ",24] overflows 64 bits"},
		{"Reshape: one -1", refusal(x.Reshape(-1, -1)), "reshaping F32 [4,6] to [-1,-1]: only one dimension can be -1"},
		{"Reshape: -1 is a whole number of elements", refusal(x.Reshape(5, -1)), "reshaping F32 [4,6] to [5,-1]: its number of elements, 24, is not a multiple of 5"},
		{"Reshape: -1 next to no elements", refusal(counting(F32, 0, 6).Reshape(0, -1)), "reshaping F32 [0,6] to [0,-1]: a dimension of size 0 leaves the size of -1 open"},
		{"Reshape: the other dimensions are not negative", refusal(x.Reshape(-4, -1)), "reshaping F32 [4,6] to [-4,-1]: shape [-4,1] has a negative dimension"},
		{"Slice: From within the dimension", refusal(x.Slice(From(5))), "slicing F32 [4,6]: dimension 0: range [5:] is out of range for size 4"},
		{"Slice: From not before the start", refusal(x.Slice(From(-5))), "slicing F32 [4,6]: dimension 0: range [-5:] is out of range for size 4"},
		{"ParseRanges: an index", errorOf(ParseRanges("1,")), `range 2 of "1,": it is empty`},
		{"ParseRanges: numbers", errorOf(ParseRanges("1, a:")), `range 2 of "1, a:": "a" is not an integer`},
		{"ParseRanges: integers", errorOf(ParseRanges("1.5")), `range 1 of "1.5": "1.5" is not an integer`},
		{"ParseRanges: no ellipsis", errorOf(ParseRanges("..., 1")), `range 1 of "..., 1": "..." is not an integer`},
		{"ParseRanges: ints", errorOf(ParseRanges("99999999999999999999:")), `range 1 of "99999999999999999999:": "99999999999999999999": value out of range`},
		{"ParseRanges: two colons", errorOf(ParseRanges("1:2:3:4")), `range 1 of "1:2:3:4": it has more than two colons`},
		{"ParseRanges: a step of at least 1", errorOf(ParseRanges("::-1")), `range 1 of "::-1": the step -1 is below 1`},
		{"ParseRanges: no step of 0", errorOf(ParseRanges("::0")), `range 1 of "::0": the step 0 is below 1`},
		{"Bitcast: the dtype is valid", refusal(ints.Bitcast(99)), "casting U32 [2,3] to DType(99): invalid dtype"},
		{"Bitcast: the last dimension holds whole elements", refusal(ints.Bitcast(U64)), "casting U32 [2,3] to U64: 3 elements of the last dimension do not fill whole elements of U64"},
		{"Bitcast: a dimension scales", refusal(scalar.Bitcast(U16)), "casting U32 [] to U16: a scalar has no dimension to scale"},
		{"Bitcast: elements are not converted", refusal(converted.Bitcast(U8)), "casting BF16 [4,6] to U8: its elements are converted as they are read: unsupported operation"},
		{"Bitcast: elements of the last dimension are adjacent", refusal(every2nd.Bitcast(U64)), "casting U32 [2] to U64: the elements of the last dimension are not adjacent"},
		{"Bitcast: of one that is transposed, too", refusal(must(x.Transpose()).Bitcast(U16)), "casting F32 [6,4] to U16: the elements of the last dimension are not adjacent"},
		{"Bitcast: strides are whole elements", refusal(must(wide.Slice(All(), Span(0, 2))).Bitcast(U64)), "casting U32 [2,2] to U64: steps of 5 elements in dimension 0 do not start elements of U64"},
		{"Bitcast: the last dimension fits int", refusal(huge.Bitcast(F4)), "casting U8 [0," + largest + "] to F4: the last dimension overflows"},
		{"Convert: to no F4", refusal(x.Convert(F4)), "converting F32 [4,6] to F4: F32 can be converted only to F8_E5M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16 or F64: unsupported operation"},
		{"Convert: to no F6_E2M3", refusal(x.Convert(F6_E2M3)), "converting F32 [4,6] to F6_E2M3: F32 can be converted only to F8_E5M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16 or F64: unsupported operation"},
		{"Convert: to no F8_E8M0", refusal(x.Convert(F8_E8M0)), "converting F32 [4,6] to F8_E8M0: F32 can be converted only to F8_E5M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16 or F64: unsupported operation"},
		{"Convert: to no I32", refusal(x.Convert(I32)), "converting F32 [4,6] to I32: F32 can be converted only to F8_E5M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16 or F64: unsupported operation"},
		{"Convert: to no BOOL", refusal(x.Convert(BOOL)), "converting F32 [4,6] to BOOL: F32 can be converted only to F8_E5M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16 or F64: unsupported operation"},
		{"Convert: to no C64", refusal(x.Convert(C64)), "converting F32 [4,6] to C64: F32 can be converted only to F8_E5M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16 or F64: unsupported operation"},
		{"Convert: to a dtype", refusal(x.Convert(0)), "converting F32 [4,6] to DType(0): F32 can be converted only to F8_E5M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16 or F64: unsupported operation"},
		{"Convert: to one that exists", refusal(x.Convert(99)), "converting F32 [4,6] to DType(99): F32 can be converted only to F8_E5M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2FNUZ, F16, BF16 or F64: unsupported operation"},
		{"Convert: from no integer", refusal(counting(I32, 2).Convert(F32)), "converting I32 [2] to F32: only floats are converted: unsupported operation"},
		{"View: the Go type of the dtype", refusal(View[int8](ints)), "viewing U32 [2,3]: elements of U32 are uint32 or byte, not int8"},
		{"Append: the Go type of the dtype", refusal(Append[int8](nil, ints)), "appending U32 [2,3]: elements of U32 are uint32, byte or float64, not int8"},
		{"View: not of what is joined", refusal(View[byte](joined)), "viewing F32 [8,6]: it is joined from several tensors (Append copies and converts): unsupported operation"},
		{"View: not of what is joined and reshaped", refusal(View[byte](must(joined.Reshape(48)))), "viewing F32 [48]: its elements were not contiguous before Reshape (Append copies and converts): unsupported operation"},
		{"View: not of what is read through", refusal(View[byte](through)), "viewing F32 [24]: its elements were not contiguous before Reshape (Append copies and converts): unsupported operation"},
		{"ReadAt: the offset is not negative", errorOf(ints.ReadAt(make([]byte, 1), -1)), "reading U32 [2,3] at negative offset -1"},
		{"NewTensor: data has the size of the elements", refusal(NewTensor(F32, []int{2, 3}, floats[:5])), "F32 [2,3] has 6 elements, the data has 5"},
		{"NewTensor: data has no more elements", refusal(NewTensor(F32, []int{2}, floats[:3])), "F32 [2] has 2 elements, the data has 3"},
		{"NewTensor: a scalar has one element", refusal(NewTensor(F32, nil, floats[:2])), "F32 [] has 1 element, the data has 2"},
		{"NewTensor: bytes are counted in bytes", refusal(NewTensor(F32, []int{2}, make([]byte, 2))), "F32 [2] needs 8 bytes, the data has 2"},
		{"NewTensor: a byte of elements", refusal(NewTensor(F4, []int{2}, []byte{})), "F4 [2] needs 1 byte, the data has 0"},
		{"NewTensor: as many floats to round", refusal(NewTensor(BF16, []int{9}, doubles)), "BF16 [9] has 9 elements, the data has 8"},
		{"NewTensor: dimensions are not negative", refusal(NewTensor(F32, []int{-2, -3}, floats)), "shape [-2,-3] has a negative dimension"},
		{"NewTensor: dimensions are not negative without elements", refusal(NewTensor(F32, []int{0, -3}, floats[:0])), "shape [0,-3] has a negative dimension"},
		{"NewTensor: the dtype is valid", refusal(NewTensor(0, []int{1}, []byte{1})), "invalid dtype 0"},
		{"NewTensor: elements fill whole bytes", refusal(NewTensor(F4, []int{3}, []byte{1, 2})), "F4 [3] has 12 bits, which do not fill whole bytes"},
		{"NewTensor: the number of elements fits 64 bits", refusal(NewTensor(U8, []int{math.MaxInt, math.MaxInt, math.MaxInt}, []byte{})), "the number of elements of shape [" + largest + "," + largest + "," + largest + "] overflows 64 bits"},
		{"NewTensor: F32 is no int32", refusal(NewTensor(F32, []int{8}, make([]int32, 8))), "elements of F32 are float32, uint32, byte or float64, not int32"},
		{"NewTensor: BF16 is no int32", refusal(NewTensor(BF16, []int{8}, make([]int32, 8))), "elements of BF16 are uint16, byte, float32 or float64, not int32"},
		{"NewTensor: F64 is not made of less", refusal(NewTensor(F64, []int{8}, doubles)), "elements of F64 are float64, uint64 or byte, not float32; make it F32 and Convert"},
		{"NewTensor: F8_E8M0 is not rounded", refusal(NewTensor(F8_E8M0, []int{8}, doubles)), "elements of F8_E8M0 are byte, not float32"},
		{"NewTensor: integers are not rounded", refusal(NewTensor(U16, []int{8}, doubles)), "elements of U16 are uint16 or byte, not float32"},
		{"NewTensor: F4 is not rounded", refusal(NewTensor(F4, []int{8}, doubles)), "elements of F4 are byte, not float32"},
		{"NewTensorFunc: F64 is not made of less", refusal(NewTensorFunc(F64, []int{8}, func([]float32) error { return nil })), "elements of F64 are float64, uint64 or byte, not float32; make it F32 and Convert"},
		{"NewTensorFunc: elements fill whole bytes", refusal(NewTensorFunc(F4, []int{3}, fill)), "F4 [3] has 12 bits, which do not fill whole bytes"},
		{"NewTensorFunc: the func is there", refusal(NewTensorFunc[byte](U8, []int{4}, nil)), "the func of a computed tensor is nil"},
		{"NewTensorAt: the reader is there", refusal(NewTensorAt(U32, []int{4}, nil)), "the io.ReaderAt of a tensor is nil"},
		{"NewTensorFunc: dimensions are not negative", refusal(NewTensorFunc(U8, []int{-1}, fill)), "shape [-1] has a negative dimension"},
		{"NewTensorAt: elements fill whole bytes", refusal(NewTensorAt(F4, []int{3}, strings.NewReader("xx"))), "F4 [3] has 12 bits, which do not fill whole bytes"},
		{"NewTensorAt: dimensions are not negative", refusal(NewTensorAt(U32, []int{-1}, strings.NewReader(""))), "shape [-1] has a negative dimension"},
		{"the zero Tensor: Slice", refusal(zero.Slice()), "slicing DType(0) []: the zero Tensor has no dtype and no data"},
		{"the zero Tensor: Part", refusal(zero.Part(0, 0, 1)), "part 0 of 1 along dimension 0 of DType(0) []: it has rank 0"},
		{"the zero Tensor: Transpose", refusal(zero.Transpose()), "transposing DType(0) []: the zero Tensor has no dtype and no data"},
		{"the zero Tensor: Reshape", refusal(zero.Reshape()), "the zero Tensor has no dtype and no data"},
		{"the zero Tensor: Bitcast", refusal(zero.Bitcast(U8)), "the zero Tensor has no dtype and no data"},
		{"the zero Tensor: Convert", refusal(zero.Convert(F32)), "the zero Tensor has no dtype and no data"},
		{"the zero Tensor: View", refusal(View[byte](zero)), "the zero Tensor has no dtype and no data"},
		{"the zero Tensor: Append", refusal(Append[byte](nil, zero)), "the zero Tensor has no dtype and no data"},
		{"the zero Tensor: WriteTo", refusal(zero.WriteTo(io.Discard)), "the zero Tensor has no dtype and no data"},
		{"Header: tensor names are unique", noHeader(t, TensorInfo{Name: "a", DType: U8}, TensorInfo{Name: "a", DType: U8}), `tensor "a": duplicate tensor name`},
		{"Header: __metadata__ is no tensor", noHeader(t, TensorInfo{Name: "__metadata__", DType: U8}), `tensor "__metadata__": this name is reserved for the metadata`},
		{"Header: the dtype is valid", noHeader(t, TensorInfo{Name: "a"}), `tensor "a": invalid dtype 0`},
		{"Header: dimensions are not negative", noHeader(t, TensorInfo{Name: "a", DType: U8, Shape: []int{-1}}), `tensor "a": shape [-1] has a negative dimension`},
		{"Header: elements fill whole bytes", noHeader(t, TensorInfo{Name: "a", DType: F4}), `tensor "a": F4 [] has 4 bits, which do not fill whole bytes`},
		{"Header: data offsets fit int64", noHeader(t, eight...), `tensor "h": the data offsets overflow 63 bits`},
		{"Header: the number of elements fits 64 bits", noHeader(t, TensorInfo{Name: "a", DType: U8, Shape: []int{1 << 30, 1 << 30, 1 << 30}}), `tensor "a": the number of elements of shape [1073741824,1073741824,1073741824] overflows 64 bits`},
		{"NewIndex: there are shards", refusal(NewIndex(nil)), "making an index: the shards are nil"},
		{"NewIndex: a tensor has one shard", refusal(NewIndex(headers("a", "x", "b", "x"))), `shard "b": tensor "x": duplicate tensor name, also in shard "a"`},
		{"NewIndex: a shard is there once", refusal(NewIndex(headers("a", "x", "a", "y"))), `shard "a": duplicate file name`},
		{"NewIndex: a name is no metadata", refusal(NewIndex(headers("a", "__metadata__"))), `shard "a": tensor "__metadata__": this name is reserved for the metadata`},
		{"NewIndex: a name is UTF-8", refusal(NewIndex(headers("a", "\xff"))), `shard "a": tensor "\xff": the name is not valid UTF-8`},
		{"NewIndex: a dtype is valid", refusal(NewIndex(maps.All(map[string]*Header{"a": {Tensors: make([]TensorInfo, 1)}}))), `shard "a": tensor "": invalid dtype 0`},
		{"NewIndex: a header is there", refusal(NewIndex(maps.All(map[string]*Header{"a": nil}))), `shard "a": its header is nil`},
		{"Index: a shard is local", noIndex(map[string]string{"x": "../a"}, ""), `tensor "x": shard "../a" is not a local, slash-separated file name`},
		{"Index: a shard is UTF-8", noIndex(map[string]string{"x": "\xff"}, ""), `tensor "x": shard "\xff" is not a local, slash-separated file name`},
		{"Index: a name is UTF-8", noIndex(map[string]string{"\xff": "a"}, ""), `tensor "\xff": the name is not valid UTF-8`},
		{"Index: shards are at most 10,000", noIndex(many, ""), `tensor "t10000": the index names more than 10000 shards`},
		{"Index: metadata is JSON", noIndex(nil, "{]"), "expected a string, found ']' (at byte 1)"},
		{"Index: metadata is one value", noIndex(nil, `{},"weight_map":{}`), "expected the end of the metadata of the index, found ',' (at byte 2)"},
		{"Index: metadata is UTF-8", noIndex(nil, "\"\xff\""), "the metadata of the index is not valid UTF-8 (at byte 1)"},
		{"Index: metadata keys are unique", noIndex(nil, `{"a":"","\u0061":""}`), `duplicate metadata key "a" (at byte 9)`},
		{"Index: it has at most 64 MiB", noIndex(nil, strings.Repeat(" ", 64<<20)+"0"), "an index of 67108904 bytes exceeds the limit of 67108864: save the tensors to several directories, or give them shorter names"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			require.EqualError(t, c.err, "safetensors: "+c.want)
			require.False(t, errors.As(c.err, new(*FormatError)))
			require.Equal(t, strings.HasSuffix(c.want, ": unsupported operation"), errors.Is(c.err, errors.ErrUnsupported))
		})
	}
}
