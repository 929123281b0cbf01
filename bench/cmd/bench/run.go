package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

// A runner runs every benchmark in a process of its own, once in each round.
type runner struct {
	count           int
	work, benchtime string
	short, add      bool
	idle            time.Duration
	folder          string // holds the test binary and the inputs
}

// run writes the results of all rounds to a file. A benchmark that fails does
// not stop the others.
func (r *runner) run(ctx context.Context, name, command string) (err error) {
	if r.folder, err = os.MkdirTemp(r.folder, "safetensors-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.folder)
	benchmarks, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if r.add {
		flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	out, err := os.OpenFile(name, flags, 0o666)
	if err != nil {
		return err
	}
	defer out.Close()
	fmt.Fprint(out, about(command))
	w := benchfmt.NewWriter(out)
	var failed []error
	for round := range r.count {
		outputs := make([][]byte, len(benchmarks))
		for done, i := range shuffled(benchmarks) {
			log.Printf("round %d of %d, %d of %d: %s", round+1, r.count, done+1, len(benchmarks), benchmarks[i])
			if outputs[i], err = r.one(ctx, benchmarks[i]); err != nil {
				log.Print(err)
				failed = append(failed, fmt.Errorf("%s: %w", benchmarks[i], err))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		for results := benchfmt.NewReader(bytes.NewReader(bytes.Join(outputs, nil)), name); results.Scan(); {
			if err := w.Write(results.Result()); err != nil {
				return err
			}
		}
	}
	return errors.Join(failed...)
}

// shuffled returns the order of a round: row by row, the contestants of a row in random
// order. In a fixed one, each of them would always find the memory that the same one
// before it has freed, and other memory may be several times as slow.
func shuffled(benchmarks []string) []int {
	rows := make(map[string]int) // where each row starts
	row := func(i int) string { return benchmarks[i][:strings.LastIndexByte(benchmarks[i], '/')] }
	for i := range slices.Backward(benchmarks) {
		rows[row(i)] = i
	}
	order := rand.Perm(len(benchmarks))
	slices.SortStableFunc(order, func(i, j int) int { return rows[row(i)] - rows[row(j)] })
	return order
}

// prepare builds the test binary and returns the names of the benchmarks. To
// find them, it makes the inputs and builds the contestants in other languages.
func (r *runner) prepare(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", r.folder+"/bench.test", ".").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	list := filepath.Join(r.folder, "names")
	out, err = r.command(ctx, allCPUs(), r.work, "-names="+list, "-test.v").Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	for _, skipped := range regexp.MustCompile(`skipped: .*`).FindAll(out, -1) {
		log.Printf("%s", skipped)
	}
	text, err := os.ReadFile(list)
	return strings.Fields(string(text)), err
}

// command returns the command for the benchmarks that match a pattern, on some CPUs.
func (r *runner) command(ctx context.Context, cpus, pattern string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", cpus, r.folder + "/bench.test", "-test.run=^$", "-test.bench=" + pattern,
		"-test.benchtime=" + r.benchtime, fmt.Sprintf("-test.short=%v", r.short), "-inputs=" + r.folder}, args...)...)
	cmd.Env = append(os.Environ(), "GODEBUG=madvdontneed=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// one runs one benchmark and returns its output.
func (r *runner) one(ctx context.Context, name string) ([]byte, error) {
	cpus := allCPUs()
	if !strings.Contains(name, "all-CPUs/") {
		cpus = cpus[strings.LastIndexAny(cpus, ",-")+1:] // the last one
	}
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
	out, err := r.command(ctx, cpus, pattern, "-prepared", fmt.Sprint("-idle=", r.idle)).Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return out, nil
}

// allCPUs returns the CPUs that this process may use, as 0-3,6.
func allCPUs() string { return find("/proc/self/status", `Cpus_allowed_list:\s*(.*)`) }

// about returns what a reader needs to repeat the run, as configuration lines
// of the benchmark format.
func about(command string) string {
	var kB float64
	fmt.Sscan(find("/proc/meminfo", `MemTotal:\s+(\d+)`), &kB)
	machine := fmt.Sprintf("%s, %d CPUs, %.0f GiB of memory, Linux %s", find("/proc/cpuinfo", `model name\s*: (.*)`),
		runtime.NumCPU(), kB/(1<<20), find("/proc/sys/kernel/osrelease", `(.*)`))
	versions := []string{
		runtime.Version(),
		output("go", "version", "go127/contestant"),
		output("go", "list", "-m", "-f", "{{.Path}} {{.Version}}", "github.com/maruel/safetensors",
			"github.com/nlpodyssey/safetensors", "github.com/x448/float16"),
		output("rustc", "--version"),
		crate("safetensors"), crate("bintensors"), crate("memmap2"),
		output("python/venv/bin/python", "--version"),
		output("python/venv/bin/pip", "freeze", "--disable-pip-version-check"),
	}
	return fmt.Sprintf("date: %s\ncommand: %s\nmachine: %s\nversions: %s\n",
		time.Now().UTC().Format(time.DateOnly), command, machine, strings.Join(versions, ", "))
}

func crate(name string) string {
	return "crate " + name + " " + find("rust/Cargo.lock", `name = "`+name+`"\nversion = "(.*)"`)
}

// find returns the first submatch of a pattern in a file.
func find(path, pattern string) string {
	text, _ := os.ReadFile(path)
	if match := regexp.MustCompile(pattern).FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return "unknown"
}

// missing stands for the version of a contestant that is not installed.
const missing = "none"

// output returns the lines that a command prints, joined by commas, or missing if it fails.
func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return missing
	}
	return strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", ", ")
}
