// Package stats describes the values of tensors.
package stats

import (
	"runtime"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A Summary describes values. Min, Max, Mean and Std are those of the finite values, or NaN if
// there are none. Std is the standard deviation of a population. A complex number counts as two
// values.
type Summary struct {
	Count     int64         `json:"count"`
	Min       numbers.Float `json:"min"`
	Max       numbers.Float `json:"max"`
	Mean      numbers.Float `json:"mean"`
	Std       numbers.Float `json:"std"`
	Zeros     int64         `json:"zeros"`
	NaN       int64         `json:"nan"`
	Inf       int64         `json:"inf"`
	Histogram Histogram     `json:"histogram"`
	// Typical is set only in the summary of all tensors: it is the histogram of their floats
	// between the quantiles 0.1 % and 99.9 %.
	Typical Histogram `json:"-"`
}

// blockSize is the number of bytes that are read at a time. A block fits the cache of a processor,
// and its size is a multiple of the size of every element.
const blockSize = 512 << 10

// atOnce is the number of blocks whose results are held at a time, so that a tensor of any size
// takes constant memory. Tests set it to less.
var atOnce = int64(2 << 10)

// small is the size in bytes up to which one goroutine describes a whole tensor, while other
// goroutines describe other tensors.
const small = 8 * blockSize

// Describe returns the summary of each tensor and the summary of all of them together. It reads
// each tensor once, on all processors, in constant memory.
func Describe(tensors []safetensors.Tensor) ([]Summary, Summary, error) {
	workers := make([]*worker, runtime.GOMAXPROCS(0))
	for i := range workers {
		workers[i] = &worker{block: make([]byte, blockSize), values: map[safetensors.DType][]float64{}}
	}
	results := make([]result, len(tensors))
	summaries := make([]Summary, len(tensors))
	one := func(i int, workers ...*worker) (err error) {
		results[i], summaries[i], err = describe(tensors[i], workers)
		return err
	}
	var few []int
	for i, t := range tensors {
		if t.Size() <= small {
			few = append(few, i)
		} else if err := one(i, workers...); err != nil {
			return nil, Summary{}, err
		}
	}
	err := each(workers, int64(len(few)), func(w *worker, k int64) error { return one(few[k], w) })
	if err != nil {
		return nil, Summary{}, err
	}
	all := newResult()
	for _, r := range results { // in the order of the tensors, because sums of floats depend on it
		all.join(r)
	}
	for _, w := range workers[1:] {
		workers[0].floats.addAll(w.floats.drain())
		workers[0].others.addAll(w.others.drain())
	}
	typical := workers[0].floats.drain()
	workers[0].others.addAll(typical)
	total := all.summary(workers[0].others.drain())
	if all.n > 0 {
		total.Typical = typicalHistogram(all.min, all.max, typical)
	}
	return summaries, total, nil
}

// A worker holds the memory that one goroutine reuses.
type worker struct {
	block          []byte
	singles        []float32                       // elements of the current block, if its dtype is F32 or C64
	numbers        []float64                       // elements of the current block, for other dtypes
	counts         table                           // counts of the codes or the buckets of the current tensor
	floats, others table                           // counts of the buckets of finished tensors: of those with floats or complex numbers, and of all others
	values         map[safetensors.DType][]float64 // numbers of all codes, by dtype
}

// each calls f for each i below n, concurrently. No two running calls use the same worker.
func each(workers []*worker, n int64, f func(w *worker, i int64) error) error {
	idle := make(chan *worker, len(workers))
	for _, w := range workers {
		idle <- w
	}
	return parallel.Do(len(workers), n, func(i int64) error {
		w := <-idle
		defer func() { idle <- w }()
		return f(w, i)
	})
}

// describe describes one tensor. It reads the blocks in parallel.
func describe(t safetensors.Tensor, workers []*worker) (result, Summary, error) {
	r := newResult()
	if d := t.DType(); d == safetensors.F6_E2M3 || d == safetensors.F6_E3M2 {
		var err error
		if t, err = t.Convert(safetensors.BF16); err != nil { // BF16 represents all numbers of both dtypes
			return r, Summary{}, err
		}
	}
	n := (t.Size() + blockSize - 1) / blockSize
	blocks := make([]result, min(n, atOnce))
	for first := int64(0); first < n; first += atOnce {
		blocks = blocks[:min(n-first, atOnce)]
		err := each(workers, int64(len(blocks)), func(w *worker, i int64) (err error) {
			blocks[i], err = w.read(t, (first+i)*blockSize)
			return err
		})
		if err != nil {
			return r, Summary{}, err
		}
		for _, block := range blocks {
			r.join(block)
		}
	}
	w := workers[0]
	for _, other := range workers[1:] {
		w.counts.addAll(other.counts.drain())
	}
	counts := w.counts.drain()
	if coded(t) {
		values, known := w.values[t.DType()]
		if !known {
			values = valuesOf(t.DType())
			w.values[t.DType()] = values
		}
		counts = r.readCodes(values, unpack(counts, t.DType(), t.Size()))
	}
	if t.DType().IsFloat() || t.DType() == safetensors.C64 {
		w.floats.addAll(counts)
	} else {
		w.others.addAll(counts)
	}
	return r, r.summary(counts), nil
}

// coded reports whether the elements of a tensor have so few bits that it suffices to count how
// often each code occurs.
func coded(t safetensors.Tensor) bool { return t.DType().Bits() <= 16 }

// read describes the block that starts at an offset of t, in bytes. If the elements are coded, it
// only counts their codes, and the result is empty.
func (w *worker) read(t safetensors.Tensor, off int64) (result, error) {
	b := w.block[:min(blockSize, t.Size()-off)]
	if _, err := t.ReadAt(b, off); err != nil {
		return result{}, err
	}
	if coded(t) {
		w.counts.addCodes(b)
		return newResult(), nil
	}
	d := t.DType()
	if d == safetensors.C64 {
		d = safetensors.F32
	}
	block, err := safetensors.NewTensor(d, []int{len(b) * 8 / d.Bits()}, b)
	if err != nil {
		return result{}, err
	}
	if d == safetensors.F32 { // most models have F32; this saves a copy in float64
		w.singles, err = safetensors.Append(w.singles[:0], block)
		return look(w.singles, &w.counts), err
	}
	w.numbers, err = numbers.Append(w.numbers[:0], block)
	return look(w.numbers, &w.counts), err
}
