// Package parallel runs numbered pieces of work on several goroutines.
package parallel

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// CopyWorkers returns how many goroutines share a copy. More than eight do not
// make memory or disks faster.
func CopyWorkers() int { return min(runtime.GOMAXPROCS(0), 8) }

// errGoexit is the error of a call that ended its goroutine.
var errGoexit = errors.New("runtime.Goexit was called in a callback")

// A panicked is the error of a call that panicked with value.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprint(p.value) }

// Guarded calls f. A panic in it and runtime.Goexit become errors, so that callers
// on other goroutines hear of them; done gets the error in any case.
func Guarded(f func() error, done func(error)) {
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = panicked{p}
		}
		done(err)
	}()
	err = f()
}

// Rethrow returns err, or panics with the value that a func of Guarded panicked
// with.
func Rethrow(err error) error {
	if p, ok := err.(panicked); ok {
		panic(p.value)
	}
	return err
}

// Do calls f(0) … f(n-1) in increasing order, up to workers of them
// concurrently. After an error it starts no further call and returns, once the running
// calls have ended, the error of the lowest i: the same one each time if f depends on
// nothing else. A panic in f is raised again on the goroutine that called Do;
// runtime.Goexit in f is an error.
func Do(workers int, n int64, f func(i int64) error) error {
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
		failed atomic.Bool
		all    sync.WaitGroup
		mu     sync.Mutex
		lowest = n // that failed
		first  error
	)
	for range min(int64(workers), n) {
		all.Add(1)
		var i int64
		go Guarded(func() error {
			for !failed.Load() { // before the next i is taken: no i below a failed one is left out
				if i = next.Add(1) - 1; i >= n {
					return nil
				}
				if err := f(i); err != nil {
					return err
				}
			}
			return nil
		}, func(err error) {
			if err != nil {
				failed.Store(true)
				mu.Lock()
				if i < lowest {
					lowest, first = i, err
				}
				mu.Unlock()
			}
			all.Done()
		})
	}
	all.Wait()
	return Rethrow(first)
}

// Blocks cuts size bytes into blocks of blockSize, the last one shorter, and
// calls f for each as Do does.
func Blocks(workers int, size, blockSize int64, f func(pos, n int64) error) error {
	return Do(workers, BlockCount(size, blockSize), func(i int64) error {
		return f(i*blockSize, min(blockSize, size-i*blockSize))
	})
}

// BlockCount returns how many blocks of blockSize hold size bytes.
func BlockCount(size, blockSize int64) int64 {
	return size/blockSize + min(1, size%blockSize) // size + blockSize could overflow
}

// InOrder produces n values concurrently and uses them one after another, in
// order. It produces up to ahead of them ahead of their use, and holds at most two
// more: the one in use and the one whose producer is about to start. A value that
// was produced is either used or dropped. InOrder stops at
// the first error and returns it after all its goroutines have finished. A panic
// in produce is raised again on the goroutine that called InOrder; runtime.Goexit
// in it is an error.
func InOrder[T any](ahead int, n int64, produce func(i int64) (T, error), use func(i int64, v T) error, drop func(T)) error {
	type result struct {
		value T
		err   error
	}
	var all sync.WaitGroup
	stop := make(chan struct{})
	queue := make(chan chan result, ahead)
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
			var v T
			go Guarded(func() (err error) {
				v, err = produce(i)
				return err
			}, func(err error) {
				r <- result{v, err}
				all.Done()
			})
		}
	}()
	defer func() {
		close(stop)
		for r := range queue { // what nobody will use
			if next := <-r; next.err == nil {
				drop(next.value)
			}
		}
		all.Wait()
	}()
	i := int64(0)
	for r := range queue {
		next := <-r
		if next.err != nil {
			return Rethrow(next.err)
		}
		if err := use(i, next.value); err != nil {
			return err
		}
		i++
	}
	return nil
}
