package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// peakFile names the file for the most anonymous memory that the command had, in bytes.
const peakFile = "SAFETENSORS_TEST_PEAK"

// anonymous returns the resident memory of this process that no file backs, in bytes.
func anonymous() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(fields[1], 10, 64)
	shared, _ := strconv.ParseInt(fields[2], 10, 64)
	return (resident - shared) * int64(os.Getpagesize())
}

// watchPeak samples the anonymous memory of this process. The func that it returns writes the
// largest sample to a file.
func watchPeak(name string) (write func()) {
	stop, done := make(chan bool), make(chan int64)
	go func() {
		peak := anonymous()
		for {
			select {
			case <-stop:
				done <- max(peak, anonymous())
				return
			case <-time.After(time.Millisecond):
				peak = max(peak, anonymous())
			}
		}
	}()
	return func() {
		stop <- true
		os.WriteFile(name, strconv.AppendInt(nil, <-done, 10), 0o666)
	}
}

// peakOf runs the command in a directory and returns the most anonymous memory that it had.
func peakOf(t *testing.T, dir string, args ...string) int64 {
	t.Helper()
	cmd := exec.Command(program, args...)
	name := filepath.Join(t.TempDir(), "peak")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), asCommand+"=1", peakFile+"="+name, "GOGC=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return must(strconv.ParseInt(string(must(os.ReadFile(name))), 10, 64))
}

// writeZeros writes a sparse file of n matrices of 8 MiB.
func writeZeros(t *testing.T, name string, d safetensors.DType, n int) {
	t.Helper()
	const columns = 1024
	rows := 8 << 20 / columns * 8 / d.Bits()
	h := &safetensors.Header{}
	for i := range n {
		at := int64(i) * 8 << 20
		h.Tensors = append(h.Tensors, safetensors.TensorInfo{
			Name: fmt.Sprintf("model.layers.%02d.mlp.up_proj.weight", i), DType: d, Shape: []int{rows, columns}, DataOffsets: [2]int64{at, at + 8<<20},
		})
	}
	start, err := h.AppendBinary(nil)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
	f := must(os.Create(name))
	_, err = f.Write(start)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(int64(len(start))+int64(n)*8<<20))
	require.NoError(t, f.Close())
}

// TestMemoryOfJobs proves that no job of the command takes more memory for many tensors than for
// one: at most 128 MB, beside the pages of files.
func TestMemoryOfJobs(t *testing.T) {
	if runtime.GOOS != "linux" || raceDetector {
		t.Skip("the memory of a process is read from /proc, and the race detector takes more")
	}
	dir := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	for _, n := range []int{1, 8, 64} {
		writeZeros(t, filepath.Join(dir, "a", "model.safetensors"), safetensors.F32, n)
		writeZeros(t, filepath.Join(dir, "b", "model.safetensors"), safetensors.F32, n)
		writeZeros(t, filepath.Join(dir, "half.safetensors"), safetensors.BF16, n)
		jobs := []string{ // those with the most memory for many tensors
			"cp a quantised --quantize fp8-block", "cp quantised out --dequantize f32", "cp quantised out --dequantize bf16 --max-shard-size 64MB",
			"cp " + server.URL + "/a/model.safetensors out --dtype f16 --max-shard-size 64MB",
		}
		if n < 64 || testplatform.Long() {
			jobs = append(jobs,
				"merge a b out", "merge a b out --method slerp", "merge a b a out --method task",
				"cp a out --dtype f16", "cp half.safetensors out --dtype f32", "cp a out --max-shard-size 20MB",
				"cp a out --quantize nvfp4", "cp a out --quantize int4", "cp half.safetensors out --quantize mxfp4",
				"stats a", "diff a b", "hash --tensors a", "cp a out.npz")
		}
		for _, args := range jobs {
			peak := peakOf(t, dir, strings.Fields(args)...)
			t.Logf("%s with %d tensors: %d MB", args, n, peak/1e6)
			require.LessOrEqual(t, peak, int64(128e6), "%s with %d tensors", args, n)
			for _, name := range []string{"out", "out.npz"} {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
			}
		}
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "quantised")))
	}
}

// TestStart: a short job ends before the garbage collector runs. Each collection would take as long
// as all that such a job does itself. A process may end before a collection does, which is then
// not reported, so there are several runs.
func TestStart(t *testing.T) {
	for range 10 {
		cmd := exec.Command(program, "ls", filepath.Join("..", "..", "testdata", "model.safetensors"))
		cmd.Env = append(os.Environ(), "GODEBUG=gctrace=1", "GOGC=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotEmpty(t, out)
		require.NotContains(t, string(out), "gc 1 @")
	}
}

// TestInitMemory: the packages of this repository make their tables when they are needed, not when
// the process starts. Every program that imports them would pay for it.
func TestInitMemory(t *testing.T) {
	cmd := exec.Command(program, "ls", filepath.Join("..", "..", "testdata", "model.safetensors"))
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := regexp.MustCompile(`(?m)^init (github\.com/gosafetensors/\S+) @.* clock, (\d+) bytes`).FindAllStringSubmatch(string(out), -1)
	require.NotEmpty(t, lines, "%s", out)
	for _, line := range lines {
		if strings.HasSuffix(line[1], "/cmd/safetensors") {
			continue // has the tables of the tests, too
		}
		bytes, err := strconv.Atoi(line[2])
		require.NoError(t, err)
		require.LessOrEqual(t, bytes, 16<<10, "bytes that %s allocates", line[1])
	}
}
