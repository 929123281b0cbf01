package apitest_test

import (
	"errors"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestElementsOfBits slices, joins and casts elements of 4 and 6 bits, which stay in the
// bytes that they share.
func TestElementsOfBits(t *testing.T) {
	x := must(NewTensor(F4, []int{2, 6}, []byte{0x10, 0x32, 0x54, 0x76, 0x98, 0xba}))
	odd := must(NewTensor(F4, []int{2, 3}, []byte{1, 2, 3}))
	rows := must(NewTensor(F4, []int{4, 3, 3}, []byte{0x10, 0x32, 0x54, 0x76, 0x98, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}))
	six := must(NewTensor(F6_E3M2, []int{2, 2, 4}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}))
	narrow, wide := must(NewTensor(F4, []int{2, 2}, []byte{0x21, 0x43})), must(NewTensor(F4, []int{2, 4}, []byte{0x65, 0x07, 0x10, 0x32}))
	for _, c := range []struct {
		rule string
		x    Tensor
		want []byte
	}{
		{"columns that fill bytes", must(x.Slice(All(), Span(2, 6))), []byte{0x32, 0x54, 0x98, 0xba}},
		{"a row", must(x.Slice(At(1))), []byte{0x76, 0x98, 0xba}},
		{"nothing", must(x.Slice(All(), Span(3, 3))), nil},
		{"what is only one long need not start a byte each time", must(rows.Slice(Span(0, 1), All().By(2), Span(0, 2))), []byte{0x10, 0x76}},
		{"four of 6 bits", must(six.Slice(All(), At(1))), []byte{3, 4, 5, 9, 10, 11}},
		{"joined rows", must(Concat(1, narrow, wide)), []byte{0x21, 0x65, 0x07, 0x43, 0x10, 0x32}},
		{"a single row may end anywhere in its last but whole byte", must(Concat(0, odd, odd)), []byte{1, 2, 3, 1, 2, 3}},
		{"bytes are elements of 4 bits", must(must(NewTensor(U8, []int{1, 2}, []byte{0x21, 0xf7})).Bitcast(F4)), []byte{0x21, 0xf7}},
	} {
		t.Run(c.rule, func(t *testing.T) { require.Equal(t, c.want, bytesOfTensor(t, c.x)) })
	}
	blocks := must(must(NewTensor(U8, []int{1, 2}, []byte{0x21, 0xf7})).Bitcast(F4)) // of MXFP4
	require.Equal(t, []int{1, 4}, blocks.Shape())
	require.Equal(t, []float32{0.5, 1, 6, -6}, appended[float32](blocks))
}

// TestContiguous checks which slices, transposed and joined tensors can be viewed.
func TestContiguous(t *testing.T) {
	x := counting(U32, 4, 6, 2)
	of := func(shape []int, dims ...int) Tensor { return must(counting(U32, shape...).Transpose(dims...)) }
	rows := func(first, end int) Tensor { return must(x.Slice(Span(first, end))) }
	for _, c := range []struct {
		rule       string
		x          Tensor
		contiguous bool
	}{
		{"a whole tensor", must(x.Slice()), true},
		{"a span of rows", rows(1, 3), true},
		{"a span at an index", must(x.Slice(At(2), Span(1, 4))), true},
		{"one element", must(x.Slice(At(2), At(3), At(1))), true},
		{"a span in a span of one row", must(x.Slice(Span(1, 2), Span(2, 5))), true},
		{"a step beyond the end", must(x.Slice(All().By(4), Span(2, 5))), true},
		{"a span of the whole dimension", must(x.Slice(All(), Span(0, 6))), true},
		{"no elements", must(x.Slice(Span(2, 2), Span(1, 2))), true},
		{"a part of several rows", must(x.Slice(All(), Span(0, 5))), false},
		{"a step", must(x.Slice(All().By(2))), false},
		{"an index of the last dimension", must(x.Slice(All(), All(), At(0))), false},
		{"no dimension moves", of([]int{4, 6}, 0, 1), true},
		{"a row becomes a column", of([]int{1, 6}, 1, 0), true},
		{"a dimension of size 1 moves", of([]int{4, 1, 6}, 1, 0, 2), true},
		{"two of them move", of([]int{1, 4, 1, 6}, 1, 3, 0, 2), true},
		{"no elements move", of([]int{4, 0, 6}, 2, 1, 0), true},
		{"a scalar", of([]int{}), true},
		{"a matrix", of([]int{4, 6}, 1, 0), false},
		{"the leading dimensions move", of([]int{4, 6, 2}, 1, 0, 2), false},
		{"adjacent rows", must(Concat(0, rows(0, 1), rows(1, 3))), true},
		{"joined rows that the next continues", must(Concat(0, must(Concat(0, rows(0, 1), rows(1, 2))), rows(2, 4))), true},
		{"nothing joined", must(Concat(0, rows(1, 1), rows(3, 3))), true},
		{"rows with a gap", must(Concat(0, rows(0, 1), rows(2, 3))), false},
		{"rows in another order", must(Concat(0, rows(1, 2), rows(0, 1))), false},
		{"a row twice", must(Concat(0, rows(0, 1), rows(0, 1))), false},
		{"rows of two tensors", must(Concat(0, rows(0, 1), must(counting(U32, 4, 6, 2).Slice(Span(1, 2))))), false},
		{"adjacent rows as columns", must(Concat(1, rows(0, 1), rows(1, 2))), true},
		{"rows as columns", must(Concat(1, rows(0, 2), rows(2, 4))), false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			view, err := View[uint32](c.x)
			if !c.contiguous {
				require.ErrorIs(t, err, errors.ErrUnsupported)
				return
			}
			require.NoError(t, err)
			require.Len(t, view, c.x.Len())
		})
	}
}
