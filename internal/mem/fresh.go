package mem

import (
	"math"
	"sync"
	"time"
)

// hugePage is the size of a huge page on the common systems, in bytes.
const hugePage = 2 << 20

// hugePagesFrom is the size from which new memory is better filled in huge pages.
const hugePagesFrom = 32 << 20

// Prepare makes the pages of fresh, memory from Extend or Allocate, ready for the n
// bytes from pos on, which the caller fills next. Page faults are most of the cost
// of filling new memory. Huge pages take a fifth of the time where the machine has
// them at hand, and several times as long as small ones where it has not: a virtual
// machine that has reported its free memory to the host gets each huge page from
// there. Which of the two it is changes within one allocation. So each huge page is
// timed, and small ones follow a slow one.
//
// Several goroutines may prepare parts of one slice.
func Prepare[T any](fresh []T, pos, n int64) {
	b := BytesOf(fresh)
	if len(b) < hugePagesFrom {
		return
	}
	// The huge pages that begin in these bytes, as far as all of fresh reaches.
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

// supply is that of the machine, which all slices share.
var supply pageSupply

// A pageSupply decides by how long huge pages took whether to ask for more.
type pageSupply struct {
	mu    sync.Mutex
	quick bool // the last huge page was
	slow  int  // slow ones in a row
	small int  // how often the answer is still no
}

// slowPage is the time from which a huge page is slow: what small pages of the same
// size take, 0.7 to 1.4 ms where they were measured. Huge pages took 0.1 to 0.4 ms
// there, or 4 to 10.
const slowPage = 1500 * time.Microsecond

// ask reports whether to take a huge page next. After a yes, got has to be called.
// While pages are not known to be quick, one goroutine tries at a time.
func (s *pageSupply) ask() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.small > 0 {
		s.small--
		return false
	}
	if !s.quick {
		s.small = math.MaxInt // until got
	}
	return true
}

// got notes how long a huge page took. The more were slow in a row, the longer it
// takes until the next try: together the tries of 2 GiB cost about ten slow pages.
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
