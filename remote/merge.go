package remote

import (
	"iter"
	"slices"
	"sort"
	"sync"
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

// A queue holds the reads that no request has taken yet, by offset.
type queue struct {
	mu      sync.Mutex
	waiting []*pending
}

// add adds a read to the waiting ones.
func (q *queue) add(w *pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := sort.Search(len(q.waiting), func(i int) bool { return q.waiting[i].off > w.off })
	q.waiting = slices.Insert(q.waiting, i, w)
}

// take removes a read and its near neighbors from the waiting ones and returns
// them, or nil if w has already been taken.
func (q *queue) take(w *pending) []*pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := slices.Index(q.waiting, w)
	if first < 0 {
		return nil
	}
	last := first + 1
	span := spanOf(w.part)
	for last < len(q.waiting) && span.add(q.waiting[last].part) {
		last++
	}
	for first > 0 && span.add(q.waiting[first-1].part) {
		first--
	}
	taken := slices.Clone(q.waiting[first:last])
	q.waiting = slices.Delete(q.waiting, first, last)
	return taken
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
