package remote

import (
	"iter"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

const (
	// maxGap is the largest gap between two reads that is read and dropped
	// to save a request. At 50 ms per round trip and 20 requests in flight, one
	// more request costs 2.5 ms: in that time a connection of 100 MB/s brings
	// 250 kB.
	maxGap = 256 << 10

	// maxSpan is the longest range of one request, except for the rest of a
	// header: long enough to make the round trip cheap, short enough for a tensor
	// to need several requests, which run concurrently.
	maxSpan = 8 << 20

	// maxParts bounds the memory for the parts of one request.
	maxParts = 64 << 10
)

// A part is a wanted range of a file and the memory to fill with it.
type part struct {
	off int64
	dst []byte
}

func (p part) end() int64 { return p.off + int64(len(p.dst)) }

// A pending part is one that a ReadAt waits for.
type pending struct {
	part
	done chan struct{} // closed once dst is filled, or err is set
	err  error
}

// A span is the range of a request that is being put together.
type span struct {
	begin, end int64
	parts      int
}

func spanOf(p part) span { return span{p.off, p.end(), 1} }

// add extends s by a part before or after it and reports whether it did. It
// refuses a part that is too far away or overlaps.
func (s *span) add(p part) bool {
	begin, end := min(s.begin, p.off), max(s.end, p.end())
	gap := (end - begin) - (s.end - s.begin) - int64(len(p.dst))
	if gap < 0 || gap > maxGap || end-begin > maxSpan || s.parts == maxParts {
		return false
	}
	*s = span{begin, end, s.parts + 1}
	return true
}

// enqueue adds a read to the waiting ones.
func (o *object) enqueue(w *pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := sort.Search(len(o.waiting), func(i int) bool { return o.waiting[i].off > w.off })
	o.waiting = slices.Insert(o.waiting, i, w)
}

// take removes a read and its near neighbors from the waiting ones and returns
// them, or nil if w has already been taken.
func (o *object) take(w *pending) []*pending {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := slices.Index(o.waiting, w)
	if first < 0 {
		return nil
	}
	last := first + 1
	span := spanOf(w.part)
	for last < len(o.waiting) && span.add(o.waiting[last].part) {
		last++
	}
	for first > 0 && span.add(o.waiting[first-1].part) {
		first--
	}
	taken := slices.Clone(o.waiting[first:last])
	o.waiting = slices.Delete(o.waiting, first, last)
	return taken
}

var _ safetensors.RangeReader = (*object)(nil)

// ReadRanges implements safetensors.RangeReader: it fills each slice with the
// bytes at its offset, with few, concurrent requests. It merges ranges that are
// in increasing order and do not overlap. Its memory does not grow with the
// number of ranges.
func (o *object) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	var (
		all    sync.WaitGroup
		failed atomic.Pointer[error]
	)
	for parts := range merge(ranges) {
		o.slots <- struct{}{} // before the next list is made: lists exist only in flight
		if failed.Load() != nil {
			<-o.slots
			break
		}
		all.Add(1)
		go parallel.Guarded(func() error { return o.fetch(parts) }, func(err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
			<-o.slots
			all.Done()
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return parallel.Rethrow(*err)
	}
	return nil
}

// merge groups ranges into the parts of one request each.
func merge(ranges iter.Seq2[int64, []byte]) iter.Seq[[]part] {
	return func(yield func([]part) bool) {
		var (
			parts []part
			s     span
		)
		for off, dst := range ranges {
			for len(dst) > 0 {
				p := part{off, dst[:min(len(dst), maxSpan)]}
				off, dst = p.end(), dst[len(p.dst):]
				if p.off >= s.end && len(parts) > 0 && s.add(p) {
					parts = append(parts, p)
					continue
				}
				if len(parts) > 0 && !yield(parts) {
					return
				}
				parts, s = []part{p}, spanOf(p)
			}
		}
		if len(parts) > 0 {
			yield(parts)
		}
	}
}
