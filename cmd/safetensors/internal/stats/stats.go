// Package stats describes the values of tensors.
package stats

import (
	"runtime"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A Summary describes values. Min, Max, Mean and Std are those of the finite ones,
// NaN if there are none; Std is that of a population. Complex numbers are two values
// each.
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
	Typical   Histogram     `json:"-"` // of a total: of its floats from the quantile of 0.1 % to that of 99.9 %
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
	for _, r := range results { // in this order, because sums of floats depend on it
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
		total.Typical = typicalHistogram(typical)
	}
	return summaries, total, nil
}

// A worker is the memory of one goroutine.
type worker struct {
	block          []byte
	singles        []float32 // of the block, or
	numbers        []float64
	counts         table                           // of the tensor that it looks at: codes or buckets
	floats, others table                           // the buckets of the tensors that it finished
	values         map[safetensors.DType][]float64 // of codes
}

// each calls f for each number below n, concurrently, with a worker that no other call
// has.
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

// describe describes one tensor, its blocks in parallel.
func describe(t safetensors.Tensor, workers []*worker) (result, Summary, error) {
	r := newResult()
	if d := t.DType(); d == safetensors.F6_E2M3 || d == safetensors.F6_E3M2 {
		var err error
		if t, err = t.Convert(safetensors.BF16); err != nil { // which represents them
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

// coded reports whether the elements have so few bits that it is enough to count how
// often each code is there.
func coded(t safetensors.Tensor) bool { return t.DType().Bits() <= 16 }

// read looks at the block at an offset. Of codes the result is empty: they are counted.
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
	if d == safetensors.F32 { // the path of most models: it saves a copy in float64
		w.singles, err = safetensors.Append(w.singles[:0], block)
		return look(w.singles, &w.counts), err
	}
	w.numbers, err = numbers.Append(w.numbers[:0], block)
	return look(w.numbers, &w.counts), err
}
