// Package convert converts tensors and counts the values that are beyond the range of the new dtype.
package convert

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// A Count counts the values of a tensor that are beyond the range of the dtype to which it was converted: those that were
// finite and became infinite or, if the dtype has no infinity, those that became NaN or the largest number of the dtype.
// It counts only values that have been read. A value that is read again is counted once.
type Count struct {
	blocks []*atomic.Int64
	dtype  safetensors.DType
}

// Became describes what the counted values became: "infinite", "NaN" or the largest number of the dtype.
func (c *Count) Became() string {
	switch c.dtype {
	case safetensors.F8_E4M3:
		return "448 or -448, the largest numbers of F8_E4M3"
	case safetensors.F8_E4M3FNUZ, safetensors.F8_E5M2FNUZ:
		return "NaN"
	}
	return "infinite"
}

// Total returns the number of such values so far.
func (c *Count) Total() (n int64) {
	for _, b := range c.blocks {
		n += b.Load()
	}
	return n
}

// Counted returns t converted to d, lazily, as Tensor.Convert does, and a count of its values that
// are beyond the range of d.
func Counted(t safetensors.Tensor, d safetensors.DType) (safetensors.Tensor, *Count, error) {
	whole, err := t.Convert(d)
	if err != nil || !overflows(t.DType(), d) {
		return whole, &Count{dtype: d}, err
	}
	return counted(whole, t)
}

// Merged returns t, lazily, and a count of its values that became infinite. t is computed in float32 from before and other
// tensors, and has the dtype of before. Only values of F16 are counted: the range of BF16 is that of float32.
func Merged(t, before safetensors.Tensor) (safetensors.Tensor, *Count, error) {
	if t.DType() != safetensors.F16 {
		return t, &Count{dtype: t.DType()}, nil
	}
	return counted(t, before)
}

// counted returns t, whose values were made of those of before, with a count of the values beyond the range of its dtype.
func counted(t, before safetensors.Tensor) (safetensors.Tensor, *Count, error) {
	d := t.DType()
	c := &Count{dtype: d}
	all, err := blocks.Join(t.Shape(), func(block []safetensors.Range, shape []int) (safetensors.Tensor, error) {
		from, err := before.Slice(block...)
		if err != nil {
			return from, err
		}
		to, err := t.Slice(block...)
		if err != nil {
			return to, err
		}
		n := new(atomic.Int64)
		c.blocks = append(c.blocks, n)
		return safetensors.NewTensorFunc(d, shape, func(dst []byte) error {
			if _, err := safetensors.Append(dst[:0], to); err != nil {
				return err
			}
			lost, err := beyond(dst, d, from)
			n.Store(lost)
			return err
		})
	})
	return all, c, err
}

// beyond returns how many values of from are beyond the range of d, to which they were converted: codes has the result.
// It reads from again only if one of the codes is that of a value beyond the range.
func beyond(codes []byte, d safetensors.DType, from safetensors.Tensor) (n int64, err error) {
	switch d {
	case safetensors.F8_E4M3:
		if count(codes, "\x7e") == 0 {
			return 0, nil
		}
		return countIf(from, func(x float64) bool { return math.Abs(x) > 448 })
	case safetensors.F8_E4M3FNUZ, safetensors.F8_E5M2FNUZ:
		if n = int64(bytes.Count(codes, []byte{0x80})); n > 0 {
			var before int64
			before, err = countIf(from, math.IsNaN)
			n -= before
		}
		return n, err
	}
	if n = count(codes, infinities[d]); n > 0 {
		var before int64
		before, err = countIf(from, func(x float64) bool { return math.IsInf(x, 0) })
		n -= before
	}
	return n, err
}

// countIf returns the number of values of t for which is returns true.
func countIf(t safetensors.Tensor, is func(x float64) bool) (n int64, err error) {
	all, err := numbers.Append(nil, t)
	for _, x := range all {
		if is(x) {
			n++
		}
	}
	return n, err
}

// count returns how many of the codes are an infinity, or another given code, of either sign. It
// processes eight bytes at a time, four times in a row: a code of an infinity becomes zero when its
// sign is cleared and the bits of the infinity are flipped, so that subtracting one from it borrows.
func count(codes []byte, infinity string) (n int64) {
	var ones, signs uint64
	for i := 0; i < 8; i += len(infinity) {
		ones |= 1 << (8 * i)
		signs |= 0x80 << (8 * (i + len(infinity) - 1))
	}
	infinities := binary.LittleEndian.Uint64([]byte(strings.Repeat(infinity, 8/len(infinity))))
	for ; len(codes) >= 32; codes = codes[32:] {
		borrows := func(at int) uint64 {
			return (binary.LittleEndian.Uint64(codes[at:32])&^signs ^ infinities) - ones
		}
		if (borrows(0)|borrows(8)|borrows(16)|borrows(24))&signs != 0 {
			n += countEach(codes[:32], infinity)
		}
	}
	return n + countEach(codes, infinity)
}

// countEach returns the same as count, but looks at one code after the other.
func countEach(codes []byte, infinity string) (n int64) {
	last := len(infinity) - 1
	for i := last; i < len(codes); i += len(infinity) {
		if codes[i]&0x7f == infinity[last] && string(codes[i-last:i]) == infinity[:last] {
			n++
		}
	}
	return n
}

// infinities has the little-endian code of +Inf for each dtype below F64 that has an infinity.
var infinities = map[safetensors.DType]string{
	safetensors.F32: "\x00\x00\x80\x7f", safetensors.F16: "\x00\x7c", safetensors.BF16: "\x80\x7f", safetensors.F8_E5M2: "\x7c",
}

// ranges lists dtypes in the order of their largest values. If two have the same largest number, the one with an infinity
// comes later. The numbers of all other dtypes are within the range of the first.
var ranges = []safetensors.DType{
	safetensors.F8_E4M3FNUZ, safetensors.F8_E4M3, safetensors.F8_E5M2FNUZ, safetensors.F8_E5M2, safetensors.F16,
	safetensors.F8_E8M0, safetensors.BF16, safetensors.F32, safetensors.F64,
}

// overflows reports whether a value of one dtype can be beyond the range of another.
func overflows(from, to safetensors.DType) bool {
	return slices.Index(ranges, from) > slices.Index(ranges, to)
}
