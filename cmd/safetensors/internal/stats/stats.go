// Package stats describes the values of tensors.
package stats

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"golang.org/x/sync/errgroup"
)

// few is the size in bytes below which a tensor is not worth a table of counts: a
// model may have 100,000 that small.
const few = 16 << 10

// A Summary describes values. Min, Max, Mean and Std are those of the finite ones,
// NaN if there are none; Std is that of a population. Complex numbers are two values
// each.
type Summary struct {
	Count, Zeros, NaN, Inf int64
	Min, Max, Mean, Std    float64
	Histogram              Histogram
}

// blockSize is how much is read at once: few enough bytes to stay in the cache, and
// a multiple of every element.
const blockSize = 512 << 10

// Describe returns the summary of each tensor and that of all of them together. It
// reads each once, on all processors, in constant memory.
func Describe(tensors []safetensors.Tensor) ([]Summary, Summary, error) {
	workers := make([]*worker, runtime.GOMAXPROCS(0))
	for i := range workers {
		workers[i] = &worker{block: make([]byte, blockSize)}
	}
	results := make([]result, len(tensors))
	var small []int
	for i, t := range tensors {
		if t.Size() <= blockSize {
			small = append(small, i)
			continue
		}
		if err := describe(t, workers, &results[i]); err != nil {
			return nil, Summary{}, err
		}
	}
	err := inParallel(workers, int64(len(small)), func(w *worker, k int64) error {
		i := small[k]
		return describe(tensors[i], []*worker{w}, &results[i])
	})
	if err != nil {
		return nil, Summary{}, err
	}
	var counts buckets
	for _, w := range workers {
		counts.add(&w.all)
	}
	summaries := make([]Summary, len(tensors))
	all := newResult()
	for i, r := range results { // in this order, because sums of floats depend on it
		summaries[i] = r.summary
		all.join(r)
	}
	total := all.summarize()
	if all.n > 0 {
		total.Histogram = counts.histogram(all.min, all.max)
	}
	return summaries, total, nil
}

// inParallel calls f for each number below n, on the goroutine of a worker each.
func inParallel(workers []*worker, n int64, f func(w *worker, i int64) error) error {
	var group errgroup.Group
	var next atomic.Int64
	for _, w := range workers {
		group.Go(func() error {
			for {
				i := next.Add(1) - 1
				if i >= n {
					return nil
				}
				if err := f(w, i); err != nil {
					next.Store(n)
					return err
				}
			}
		})
	}
	return group.Wait()
}

// describe describes one tensor, its blocks in parallel.
func describe(t safetensors.Tensor, workers []*worker, r *result) error {
	*r = newResult()
	k, d := kindOf(t.DType())
	if d != t.DType() {
		var err error
		if t, err = t.Convert(d); err != nil {
			return err
		}
	}
	if t.Size() <= few {
		return workers[0].describeFew(k, t, r)
	}
	blocks := make([]pass, (t.Size()+blockSize-1)/blockSize)
	err := inParallel(workers, int64(len(blocks)), func(w *worker, i int64) error {
		off := i * blockSize
		b := w.block[:min(blockSize, t.Size()-off)]
		if _, err := t.ReadAt(b, off); err != nil {
			return err
		}
		blocks[i] = newPass()
		w.look(k, t.DType(), b, &blocks[i])
		return nil
	})
	var counts buckets
	for _, w := range workers {
		w.flush(&counts)
	}
	if err != nil {
		return err
	}
	if k.coded() {
		r.readCodes(k.values(t.DType()), &counts)
	} else {
		for i := range blocks {
			r.join(blocks[i].result())
		}
	}
	r.summary = r.summarize()
	if r.n > 0 {
		r.summary.Histogram = counts.histogram(r.min, r.max)
	}
	workers[0].all.add(&counts)
	return nil
}

// describeFew describes a small tensor.
func (w *worker) describeFew(k kind, t safetensors.Tensor, r *result) error {
	b := w.block[:t.Size()]
	if _, err := t.ReadAt(b, 0); err != nil {
		return err
	}
	values := k.decode(t.DType(), b)
	p := newPass()
	p.look(values)
	*r = p.result()
	r.summary = r.summarize()
	if r.n == 0 {
		return nil
	}
	h := newHistogram(r.min, r.max)
	for _, x := range values {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			h.add(bucketOf(x), 1)
			w.all[bucketOf(x)]++
		}
	}
	r.summary.Histogram = h.Histogram
	return nil
}

// A result describes some values. It has no counts, so that those of many
// tensors fit into memory.
type result struct {
	zeros, nan, inf int64
	min, max        float64
	n               int64 // finite values
	mean, squares   float64
	summary         Summary
}

func newResult() result { return result{min: math.Inf(1), max: math.Inf(-1)} }

// join adds the values of another result (Chan, Golub, LeVeque 1979).
func (r *result) join(o result) {
	r.zeros += o.zeros
	r.nan += o.nan
	r.inf += o.inf
	if o.n == 0 {
		return
	}
	r.min, r.max = min(r.min, o.min), max(r.max, o.max)
	n := r.n + o.n
	delta, share := o.mean-r.mean, float64(o.n)/float64(n)
	r.squares += o.squares + delta*delta*float64(r.n)*share
	r.mean += delta * share
	r.n = n
}

// readCodes computes everything from the number of times that each code is there. It
// turns the counts of codes into counts of buckets.
func (r *result) readCodes(values []float64, counts *buckets) {
	codes := slices.Clone(counts[:len(values)])
	clear(counts[:])
	sum := 0.0
	for code, x := range values {
		n := codes[code]
		switch {
		case n == 0:
			continue
		case math.IsNaN(x):
			r.nan += n
			continue
		case math.IsInf(x, 0):
			r.inf += n
			continue
		case x == 0:
			r.zeros += n
		}
		r.min, r.max = min(r.min, x), max(r.max, x)
		r.n += n
		sum += x * float64(n)
		counts[bucketOf(x)] += n
	}
	if r.n == 0 {
		return
	}
	r.mean = sum / float64(r.n)
	for code, x := range values {
		if n := codes[code]; n > 0 && !math.IsNaN(x) && !math.IsInf(x, 0) {
			r.squares += (x - r.mean) * (x - r.mean) * float64(n)
		}
	}
}

// summarize returns the summary but for the histogram.
func (r *result) summarize() Summary {
	s := Summary{
		Count: r.n + r.nan + r.inf, Zeros: r.zeros, NaN: r.nan, Inf: r.inf,
		Min: r.min, Max: r.max, Mean: r.mean, Std: math.Sqrt(r.squares / float64(r.n)),
	}
	if r.n == 0 {
		s.Min, s.Max, s.Mean, s.Std = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	}
	return s
}

// String describes a summary in a line, for tests and messages.
func (s Summary) String() string {
	return fmt.Sprintf("%d values from %g to %g, mean %g, std %g, %d zeros, %d NaN, %d Inf",
		s.Count, s.Min, s.Max, s.Mean, s.Std, s.Zeros, s.NaN, s.Inf)
}
