package mem

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	quickly = 200 * time.Microsecond
	slowly  = 8 * time.Millisecond
)

// fill asks a supply for n pages, one after another. Taking huge page i costs cost(i). fill returns
// the number of huge pages.
func fill(s *pageSupply, n int, cost func(i int) time.Duration) (huge int) {
	for i := range n {
		if s.ask() {
			huge++
			s.got(cost(i))
		}
	}
	return huge
}

// TestHugePagesWhileTheyAreQuick simulates a machine whose huge pages are quick, then slow, then
// quick again, and counts how many are requested.
func TestHugePagesWhileTheyAreQuick(t *testing.T) {
	var s pageSupply
	quick := func(int) time.Duration { return quickly }
	slow := func(int) time.Duration { return slowly }
	require.Equal(t, 1000, fill(&s, 1000, quick))
	require.Equal(t, 9, fill(&s, 1000, slow), "after 2, 4, 8 small ones and so on")
	require.LessOrEqual(t, fill(&s, 100_000, slow), 100_000/1024+1, "the tries never end, and cost less than a hundredth")
	require.Greater(t, fill(&s, 3000, quick), 1900, "the machine has them again")
}

// TestHugePagesSlowNow simulates huge pages that are quick at first, and later slow from time to
// time.
func TestHugePagesSlowNow(t *testing.T) {
	var s pageSupply
	slow := 0
	huge := fill(&s, 1024, func(i int) time.Duration {
		if i >= 8 && i < 900 {
			slow++
			return slowly
		}
		return quickly
	})
	require.Equal(t, 9, slow)
	require.Less(t, huge, 150)

	s = pageSupply{}
	huge = fill(&s, 1000, func(i int) time.Duration {
		if i%100 == 50 { // as if another process ran in between
			return slowly
		}
		return quickly
	})
	require.Equal(t, 980, huge, "a single slow one costs two small ones")
}

// TestHugePagesOneTries: many goroutines ask concurrently. While it is unknown whether huge pages
// are quick, only one goroutine takes one.
func TestHugePagesOneTries(t *testing.T) {
	var s pageSupply
	require.True(t, s.ask())
	require.False(t, s.ask())
	s.got(slowly)
	require.False(t, s.ask())
	require.False(t, s.ask())
	require.True(t, s.ask())
	require.False(t, s.ask())
	s.got(quickly)
	require.True(t, s.ask())
	require.True(t, s.ask())
}

// TestPrepare prepares memory in blocks on several goroutines. The bytes that they have written
// stay unchanged.
func TestPrepare(t *testing.T) {
	const block = 3<<20 + 8 // does not end at the end of a page
	for _, size := range []int{0, 100, hugePagesFrom - 1, hugePagesFrom, hugePagesFrom + hugePage/2, 2*hugePagesFrom + 1} {
		fresh := Allocate[byte](size)
		var all sync.WaitGroup
		for pos := 0; pos < size; pos += block {
			all.Add(1)
			go func() {
				defer all.Done()
				n := min(block, size-pos)
				Prepare(fresh, int64(pos), int64(n))
				for i := range fresh[pos:][:n] {
					fresh[pos+i] = byte(i)
				}
			}()
		}
		all.Wait()
		for i, b := range fresh {
			if b != byte(i%block) {
				t.Fatalf("byte %d of %d is %d", i, size, b)
			}
		}
		if size >= hugePagesFrom {
			require.Zero(t, Address(fresh)%hugePage)
		}
	}
}
