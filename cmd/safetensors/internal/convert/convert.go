// Package convert converts tensors and counts the values that become infinite.
package convert

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// A Count counts the values of a tensor that were finite before the conversion and are infinite
// after it. It counts only values that have been read. A value that is read again is counted once.
type Count struct{ blocks []*atomic.Int64 }

// Total returns the number of such values so far.
func (c *Count) Total() (n int64) {
	for _, b := range c.blocks {
		n += b.Load()
	}
	return n
}

// Counted returns t converted to d, lazily, as Tensor.Convert does, and a count of its values that
// become infinite.
func Counted(t safetensors.Tensor, d safetensors.DType) (safetensors.Tensor, *Count, error) {
	whole, err := t.Convert(d)
	c := new(Count)
	if err != nil || !overflows(t.DType(), d) {
		return whole, c, err
	}
	counted, err := blocks.Join(t.Shape(), func(block []safetensors.Range, shape []int) (safetensors.Tensor, error) {
		from, err := t.Slice(block...)
		if err != nil {
			return from, err
		}
		to, err := from.Convert(d)
		if err != nil {
			return to, err
		}
		n := new(atomic.Int64)
		c.blocks = append(c.blocks, n)
		return safetensors.NewTensorFunc(d, shape, func(dst []byte) error {
			if _, err := safetensors.Append(dst[:0], to); err != nil {
				return err
			}
			after := count(dst, infinities[d])
			if after == 0 {
				return nil
			}
			before, err := infinite(from)
			n.Store(after - before)
			return err
		})
	})
	return counted, c, err
}

// infinite returns the number of infinite values of t.
func infinite(t safetensors.Tensor) (n int64, err error) {
	all, err := numbers.Append(nil, t)
	for _, x := range all {
		if math.IsInf(x, 0) {
			n++
		}
	}
	return n, err
}

// count returns how many of the codes are an infinity of either sign. It processes eight bytes at a
// time, four times in a row: a code of an infinity becomes zero when its sign is cleared and the
// bits of the infinity are flipped, so that subtracting one from it borrows.
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

// ranges lists dtypes in the order of their largest numbers. The numbers of all other dtypes are
// within the range of F8_E5M2.
var ranges = []safetensors.DType{safetensors.F8_E5M2, safetensors.F16, safetensors.F8_E8M0, safetensors.BF16, safetensors.F32, safetensors.F64}

// overflows reports whether a number of one dtype can be infinite in another.
func overflows(from, to safetensors.DType) bool {
	return infinities[to] != "" && slices.Index(ranges, from) > slices.Index(ranges, to)
}
