package remote

import (
	"iter"
	"slices"
	"sort"
	"sync"
)

const (
	// maxGap is the largest gap in bytes between two reads that is downloaded and dropped to save a
	// request. At 50 ms per round trip and 20 requests in flight, one more request costs 2.5 ms, in
	// which a connection of 100 MB/s transfers 250 kB.
	maxGap = 256 << 10

	// maxSpan is the longest range of one request in bytes, except for the rest of a header. It is
	// long enough to make the round trip cheap, and short enough that a large tensor takes several
	// requests, which run concurrently.
	maxSpan = 8 << 20

	// maxParts is the largest number of parts of one request. It limits the memory that they take.
	maxParts = 64 << 10
)

// A part is a range of a file, and the memory to read it into.
type part struct {
	off int64
	dst []byte
}

func (p part) end() int64 { return p.off + int64(len(p.dst)) }

// A pending is a part that a call of ReadAt waits for.
type pending struct {
	part
	done chan struct{} // closed once dst is filled, or err is set
	err  error
}

// joins reports whether p may be added to a request for n parts that span the bytes from begin to
// end: p must lie before or after them, close to them, and overlap none of them.
func joins(begin, end int64, n int, p part) bool {
	length := max(end, p.end()) - min(begin, p.off)
	gap := length - (end - begin) - int64(len(p.dst))
	return 0 <= gap && gap <= maxGap && length <= maxSpan && n < maxParts
}

// A queue holds the reads that no request has taken yet, in the order of their offsets.
type queue struct {
	mu      sync.Mutex
	waiting []*pending
}

// add inserts a read into the waiting ones.
func (q *queue) add(w *pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := sort.Search(len(q.waiting), func(i int) bool { return q.waiting[i].off > w.off })
	q.waiting = slices.Insert(q.waiting, i, w)
}

// take removes a read and its near neighbors from the queue and returns them. It returns nil if w
// has already been taken.
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

// merge groups ranges into lists of parts, one list for each request.
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
