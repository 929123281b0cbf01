package main

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/gosafetensors/safetensors/internal/parallel"
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
	return parallel.Do(runtime.GOMAXPROCS(0), int64(len(jobs)), func(i int64) error { return jobs[i].do() })
}
