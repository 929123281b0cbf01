package safetensors

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// blockSize is the share of a large copy that one goroutine does at a time. It
// is also how much of a mapping is brought in before it is touched.
const blockSize = 8 << 20

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

// parallelBlocks calls f for the blocks of size bytes, several at a time.
func parallelBlocks(size int64, f func(pos, n int64) error) error {
	return parallel(copyWorkers(), (size+blockSize-1)/blockSize, func(i int64) error {
		return f(i*blockSize, min(blockSize, size-i*blockSize))
	})
}
