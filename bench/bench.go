// Package bench measures github.com/gosafetensors/safetensors beside what a
// user would pick instead: the other Go packages, the Rust crate, the Python
// package, and what the machine itself can do at best (the rows named
// "limit"). Run it with
//
//	go run ./cmd/bench
//
// in this directory. It needs Linux, cargo and python3 (without one of the
// latter two its rows stay empty), builds what it compares and writes
// RESULTS.md and charts/.
//
// A work is one table of RESULTS.md: cases, and in each case contestants that
// do the same thing with the same input. They take turns (A B C A B C …), so
// that a noisy moment of the machine hits all of them, and what counts is the
// median of the turns and its ratio to ours.
package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
)

// A Work is one thing to do, in several cases.
type Work struct {
	Name  string // for the flag -run
	Title string
	Intro string // Markdown: what is measured, on what
	Unit  string // what Case.Bytes counts, for the column of the throughput
	Chart string // title of its chart; none if empty
	run   func(*Bench) error
}

// Works are all works in the order of the report.
var Works = []Work{
	parseWork, openWork, loadWork, convertWork, shardWork,
	writeWork, encodeWork, worstWork, formatWork,
}

// A Bench runs works and collects what they measure.
type Bench struct {
	Dir    string    // holds the inputs; on the disk to measure
	RAMDir string    // a directory on a tmpfs
	Counts int       // turns of every contestant
	Quick  bool      // small inputs, one short turn each: does it all still work?
	Log    io.Writer // progress

	// Rust and Python are the commands of the contestants that are not Go;
	// they are left out if empty.
	Rust, Python []string

	// Self is the command that runs this program again with the same Dir and
	// Quick, for a contestant in a process of its own: to measure its memory
	// (see MemoryOf), or because it needs one (see Serve). If it is empty the
	// memory of Go contestants is left out and all share one process.
	Self []string

	Results []Result

	work     string // the work that is running
	memoryOf string // if set, only this contestant runs, once
}

// usualHeap is what a Go program with weights may have in memory at the least.
// The garbage collector starts whenever as much is added; in a heap with nothing
// in it, the many starts would cost more than a header.
const usualHeap = 64_000_000

// Run runs the works whose name matches.
func (b *Bench) Run(match *regexp.Regexp) error {
	if b.memoryOf == "" {
		heap := make([]byte, usualHeap)
		defer runtime.KeepAlive(heap)
	}
	for _, w := range Works {
		if !match.MatchString(w.Name) {
			continue
		}
		fmt.Fprintf(b.Log, "%s: %s\n", w.Name, w.Title)
		b.work = w.Name
		if err := w.run(b); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	return nil
}

// size returns the size of an input: the real one, or a small one in Quick.
func (b *Bench) size(full, quick int64) int64 {
	if b.Quick {
		return quick
	}
	return full
}

// file returns the path of an input, which is made by create if it is not
// there yet. Inputs are kept until Dir is removed, also for the processes
// that measure memory.
func (b *Bench) file(name string, create func(path string) error) (string, error) {
	path := filepath.Join(b.Dir, name)
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		err = create(path)
	}
	return path, err
}

const (
	kiB = 1 << 10
	miB = 1 << 20
	giB = 1 << 30
	tiB = 1 << 40
)
