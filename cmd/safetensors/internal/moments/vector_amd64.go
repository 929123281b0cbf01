//go:build !purego

package moments

import "golang.org/x/sys/cpu"

// hasVector reports whether the kernel runs on this processor.
var hasVector = cpu.X86.HasAVX2

// addVector adds the first numbers of b and returns their size in bytes, a multiple of
// all lanes.
func (l *lanes) addVector(b []byte, shift float32) int {
	n := len(b) / 32
	if n == 0 || !hasVector {
		return 0
	}
	var wide wideLanes
	addAVX2(&wide, &b[0], n, shift)
	l.sum, l.squares = wide.sum, wide.squares
	for i := range wide.least {
		l.least, l.most = min(l.least, wide.least[i]), max(l.most, wide.most[i])
		l.zeros += int64(wide.zeros[i])
		l.nan += int64(wide.nan[i])
		l.inf += int64(wide.inf[i])
	}
	return n * 32
}

// wideLanes are what the kernel writes. Numbers i and i+4 share a lane of the sums.
type wideLanes struct {
	sum, squares    [4]float64
	least, most     [8]int32
	zeros, nan, inf [8]uint32
}

// addAVX2 looks at n > 0 times eight numbers as lanes.add does.
//
//go:noescape
func addAVX2(l *wideLanes, b *byte, n int, shift float32)
