package safetensors

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// readers is how many reads of an io.ReaderAt are under way at a time: enough to
// hide the latency of a disk, and some of that of a network.
const readers = 16

// copyWorkers returns how many goroutines share a copy: more than eight do not
// make memory or disks faster.
func copyWorkers() int { return min(runtime.GOMAXPROCS(0), 8) }

// parallel calls f(0) … f(n-1), workers of them at the same time, in rising
// order. After an error it begins no more and returns the first that it got.
func parallel(workers int, n int64, f func(i int64) error) error {
	if n <= 1 || workers <= 1 {
		for i := range n {
			if err := f(i); err != nil {
				return err
			}
		}
		return nil
	}
	var (
		next   atomic.Int64
		failed atomic.Pointer[error]
		all    sync.WaitGroup
	)
	for range min(int64(workers), n) {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := next.Add(1) - 1; i < n && failed.Load() == nil; i = next.Add(1) - 1 {
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		}()
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// parallelBlocks calls f for the blocks of size bytes, workers of them at a time.
func parallelBlocks(workers int, size int64, f func(pos, n int64) error) error {
	return parallel(workers, blockCount(size), func(i int64) error {
		return f(i*blockSize, min(blockSize, size-i*blockSize))
	})
}

func blockCount(size int64) int64 { return (size + blockSize - 1) / blockSize }

// aheadBlocks is how many blocks are read ahead of being written.
const aheadBlocks = 4

// inOrder produces n blocks, several at a time, and uses them one after another
// in order. It frees them, and stops at the first error, when nothing is under
// way any more. A block may be nil, if it is only a matter of using.
func inOrder(n int64, produce func(i int64) (*block, error), use func(i int64, b *block) error) error {
	type result struct {
		block *block
		err   error
	}
	var all sync.WaitGroup
	defer all.Wait()
	stop := make(chan struct{})
	defer close(stop)
	queue := make(chan chan result, aheadBlocks)
	all.Add(1)
	go func() {
		defer all.Done()
		defer close(queue)
		for i := range n {
			r := make(chan result, 1)
			select {
			case queue <- r:
			case <-stop:
				return
			}
			all.Add(1)
			go func() {
				defer all.Done()
				b, err := produce(i)
				r <- result{b, err}
			}()
		}
	}()
	i := int64(0)
	for r := range queue {
		next := <-r
		if next.err != nil {
			return next.err
		}
		err := use(i, next.block)
		next.block.free()
		if err != nil {
			return err
		}
		i++
	}
	return nil
}
