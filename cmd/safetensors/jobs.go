package main

import (
	"cmp"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

// A job is work on some bytes.
type job struct {
	size int64
	do   func() error
}

// work does jobs, as many concurrently as there are processors, and shows the progress.
func (c *command) work(title string, jobs []job) error {
	total := int64(0)
	for _, j := range jobs {
		total += j.size
	}
	defer c.progress(title, total)()
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.size, a.size) }) // the longest first, so that all end together
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, j := range jobs {
		group.Go(j.do)
	}
	return group.Wait()
}
