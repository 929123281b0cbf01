package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
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
func (r *runner) runAll(mutants []*mutant, report func(*mutant, outcome)) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(r.ctx)
	group.SetLimit(max(r.parallel, 1))
	for _, m := range mutants {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			result, err := r.try(m)
			if err != nil {
				return fmt.Errorf("%v: %w", m, err)
			}
			mu.Lock()
			defer mu.Unlock()
			report(m, result)
			return nil
		})
	}
	return cmp.Or(r.ctx.Err(), group.Wait())
}

// try runs the tests of a mutant.
func (r *runner) try(m *mutant) (outcome, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(r.root, filepath.FromSlash(m.file))
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	err = errors.Join(
		os.WriteFile(changed, slices.Concat(m.src[:m.start], []byte(m.text), m.src[m.end:]), 0o666),
		os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, name, changed), 0o666))
	if err != nil {
		return "", err
	}
	result, _, err := r.test(path.Dir(m.file), overlay)
	return result, err
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
		args := []string{"-c", `ulimit -d "$0" && exec go test "$@"`, strconv.Itoa(mostMemory >> 10), "-overlay", overlay,
			"-short", "-failfast", "-count=1", "-vet=off", "-p=1", "-timeout=" + r.limits[own].String(), "-run", [...]string{"", r.tests}[i]}
		for _, dir := range dirs {
			args = append(args, filepath.Join(r.root, dir))
		}
		c := exec.CommandContext(r.ctx, "sh", args...)
		c.Dir = filepath.Join(r.root, own)
		c.Env = append(os.Environ(), "TMPDIR="+temp, "SAFETENSORS_PYTHON=none", "SAFETENSORS_REQUIRE_PYTHON=") // Python takes too long
		c.WaitDelay = time.Second                                                                              // for processes that it started
		out, err := c.CombinedOutput()
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
