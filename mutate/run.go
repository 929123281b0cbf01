package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// What becomes of a mutant.
type outcome int

const (
	killed     outcome = iota // a test failed
	lived                     // all passed
	uncompiled                // it is no Go
	late                      // a test took far too long, or far too much memory
)

func (o outcome) String() string {
	return [...]string{"killed", "lived", "did not compile", "timed out"}[o]
}

// mostMemory is what a test may use: a mutant may allocate without end.
const mostMemory = 3 << 30

// A runner runs the tests of mutants.
type runner struct {
	ctx    context.Context
	root   string
	module string
	tests  string // of other packages that run
	temp   string
	slack  time.Duration            // added to ten times what the tests take
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
	r := &runner{ctx: ctx, root: root, module: o.module, tests: o.tests, temp: temp, slack: o.slack, limits: make(map[string]time.Duration)}
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

// runAll tries mutants, so many at once, and reports each result.
func (r *runner) runAll(mutants []*mutant, atOnce int, report func(*mutant, outcome)) error {
	queue := make(chan *mutant)
	var mu sync.Mutex
	var failed []error
	var workers sync.WaitGroup
	for range max(atOnce, 1) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for m := range queue {
				result, err := r.try(m)
				mu.Lock()
				if err != nil {
					failed = append(failed, fmt.Errorf("%v: %w", m, err))
				} else {
					report(m, result)
				}
				mu.Unlock()
			}
		}()
	}
	for _, m := range mutants {
		if r.ctx.Err() != nil {
			break
		}
		queue <- m
	}
	close(queue)
	workers.Wait()
	if err := r.ctx.Err(); err != nil {
		return err
	}
	return errors.Join(failed...)
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
	var out bytes.Buffer
	c := exec.CommandContext(ctx, binary, "-test.short", "-test.failfast", "-test.run", tests, "-test.timeout", limit.String())
	c.Dir = filepath.Join(r.root, filepath.FromSlash(dir))
	c.Env = append(os.Environ(), "TMPDIR="+temp, "SAFETENSORS_PYTHON=none", "SAFETENSORS_REQUIRE_PYTHON=") // Python takes too long
	c.Stdout, c.Stderr = &out, &out
	c.WaitDelay = time.Second // for processes that it started
	began := time.Now()
	if err := c.Start(); err != nil {
		return 0, nil, err
	}
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Add(1)
	go func() {
		defer watching.Done()
		watch(c.Process.Pid, ended, cancel)
	}()
	err := c.Wait()
	close(ended)
	watching.Wait()
	took := time.Since(began)
	switch {
	case r.ctx.Err() != nil:
		return 0, nil, r.ctx.Err()
	case ctx.Err() != nil || bytes.Contains(out.Bytes(), []byte("panic: test timed out after")):
		return late, out.Bytes(), nil
	case err != nil:
		return killed, out.Bytes(), nil
	}
	if overlay == "" {
		r.limits[dir] = 10*took + r.slack
	}
	return lived, out.Bytes(), nil
}

// watch calls stop if a process uses too much memory, before it ends. It knows how
// to find out on Linux only.
func watch(pid int, ended <-chan struct{}, stop func()) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if fields := bytes.Fields(text); len(fields) > 1 {
			pages, _ := strconv.Atoi(string(fields[1]))
			if pages > mostMemory/os.Getpagesize() {
				stop()
			}
		}
	}
}
