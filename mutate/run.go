package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// What becomes of a mutant.
type outcome int

const (
	killed     outcome = iota // a test failed
	lived                     // all passed
	uncompiled                // it is no Go
	late                      // a test took far too long
)

func (o outcome) String() string {
	return [...]string{"killed", "lived", "did not compile", "timed out"}[o]
}

// mostMemory is what a test may use, on Linux: a mutant may allocate without end. Go's
// allocator gives up at this limit, and the mutant is killed.
const mostMemory = 3 << 30

// A runner runs the tests of mutants.
type runner struct {
	options
	ctx    context.Context
	root   string
	temp   string
	limits map[string]time.Duration // of the tests of each package
}

// newRunner runs the tests that the mutants need, without a change: they must pass,
// and how long they take limits how long they may take later.
func newRunner(ctx context.Context, root string, o options, mutants []*mutant) (*runner, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	r := &runner{options: o, ctx: ctx, root: root, temp: temp, limits: make(map[string]time.Duration)}
	for _, m := range mutants {
		for _, dir := range r.packages(m.file) {
			if r.limits[dir] > 0 {
				continue
			}
			result, out, err := r.test(temp, dir, r.testsOf(m.file, dir), "", 10*time.Minute)
			if err == nil && result != lived {
				err = fmt.Errorf("the tests of %s, without a change: %v\n%s", dir, result, out)
			}
			if err != nil {
				r.close()
				return nil, err
			}
		}
	}
	return r, nil
}

func (r *runner) close() { os.RemoveAll(r.temp) }

// packages returns the folders of the tests that a file may fail, the quickest to
// find out first.
func (r *runner) packages(file string) []string {
	own := path.Dir(file)
	dirs := []string{own}
	switch {
	case own == ".":
		dirs = append(dirs, "apitest", "interop")
	case path.Dir(own) == "internal":
		dirs = append(dirs, ".", "apitest")
	case r.module != "." && own != r.module:
		dirs = append(dirs, r.module)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		tests, _ := filepath.Glob(filepath.Join(r.root, dir, "*_test.go"))
		return len(tests) == 0
	})
}

// testsOf returns which tests of a package a file may fail: a regular expression.
func (r *runner) testsOf(file, dir string) string {
	if dir == path.Dir(file) {
		return ""
	}
	return r.tests
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

// try runs the tests of a mutant up to the first that fails.
func (r *runner) try(m *mutant) (outcome, error) {
	dir, err := os.MkdirTemp(r.temp, "")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(r.root, filepath.FromSlash(m.file))
	src, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, slices.Concat(src[:m.start], []byte(m.text), src[m.end:]), 0o666); err != nil {
		return 0, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{name: changed}})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o666)
	}
	if err != nil {
		return 0, err
	}
	for _, p := range r.packages(m.file) {
		result, _, err := r.test(dir, p, r.testsOf(m.file, p), overlay, r.limits[p])
		if err != nil || result != lived {
			return result, err
		}
	}
	return lived, nil
}

// test builds and runs tests of a package within a time limit, and sets the
// limit for the next time if there is none yet. Their temporary files go to temp.
func (r *runner) test(temp, dir, tests, overlay string, limit time.Duration) (outcome, []byte, error) {
	binary := filepath.Join(temp, "test.exe")
	build := exec.CommandContext(r.ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, filepath.Join(r.root, dir))
	build.Dir = filepath.Join(r.root, r.module)
	if out, err := build.CombinedOutput(); err != nil {
		return uncompiled, out, r.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", `ulimit -d "$0" && exec "$@"`, strconv.Itoa(mostMemory>>10),
		binary, "-test.short", "-test.failfast", "-test.run", tests, "-test.timeout", limit.String())
	c.Dir = filepath.Join(r.root, filepath.FromSlash(dir))
	c.Env = append(os.Environ(), "TMPDIR="+temp, "SAFETENSORS_PYTHON=none", "SAFETENSORS_REQUIRE_PYTHON=") // Python takes too long
	c.WaitDelay = time.Second                                                                              // for processes that it started
	began := time.Now()
	out, err := c.CombinedOutput()
	took := time.Since(began)
	switch {
	case r.ctx.Err() != nil:
		return 0, nil, r.ctx.Err()
	case ctx.Err() != nil || bytes.Contains(out, []byte("panic: test timed out after")):
		return late, out, nil
	case err != nil:
		return killed, out, nil
	}
	if overlay == "" {
		r.limits[dir] = 10*took + r.slack
	}
	return lived, out, nil
}
