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

// joins reports whether a request for n parts, from begin to end, takes one more before or
// after them: one that is near and overlaps none.
func joins(begin, end int64, n int, p part) bool {
	length := max(end, p.end()) - min(begin, p.off)
	gap := length - (end - begin) - int64(len(p.dst))
	return 0 <= gap && gap <= maxGap && length <= maxSpan && n < maxParts
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
	joined := func(p *pending) bool { return joins(q.waiting[first].off, q.waiting[last-1].end(), last-first, p.part) }
	for last < len(q.waiting) && joined(q.waiting[last]) {
		last++
	}
	for first > 0 && joined(q.waiting[first-1]) {
		first--
	}
	taken := slices.Clone(q.waiting[first:last])
	q.waiting = slices.Delete(q.waiting, first, last)
	return taken
}

// merge groups ranges into the parts of one request each.
func merge(ranges iter.Seq2[int64, []byte]) iter.Seq[[]part] {
	return func(yield func([]part) bool) {
		var parts []part
		for off, dst := range ranges {
			for len(dst) > 0 {
				p := part{off, dst[:min(len(dst), maxSpan)]}
				off, dst = p.end(), dst[len(p.dst):]
				if n := len(parts); n > 0 && p.off >= parts[n-1].end() && joins(parts[0].off, parts[n-1].end(), n, p) {
					parts = append(parts, p)
					continue
				}
				if len(parts) > 0 && !yield(parts) {
					return
				}
				parts = []part{p}
			}
		}
		if len(parts) > 0 {
			yield(parts)
		}
	}
}
