package bench

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"
)

// A work is what all contestants of a row have in common.
type work struct {
	bytes  int64  // processed by one run, for the throughput; 0 for none
	memory bool   // report the peak memory
	before func() // if not nil, prepares each run outside the clock
}

// run returns a benchmark of f.
func (w work) run(f func()) func(*testing.B) {
	return func(b *testing.B) { w.measure(b, f) }
}

// measure times f.
func (w work) measure(b *testing.B, f func()) {
	skipIfListed(b)
	b.SetBytes(w.bytes)
	debug.FreeOSMemory()
	growth, peak := watch(os.Getpid()), 0
	if w.before == nil {
		f() // uncounted
		peak = growth()
		clear(make([]byte, sized(2*ballast, 1))) // leaves a heap that has been in use
		runtime.GC()
	}
	for b.Loop() {
		if w.before != nil {
			w.prepare(b)
		}
		f()
	}
	if w.before != nil {
		peak = growth()
	}
	w.reportPeak(b, peak)
}

// prepare does what is to be done before a run. Then it waits until a machine that
// returns free memory to its host has done so: see the package documentation.
func (w work) prepare(b *testing.B) {
	b.StopTimer()
	w.before()
	time.Sleep(*idle)
	b.StartTimer()
}

func (w work) reportPeak(b *testing.B, bytes int) {
	if w.memory && bytes > 0 {
		b.ReportMetric(float64(bytes), "peak-B")
	}
}

// skipIfListed writes the name of the benchmark if only that is wanted.
func skipIfListed(b *testing.B) {
	if *names == "" {
		return
	}
	f := must(os.OpenFile(*names, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666))
	defer f.Close()
	fmt.Fprintln(f, b.Name())
	b.SkipNow()
}

// watch returns a function that returns by how much the resident memory of a
// process has grown at its peak, in bytes, or 0 if that cannot be measured.
func watch(pid int) (growth func() int) {
	// Writing 5 resets the peak to the current size: proc_pid_clear_refs(5).
	if os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) != nil {
		return func() int { return 0 }
	}
	before := status(pid, "VmRSS")
	return func() int { return status(pid, "VmHWM") - before }
}

// status returns a size in bytes from /proc/pid/status.
func status(pid int, field string) int {
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))
	match := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(text)
	return must(strconv.Atoi(string(match[1]))) * kiB
}
