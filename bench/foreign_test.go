package bench

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A contestant is a process in another language. It answers requests of one
// line, "task \t n \t file \t arguments…", with the nanoseconds that n runs
// took, until stop closes its input.
type contestant struct {
	language string
	build    [][]string
	command  []string

	process *exec.Cmd // nil if it has not been started
	in      io.WriteCloser
	out     *bufio.Reader
	task    string     // the task it is prepared for
	growth  func() int // of its memory, since then
}

var (
	rust = &contestant{
		language: "rust",
		build: [][]string{{"cargo", "build", "--release", "--locked", "--quiet",
			"--manifest-path", "rust/Cargo.toml", "--target-dir", "rust/target"}},
		command: []string{"rust/target/release/contestant"},
	}
	python = &contestant{
		language: "python",
		build: [][]string{{"python3", "-m", "venv", "python/venv"},
			{"python/venv/bin/pip", "install", "--quiet", "--requirement", "python/requirements.txt"}},
		command: []string{"python/venv/bin/python", "python/contestant.py"},
	}
	// go127 is a Go program of its own, so that the other contestants can be built with
	// an older toolchain.
	go127 = &contestant{
		language: "go127",
		build:    [][]string{{"env", "GOTOOLCHAIN=go1.27.4", "go", "build", "-o", "go127/contestant", "./go127"}},
		command:  []string{"go127/contestant"},
	}
	// These are processes of interpreters that variables name.
	torch      = interpreter("torch", "SAFETENSORS_TORCH", "jobs.py", "torch, safetensors")
	compressed = interpreter("compressed-tensors", "SAFETENSORS_QUANT_PYTHON", "dequantize.py", "compressed_tensors.entrypoints.convert")
	signing    = interpreter("model-signing", "SAFETENSORS_MODEL_SIGNING", "signing.py", "model_signing")
	loaders    = interpreter("loaders", "SAFETENSORS_LOADERS", "loaders.py", "safetensors, runai_model_streamer, fastsafetensors")
)

func interpreter(language, variable, script, modules string) *contestant {
	python := cmp.Or(os.Getenv(variable), "$"+variable)
	return &contestant{
		language: language,
		build:    [][]string{{python, "-c", "import " + modules}},
		command:  []string{python, "python/" + script},
	}
}

// foreign returns a benchmark of a task of a contestant, which reports the time that the
// process measures.
func (w work) foreign(c *contestant, task ...string) func(*testing.B) {
	return func(b *testing.B) {
		if err := c.start(); err != nil && strings.Contains(os.Getenv("BENCH_REQUIRE"), c.language) {
			b.Fatal(err)
		} else if err != nil {
			b.Skip("skipped: ", err)
		}
		skipIfListed(b)
		if key := strings.Join(task, "\t"); c.task != key {
			c.run(b, task, 0) // does what the task needs once
			c.task, c.growth = key, watch(c.process.Process.Pid)
		}
		nanoseconds := 0.0
		if w.before == nil {
			c.run(b, task, 1) // uncounted
			b.ResetTimer()
			nanoseconds = c.run(b, task, b.N)
		} else {
			b.ResetTimer()
			for range b.N {
				w.prepare(b)
				nanoseconds += c.run(b, task, 1)
			}
		}
		b.ReportMetric(nanoseconds/float64(b.N), "ns/op")
		if w.bytes > 0 {
			b.ReportMetric(float64(w.bytes)*float64(b.N)*1e3/nanoseconds, "MB/s")
		}
		w.reportPeak(b, c.growth())
	}
}

// run has the process do a task n times.
func (c *contestant) run(b *testing.B, task []string, n int) (nanoseconds float64) {
	must(fmt.Fprintf(c.in, "%s\t%d\t%s\n", task[0], n, strings.Join(task[1:], "\t")))
	answer := must(c.out.ReadString('\n'))
	if _, err := fmt.Sscan(answer, &nanoseconds); err != nil {
		b.Fatal(c.language, ": ", answer)
	}
	return nanoseconds
}

// start builds and starts the process, once.
func (c *contestant) start() error {
	if c.process != nil {
		return nil
	}
	for _, args := range c.build {
		if *prepared {
			break
		}
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.Stderr = os.Stderr
	c.in, c.out = must(cmd.StdinPipe()), bufio.NewReader(must(cmd.StdoutPipe()))
	if err := cmd.Start(); err != nil {
		return err
	}
	c.process = cmd
	started = append(started, c)
	return nil
}

// started holds the contestants whose processes are running.
var started []*contestant

// stop ends all processes and waits for them. An interpreter with PyTorch takes a second or two,
// which the next contestant would have to share with it.
func stop() {
	for _, c := range started {
		check(c.in.Close())
		check(c.process.Wait())
	}
}
