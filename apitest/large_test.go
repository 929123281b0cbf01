package apitest_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/testplatform"
)

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
