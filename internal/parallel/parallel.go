// Package parallel runs numbered pieces of work on several goroutines.
package parallel

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// CopyWorkers returns the number of goroutines that share a copy. It is at most eight, because more
// do not make memory or disks faster.
func CopyWorkers() int { return min(runtime.GOMAXPROCS(0), 8) }

// errGoexit is the error of a callback that ended its goroutine.
var errGoexit = errors.New("runtime.Goexit was called in a callback")

// A panicked is the error of a callback that panicked with value.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprint(p.value) }

// Guarded calls f, and then done with the error of f. A panic in f and runtime.Goexit in f become
// errors, so that callers on other goroutines learn of them.
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

// Rethrow returns err, or, if err stands for a panic that Guarded recovered, panics with the same
// value.
func Rethrow(err error) error {
	if p, ok := err.(panicked); ok {
		panic(p.value)
	}
	return err
}

// Do starts the calls f(0) … f(n-1) in increasing order. The argument workers limits the number of
// concurrent calls. After an error Do starts no further call, waits for the running ones, and
// returns the error of the lowest i, which is the same in every run if f depends on i only. A panic
// in f is raised again on the goroutine that called Do. If n or workers is 1, that goroutine itself
// calls f; otherwise runtime.Goexit in f is an error.
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
		lowest = n // lowest i whose call failed, or n
		first  error
	)
	for range min(int64(workers), n) {
		all.Add(1)
		var i int64
		go Guarded(func() error {
			// failed is checked before the next i is taken, so that no i below a failed one is left
			// out.
			for !failed.Load() {
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

// Blocks divides size bytes into blocks of blockSize bytes, where the last may be shorter, and
// calls f for each block as Do does.
func Blocks(workers int, size, blockSize int64, f func(pos, n int64) error) error {
	return Do(workers, BlockCount(size, blockSize), func(i int64) error {
		return f(i*blockSize, min(blockSize, size-i*blockSize))
	})
}

// BlockCount returns the number of blocks of blockSize bytes that size bytes fill, the last perhaps
// in part.
func BlockCount(size, blockSize int64) int64 {
	return size/blockSize + min(1, size%blockSize) // the sum size + blockSize could overflow
}

// InOrder calls the func produce for n values concurrently, and the func use for one value after
// another, in order. It produces up to ahead values before they are used, and holds at most two
// more: the value in use, and the value whose producer is about to start. Every produced value is
// given to either use or drop. InOrder stops at the first error, and returns it after all its
// goroutines have finished. A panic in produce is raised again on the goroutine that called
// InOrder. runtime.Goexit in produce is an error.
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
		for r := range queue { // drops the values that will not be used
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
