package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRequests checks the numbers of doc/cluster.md that are not times.
func TestRequests(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out, checkpoint{shards: 6, tensors: 10}, limits{}, 3, time.Microsecond, []string{"all", "index", "own", "replay"}))
	var counts []string
	for line := range strings.Lines(out.String()) {
		columns := strings.Split(strings.ReplaceAll(line, " ", ""), "|")
		counts = append(counts, strings.Join(columns[:4], " ")+" "+columns[7])
	}
	require.Equal(t, []string{
		"step ranks requests refused failedranks",
		"all 3 21 0 0",   // three times an index and six shards
		"index 3 9 0 0",  // three times the index, each shard once
		"own 3 6 0 0",    // each shard once
		"replay 3 3 0 0", // one object for each rank
	}, counts)
	require.ErrorContains(t, run(&out, checkpoint{1, 1}, limits{}, 1, 0, []string{"none"}), `no step is named "none"`)
}

// TestRate checks that the server refuses requests above the rate, and that ranks
// open nevertheless.
func TestRate(t *testing.T) {
	b, err := newBucket(checkpoint{1, 1})
	require.NoError(t, err)
	now := time.Now()
	b.now = func() time.Time { return now }
	b.restrict(limits{rate: 10})
	require.True(t, b.admit())
	require.False(t, b.admit())
	now = now.Add(time.Second / 10)
	require.True(t, b.admit())
	total, refused, _ := b.restrict(limits{})
	require.Equal(t, 3, total)
	require.Equal(t, 1, refused)
}
