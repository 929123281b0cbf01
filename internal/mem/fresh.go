package mem

import (
	"math"
	"sync"
	"time"
)

// hugePage is the size of a huge page on the common systems, in bytes.
const hugePage = 2 << 20

// hugePagesFrom is the size in bytes from which it pays to fill new memory in huge pages.
const hugePagesFrom = 32 << 20

// Prepare faults in the pages for the n bytes of fresh that start at byte pos, which the
// caller fills next. fresh is memory from Extend or Allocate.
//
// Page faults are most of the cost of filling new memory. Huge pages take a fifth of the
// time if the machine has free ones, and several times as long as small pages if it has
// not: a virtual machine that has returned its free memory to the host must get each huge
// page from there. This can change within one allocation. So Prepare times each huge page,
// and continues with small pages after a slow one.
//
// Several goroutines may prepare parts of one slice.
func Prepare[T any](fresh []T, pos, n int64) {
	b := BytesOf(fresh)
	if len(b) < hugePagesFrom {
		return
	}
	// These are the huge pages that begin in the n bytes and end within fresh.
	b = b[pos:]
	ready := int64(-Address(b) & (hugePage - 1))
	for ; ready < n && ready+hugePage <= int64(len(b)); ready += hugePage {
		if !supply.ask() {
			continue
		}
		start := time.Now()
		if !faultHuge(b[ready:][:hugePage]) {
			return
		}
		supply.got(time.Since(start))
	}
}

// supply is the supply of huge pages of the machine, which all slices share.
var supply pageSupply

// A pageSupply decides whether to ask for more huge pages, by the time that earlier ones took.
type pageSupply struct {
	mu    sync.Mutex
	quick bool // whether the last huge page took less than slowPage
	slow  int  // number of slow huge pages in a row
	small int  // number of calls of ask that will still return false
}

// slowPage is the time from which a huge page counts as slow. Small pages of the same total size
// took 0.7 to 1.4 ms on the machines measured. Huge pages took 0.1 to 0.4 ms there, or 4 to 10 ms.
const slowPage = 1500 * time.Microsecond

// ask reports whether to take a huge page next. If it returns true, the caller must call got.
// As long as huge pages are not known to be quick, only one goroutine tries at a time.
func (s *pageSupply) ask() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.small > 0 {
		s.small--
		return false
	}
	if !s.quick {
		s.small = math.MaxInt // until got is called
	}
	return true
}

// got records how long a huge page took. The more huge pages were slow in a row, the later the next
// one is tried: while 2 GiB are prepared, all tries together cost about as much as ten slow pages.
func (s *pageSupply) got(took time.Duration) {
	const longest = 10
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quick = took < slowPage; s.quick {
		s.slow, s.small = 0, 0
		return
	}
	s.slow = min(s.slow+1, longest)
	s.small = 1 << s.slow
}
