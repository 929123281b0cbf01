package main

import (
	"iter"

	"github.com/gosafetensors/safetensors"
	"golang.org/x/sync/errgroup"
)

var _ safetensors.RangeReader = (*object)(nil)

// A span is a range of an object and its destination.
type span struct {
	off int64
	dst []byte
}

func (s span) end() int64 { return s.off + int64(len(s.dst)) }

// ReadRanges makes an object a safetensors.RangeReader. Without it a slice of many
// short runs, such as columns, would take one request for each run. A request costs
// more than the bytes of a gap, so ReadRanges reads neighbors together, up to a size
// that bounds the memory.
func (o *object) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	const largestGap, most = 256 << 10, 1 << 20
	var requests errgroup.Group
	requests.SetLimit(8) // in each call; several calls may run concurrently
	var near []span
	for off, dst := range ranges {
		next := span{off, dst}
		if len(near) > 0 && (off-near[len(near)-1].end() > largestGap || next.end()-near[0].off > most) {
			spans := near
			requests.Go(func() error { return o.readSpans(spans) })
			near = nil
		}
		near = append(near, next)
	}
	if len(near) > 0 {
		requests.Go(func() error { return o.readSpans(near) })
	}
	return requests.Wait()
}

// readSpans fills spans in one request that includes the gaps between them.
func (o *object) readSpans(spans []span) error {
	whole := spans[0]
	if len(spans) > 1 {
		whole.dst = make([]byte, spans[len(spans)-1].end()-whole.off)
	}
	if n, err := o.ReadAt(whole.dst, whole.off); n < len(whole.dst) {
		return err
	}
	if len(spans) > 1 {
		for _, s := range spans {
			copy(s.dst, whole.dst[s.off-whole.off:])
		}
	}
	return nil
}
