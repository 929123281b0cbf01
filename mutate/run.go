package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// An outcome is what becomes of a mutant.
type outcome string

const (
	killed     outcome = "killed"          // a test failed
	lived      outcome = "lived"           // all passed
	uncompiled outcome = "did not compile" // it is no Go
	late       outcome = "timed out"       // a test took far too long
	unreached  outcome = "lived, uncalled" // no test calls its function, as far as -together knows
)

// mostMemory is what a test may use, on Linux: a mutant may allocate without end. Go's
// allocator gives up at this limit, and the mutant is killed.
const mostMemory = 3 << 30

// A runner runs the tests of mutants.
type runner struct {
	options
	ctx    context.Context
	root   string                   // absolute
	limits map[string]time.Duration // of the tests that files of each folder may fail
}

// testsOf returns the other folders whose tests a file of a folder may fail.
func testsOf(own string) []string {
	switch {
	case own == ".":
		return []string{"apitest", "interop"}
	case own == "torch":
		return []string{"dcp"} // whose tests read the files of ranks
	case path.Dir(own) == "internal":
		return []string{".", "apitest"}
	case path.Dir(own) == "cmd/safetensors/internal":
		return []string{"cmd/safetensors"}
	}
	return nil
}

// measure runs the tests that the mutants need, without a change: they must pass, and how
// long they take limits how long they may take later.
func (r *runner) measure(mutants []*mutant) error {
	for _, m := range mutants {
		own := path.Dir(m.file)
		if r.limits[own] > 0 {
			continue
		}
		r.limits[own] = 10 * time.Minute
		result, out, err := r.test(own, "")
		if err == nil && result != lived {
			err = fmt.Errorf("the tests of %s, without a change: %v\n%s", own, result, out)
		}
		if err != nil {
			return err
		}
		var slowest time.Duration
		for _, match := range regexp.MustCompile(`(?m)^ok .*\s([0-9.]+s)`).FindAllSubmatch(out, -1) {
			took, _ := time.ParseDuration(string(match[1]))
			slowest = max(slowest, took)
		}
		r.limits[own] = 10*slowest + r.slack
	}
	return nil
}

// runAll tries mutants, several at once, and reports each result.
func (r *runner) runAll(log io.Writer, mutants []*mutant, report func(*mutant, outcome)) error {
	var mu sync.Mutex
	locked := func(m *mutant, result outcome) {
		mu.Lock()
		defer mu.Unlock()
		report(m, result)
	}
	if r.options.together {
		return r.runTogether(log, mutants, locked)
	}
	if err := r.measure(mutants); err != nil {
		return err
	}
	return r.each(len(mutants), func(_ context.Context, i int) error {
		result, err := r.try(mutants[i])
		if err != nil {
			return fmt.Errorf("%v: %w", mutants[i], err)
		}
		locked(mutants[i], result)
		return nil
	})
}

// each calls do for the numbers below n, several at once, up to the first error.
func (r *runner) each(n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(r.ctx)
	group.SetLimit(max(r.parallel, 1))
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, i) })
	}
	err := group.Wait()
	return cmp.Or(r.ctx.Err(), err)
}

// try runs the tests of a mutant.
func (r *runner) try(m *mutant) (outcome, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := r.writeOverlay(dir, m)
	if err != nil {
		return "", err
	}
	result, _, err := r.test(path.Dir(m.file), overlay)
	return result, err
}

// writeOverlay writes an overlay with a mutant to a folder.
func (r *runner) writeOverlay(dir string, m *mutant) (overlay string, err error) {
	name := filepath.Join(r.root, filepath.FromSlash(m.file))
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(
		os.WriteFile(changed, slices.Concat(m.src[:m.start], []byte(m.text), m.src[m.end:]), 0o666),
		os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, name, changed), 0o666))
}

// command returns a command that runs in a folder of the repository with limited memory, in a process
// group of its own. If ctx is done, the whole group is killed.
func (r *runner) command(ctx context.Context, folder, temp string, args ...string) *exec.Cmd {
	args = append([]string{"-c", `ulimit -d "$0" && exec "$@"`, strconv.Itoa(mostMemory >> 10)}, args...)
	c := exec.CommandContext(ctx, "sh", args...)
	c.Dir = filepath.Join(r.root, folder)
	c.Env = append(os.Environ(), "TMPDIR="+temp, "SAFETENSORS_PYTHON=none", "SAFETENSORS_REQUIRE_PYTHON=") // Python takes too long
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second // for processes in groups of their own
	return c
}

// test runs the tests that a file of a folder may fail, up to the first that fails. Those of
// other packages are the ones that r.tests matches.
func (r *runner) test(own, overlay string) (outcome, []byte, error) {
	var printed []byte
	temp := os.TempDir()
	if overlay != "" {
		temp = filepath.Dir(overlay) // which is removed
	}
	for i, dirs := range [][]string{{own}, testsOf(own)} {
		if len(dirs) == 0 {
			continue
		}
		args := []string{"go", "test", "-overlay", overlay, "-short", "-failfast", "-count=1", "-vet=off", "-p=1",
			"-timeout=" + r.limits[own].String(), "-run", [...]string{"", r.tests}[i]}
		for _, dir := range dirs {
			args = append(args, filepath.Join(r.root, dir))
		}
		out, err := r.command(r.ctx, own, temp, args...).CombinedOutput()
		printed = append(printed, out...)
		switch {
		case err == nil:
			continue
		case r.ctx.Err() != nil:
			return "", nil, r.ctx.Err()
		case bytes.Contains(out, []byte("[build failed]")):
			return uncompiled, out, nil
		case bytes.Contains(out, []byte("panic: test timed out after")):
			return late, out, nil
		case bytes.Contains(out, []byte("\nFAIL")):
			return killed, out, nil
		}
		return "", nil, fmt.Errorf("go test: %w\n%s", err, out)
	}
	return lived, printed, nil
}
