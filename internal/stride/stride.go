// Package stride copies runs of bytes that are stored with strides, such as the elements of a
// transposed matrix, so that they become adjacent.
package stride

import (
	"encoding/binary"
	"slices"
)

// A Loop visits N places that lie Stride bytes apart.
type Loop struct{ N, Stride int64 }

// A processor cannot predict the address of the next row if that row starts in another page. So
// rows are prefetched if they are short and far apart. In bytes, longest is the largest size of
// such rows, near is the least distance between their starts, and ahead is how much is copied
// between the prefetch of a row and its use. Prefetching longer rows gained nothing.
const (
	longest = 2 << 10
	near    = 2 << 10
	ahead   = 4 << 10
)

// Line copies n runs of run bytes each. The runs start stride bytes apart in src and are adjacent
// in dst.
func Line(dst, src []byte, run, stride, n int) {
	switch run {
	case 1:
		for i := range n {
			dst[i] = src[i*stride]
		}
	case 2:
		for i := range n {
			binary.NativeEndian.PutUint16(dst[2*i:], binary.NativeEndian.Uint16(src[i*stride:]))
		}
	case 4:
		for i := range n {
			binary.NativeEndian.PutUint32(dst[4*i:], binary.NativeEndian.Uint32(src[i*stride:]))
		}
	case 8:
		dst = dst[:8*n]
		for i, from := 0, 0; i+8 <= len(dst); i, from = i+8, from+stride {
			binary.NativeEndian.PutUint64(dst[i:], binary.NativeEndian.Uint64(src[from:]))
		}
	default:
		if farRows(dst, src, run, stride, n) {
			return
		}
		for i := range n {
			copy(dst[i*run:][:run], src[i*stride:])
		}
	}
}

// Gather visits runs of run bytes in src by nested loops, with the outermost loop first. The bytes
// of all these runs, one after another, are the result. Gather fills dst with a part of the result,
// starting at its byte pos. Loops may have any strides, in any order.
func Gather(dst, src []byte, run int64, loops []Loop, pos int64) {
	steps, step := make([]loop, len(loops)), run
	for i, l := range slices.Backward(loops) {
		steps[i] = loop{int(l.N), int(l.Stride), step}
		step *= l.N
	}
	fill(dst, src, int(run), steps, pos)
}

// A loop takes n steps. The fields from and to are the length of a step in bytes, in the source and
// in the result. to is an int64 because the result may be larger than memory: a loop whose field
// from is 0 visits the same bytes n times.
type loop struct {
	n, from int
	to      int64
}

// fill fills dst with the result of the loops, starting at byte pos of the result. It finishes the
// step of the outermost loop that contains pos, fills all whole steps as one box, and ends with the
// first bytes of the next step.
func fill(dst, src []byte, run int, loops []loop, pos int64) {
	if len(loops) == 0 {
		copy(dst, src[pos:run])
		return
	}
	outer := loops[0]
	for len(dst) > 0 {
		at, within := src[pos/outer.to*int64(outer.from):], pos%outer.to
		n := int64(len(dst)) / outer.to * outer.to
		if within > 0 || n == 0 {
			n = min(outer.to-within, int64(len(dst)))
			fill(dst[:n], at, run, loops[1:], within)
		} else {
			whole := append([]loop{{int(n / outer.to), outer.from, outer.to}}, loops[1:]...)
			box(dst[:n], at, run, whole)
		}
		dst, pos = dst[n:], pos+n
	}
}

// box fills dst with all runs of the loops. The runs of the last loop are adjacent in dst. If the
// runs of another loop are closest to each other in src, that loop and the last one form a matrix
// to transpose.
func box(dst, src []byte, run int, loops []loop) {
	last := len(loops) - 1
	nearest := last
	for i, l := range loops {
		if l.n > 1 && (l.from < loops[nearest].from || loops[nearest].n == 1) {
			nearest = i
		}
	}
	if nearest == last {
		each(dst, src, loops[:last], func(dst, src []byte) {
			Line(dst, src, run, loops[last].from, loops[last].n)
		})
		return
	}
	rows, columns := loops[last], loops[nearest]
	others := slices.Concat(loops[:nearest], loops[nearest+1:last])
	var w workspace
	if len(dst) >= large {
		w.columns = make([]byte, len(w.rows))
	}
	each(dst, src, others, func(dst, src []byte) { transpose(dst, src, run, rows, columns, &w) })
}

// each calls f for every combination of steps of the loops.
func each(dst, src []byte, loops []loop, f func(dst, src []byte)) {
	if len(loops) == 0 {
		f(dst, src)
		return
	}
	for i := range loops[0].n {
		each(dst[int64(i)*loops[0].to:], src[i*loops[0].from:], loops[1:], f)
	}
}
