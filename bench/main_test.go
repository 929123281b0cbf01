package bench

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
)

// The flags are for cmd/bench.
var (
	inputs   = flag.String("inputs", "", "keep the inputs in this `folder` (default: a temporary one)")
	names    = flag.String("names", "", "append the names of the benchmarks to this `file` instead of running them")
	idle     = flag.Duration("idle", 0, "wait this long before each run that has to be prepared")
	prepared = flag.Bool("prepared", false, "a run with -names has built the contestants in other languages")
)

const (
	kiB = 1 << 10
	miB = 1 << 20
	giB = 1 << 30
	tiB = 1 << 40

	ballast = 64_000_000 // bytes of the Go heap
)

func TestMain(m *testing.M) {
	flag.Parse()
	heap := make([]byte, ballast)
	temporary := *inputs == ""
	if temporary {
		*inputs = must(os.MkdirTemp("", "safetensors-bench-"))
	}
	code := m.Run()
	stop()
	if temporary {
		os.RemoveAll(*inputs)
	}
	runtime.KeepAlive(heap)
	os.Exit(code)
}

// must returns v. Benchmarks have no use for an error but to stop.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// sized returns the size of an input: full, or small with -short.
func sized(full, small int64) int64 {
	if testing.Short() {
		return small
	}
	return full
}

// input returns the path of an input file, which create writes if it does not
// exist yet.
func input(name string, create func(path string)) string {
	path := filepath.Join(*inputs, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		create(path)
	}
	return path
}

// TestBenchmarks runs every benchmark of a Go contestant once, on small inputs.
func TestBenchmarks(t *testing.T) {
	want, skip := 16, "//impl=(rust|python|ztensor|bintensors|numpy|encoding-json-(1.27|v2))"
	if inMemory(os.TempDir()) {
		want, skip = 15, skip+"|BenchmarkLoad/cold|BenchmarkExperts"
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=.", "-test.skip="+skip, "-test.benchtime=1x", "-test.short")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	works := make(map[string]int)
	for results := benchfmt.NewReader(bytes.NewReader(out), "output"); results.Scan(); {
		result, ok := results.Result().(*benchfmt.Result)
		require.True(t, ok, "%v", results.Result())
		works[string(result.Name.Base())]++
	}
	require.Len(t, works, want)
}

// TestEvict shows that a cold run is cold, and that evict would know.
func TestEvict(t *testing.T) {
	path := t.TempDir() + "/file"
	if inMemory(t.TempDir()) {
		t.Skip("the file is in memory")
	}
	filledFile(path, make([]byte, 8), miB)
	evict(path)
	touch(mapped(path)) // the pages of a mapping cannot be dropped
	require.Panics(t, func() { evict(path) })
}
