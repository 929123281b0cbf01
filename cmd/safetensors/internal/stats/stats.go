// Package stats describes the values of tensors.
package stats

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"golang.org/x/sync/errgroup"
)

// A Summary describes values. Min, Max, Mean and Std are those of the finite ones,
// NaN if there are none; Std is that of a population. Complex numbers are two values
// each.
type Summary struct {
	Count, Zeros, NaN, Inf int64
	Min, Max, Mean, Std    float64
	Histogram              Histogram
	Typical                Histogram // of a total: of its floats from the quantile of 0.1 % to that of 99.9 %
}

// blockSize is how much is read at once: few enough bytes to stay in the cache, and
// a multiple of every element.
const blockSize = 512 << 10

// atOnce is how many blocks are looked at before their results are joined: a tensor of
// any size takes constant memory. A test has fewer.
var atOnce = int64(2 << 10)

// small is the size in bytes up to which a tensor is left to one goroutine, while
// others look at others.
const small = 8 * blockSize

// Describe returns the summary of each tensor and that of all of them together. It
// reads each once, on all processors, in constant memory.
func Describe(tensors []safetensors.Tensor) ([]Summary, Summary, error) {
	workers := make([]*worker, runtime.GOMAXPROCS(0))
	for i := range workers {
		workers[i] = &worker{block: make([]byte, blockSize)}
	}
	results := make([]result, len(tensors))
	var few []int
	for i, t := range tensors {
		if t.Size() <= small {
			few = append(few, i)
			continue
		}
		if err := describe(t, workers, &results[i]); err != nil {
			return nil, Summary{}, err
		}
	}
	err := inParallel(workers, int64(len(few)), func(w *worker, k int64) error {
		i := few[k]
		return describe(tensors[i], []*worker{w}, &results[i])
	})
	if err != nil {
		return nil, Summary{}, err
	}
	var counts, typical buckets
	for _, w := range workers {
		typical.add(w.all[0].counts())
		counts.add(w.all[1].counts())
	}
	counts.add(typical.counts())
	summaries := make([]Summary, len(tensors))
	all := newResult()
	for i, r := range results { // in this order, because sums of floats depend on it
		summaries[i] = r.summary
		all.join(r)
	}
	total := all.summarize()
	if all.n > 0 {
		total.Histogram = newHistogram(all.min, all.max, counts.counts())
		total.Typical = typicalHistogram(typical.counts())
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
	all := (t.Size() + blockSize - 1) / blockSize
	blocks := make([]pass, min(all, atOnce))
	for first := int64(0); first < all; first += atOnce {
		blocks = blocks[:min(all-first, atOnce)]
		clear(blocks)
		err := inParallel(workers, int64(len(blocks)), func(w *worker, i int64) error {
			off := (first + i) * blockSize
			b := w.block[:min(blockSize, t.Size()-off)]
			if _, err := t.ReadAt(b, off); err != nil {
				return err
			}
			w.look(k, b, &blocks[i])
			return nil
		})
		if err != nil {
			return err
		}
		for i := range blocks {
			r.join(blocks[i].result()) // of codes: nothing
		}
	}
	counts := drain(workers)
	if k.coded() {
		counts = r.readCodes(k.values(d), unpack(counts, d, t.Size()))
	}
	r.summary = r.summarize()
	if r.n > 0 {
		r.summary.Histogram = newHistogram(r.min, r.max, counts)
	}
	workers[0].all[k.others()].add(counts)
	return nil
}

// A result describes some values. It has no counts, so that those of many
// tensors fit into memory.
type result struct {
	zeros, nan, inf int64
	min, max        float64
	n               int64   // finite values
	mean, squares   float64 // in the unit of the values
	summary         Summary
}

func newResult() result { return result{min: math.Inf(1), max: math.Inf(-1)} }

// unit returns the exponent of the power of two in which values from least to most are
// summed: 0, unless the sums of squares of float64 could overflow or vanish. That of
// values which are all zero, or none, is the smallest.
func unit(least, most float64) int {
	switch x := max(-least, most); {
	case x > 0x1p480:
		return 600
	case x < 0x1p-400:
		return -600
	}
	return 0
}

// join adds the values of another result (Chan, Golub, LeVeque 1979).
func (r *result) join(o result) {
	r.zeros += o.zeros
	r.nan += o.nan
	r.inf += o.inf
	if o.n == 0 {
		return
	}
	least, most := min(r.min, o.min), max(r.max, o.max)
	r.rescale(unit(least, most))
	o.rescale(unit(least, most))
	r.min, r.max = least, most
	n := r.n + o.n
	delta, share := o.mean-r.mean, float64(o.n)/float64(n)
	r.squares += o.squares + delta*delta*float64(r.n)*share
	r.mean += delta * share
	r.n = n
}

// rescale gives mean and squares another unit than that of the values.
func (r *result) rescale(exponent int) {
	shift := unit(r.min, r.max) - exponent
	r.mean, r.squares = math.Ldexp(r.mean, shift), math.Ldexp(r.squares, 2*shift)
}

// unpack returns the counts of codes of a dtype, several of which may have been counted
// as one of 16 bits, and the last of size bytes with a byte 0.
func unpack(counts []count, d safetensors.DType, size int64) []count {
	if d.Bits() == 16 {
		return counts
	}
	var totals [1 << 8]int64
	bits := d.Bits()
	totals[0] = -(size % 2) * int64(8/bits)
	for _, c := range counts {
		for shift := 0; shift < 16; shift += bits {
			totals[c.code>>shift&(1<<bits-1)] += c.n
		}
	}
	counts = counts[:0]
	for code, n := range totals {
		if n > 0 {
			counts = append(counts, count{uint16(code), n})
		}
	}
	return counts
}

// readCodes computes everything from the number of times that each code is there. It
// turns the counts of codes into counts of buckets.
func (r *result) readCodes(values []float64, counts []count) []count {
	sum := 0.0
	finite := counts[:0]
	for _, c := range counts {
		x := values[c.code]
		switch {
		case math.IsNaN(x):
			r.nan += c.n
			continue
		case math.IsInf(x, 0):
			r.inf += c.n
			continue
		case x == 0:
			r.zeros += c.n
		}
		r.min, r.max = min(r.min, x), max(r.max, x)
		r.n += c.n
		sum += x * float64(c.n)
		finite = append(finite, c)
	}
	if r.n == 0 {
		return nil
	}
	r.mean = sum / float64(r.n)
	for i, c := range finite {
		x := values[c.code]
		r.squares += (x - r.mean) * (x - r.mean) * float64(c.n)
		finite[i].code = bucketOf(x)
	}
	return finite
}

// summarize returns the summary but for the histogram.
func (r *result) summarize() Summary {
	exponent := unit(r.min, r.max)
	s := Summary{
		Count: r.n + r.nan + r.inf, Zeros: r.zeros, NaN: r.nan, Inf: r.inf,
		Min: r.min, Max: r.max, Mean: math.Ldexp(r.mean, exponent),
		Std: min(math.Ldexp(math.Sqrt(r.squares/float64(r.n)), exponent), math.MaxFloat64), // rounding may exceed it
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
