package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// together compiles all mutants into the same test programs (switch.go), and runs each mutant with
// those tests only that call its function.
type together struct {
	*runner
	dir    string // temporary
	log    io.Writer
	suites map[string]*suite // by folder
}

// A suite holds the tests of a folder.
type suite struct {
	folder string
	own    bool // there are mutants in this folder
	binary string
	tests  []*unitTest
}

// A unitTest is a test, or a subtest of a slow test.
type unitTest struct {
	pattern string // for -test.run
	took    time.Duration
	reached map[int]bool // the functions that it calls, by their numbers
}

// batch limits the sum of the times of tests that run in one process, unless it is a single test.
const batch = 3 * time.Second

// runTogether tries mutants like runAll.
func (r *runner) runTogether(log io.Writer, mutants []*mutant, report func(*mutant, outcome)) (err error) {
	defer func() {
		if err != nil {
			err = cmp.Or(r.ctx.Err(), err) // not that of a command, which is killed
		}
	}()
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := &together{r, dir, log, make(map[string]*suite)}
	inside, outside, err := switchable(mutants)
	if err != nil {
		return err
	}
	for _, m := range mutants {
		t.addSuite(path.Dir(m.file)).own = true
		for _, folder := range testsOf(path.Dir(m.file)) {
			t.addSuite(folder)
		}
	}
	compiled, err := t.compile(inside, report)
	if err != nil {
		return err
	}
	if err := t.record(); err != nil {
		return err
	}
	tests := 0
	for _, s := range t.suites {
		tests += len(s.tests)
	}
	fmt.Fprintf(log, "%d mutants together, %d alone, %d tests\n", len(compiled), len(outside), tests)
	return t.each(len(compiled)+len(outside), func(ctx context.Context, i int) (err error) {
		var m *mutant
		var result outcome
		if i < len(compiled) {
			m = compiled[i].mutant
			result, err = t.tryChosen(ctx, compiled[i])
		} else {
			m = outside[i-len(compiled)]
			result, err = t.tryAlone(ctx, m)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
		report(m, result)
		return nil
	})
}

func (t *together) addSuite(folder string) *suite {
	if t.suites[folder] == nil {
		t.suites[folder] = &suite{folder: folder, binary: filepath.Join(t.dir, fmt.Sprintf("%d.test", len(t.suites)))}
	}
	return t.suites[folder]
}

// sorted returns the suites, those of subfolders first: they are compiled quickly, and find most
// mutants that do not compile.
func (t *together) sorted() []*suite {
	return slices.SortedFunc(maps.Values(t.suites), func(a, b *suite) int { return strings.Compare(b.folder, a.folder) })
}

// compile builds all suites with the mutants that compile, which it returns. It reports the
// others.
func (t *together) compile(mutants []*switched, report func(*mutant, outcome)) ([]*switched, error) {
	for {
		overlay, err := writeSwitched(t.root, t.dir, mutants)
		if err != nil {
			return nil, err
		}
		var wrong []*switched
		for _, s := range t.sorted() {
			out, err := t.build(t.ctx, s, overlay, s.binary)
			if err == nil {
				continue
			}
			found := broken(out, filepath.Join(t.root, s.folder), mutants)
			if len(found) == 0 {
				return nil, fmt.Errorf("the tests of %s: %w\n%s", s.folder, err, out)
			}
			wrong = append(wrong, found...)
		}
		slices.SortFunc(wrong, func(a, b *switched) int { return a.number - b.number })
		wrong = slices.Compact(wrong)
		if len(wrong) == 0 {
			return mutants, nil
		}
		for _, m := range wrong {
			report(m.mutant, uncompiled)
		}
		mutants = slices.DeleteFunc(mutants, func(m *switched) bool { return slices.Contains(wrong, m) })
	}
}

// build compiles the tests of a suite.
func (t *together) build(ctx context.Context, s *suite, overlay, binary string) ([]byte, error) {
	return t.command(ctx, s.folder, t.dir, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, ".").CombinedOutput()
}

// record runs every test without a mutant, and notes how long it takes and which functions it
// calls. Tests that fail are left out, with a line in the log.
func (t *together) record() error {
	others, err := regexp.Compile(t.tests)
	if err != nil {
		return err
	}
	for _, s := range t.sorted() {
		if _, err := os.Stat(s.binary); errors.Is(err, os.ErrNotExist) {
			continue // there are no tests
		}
		list := t.command(t.ctx, s.folder, t.dir, s.binary, "-test.list", "^(Test|Example|Fuzz)")
		out, err := list.Output()
		if err != nil {
			return fmt.Errorf("the tests of %s: %w", s.folder, err)
		}
		names := strings.Fields(string(out))
		if !s.own {
			names = slices.DeleteFunc(names, func(name string) bool { return !others.MatchString(name) })
		}
		var mu sync.Mutex
		err = t.each(len(names), func(ctx context.Context, i int) error {
			tests, err := t.recordTest(ctx, s, names[i])
			mu.Lock()
			defer mu.Unlock()
			s.tests = append(s.tests, tests...)
			return err
		})
		if err != nil {
			return err
		}
		slices.SortFunc(s.tests, func(a, b *unitTest) int { return int(a.took - b.took) })
	}
	return nil
}

// subtest matches the line of a subtest that has passed, one level below its test.
var subtest = regexp.MustCompile(`(?m)^    --- PASS: \w+/(\S+) \(`)

// recordTest records a test, or its subtests if it is slow and they can run one by one.
func (t *together) recordTest(ctx context.Context, s *suite, name string) ([]*unitTest, error) {
	whole, out, err := t.recordOne(ctx, s, "^"+name+"$")
	if err != nil || whole == nil {
		return nil, err
	}
	subtests := subtest.FindAllSubmatch(out, -1)
	if whole.took < t.split || len(subtests) < 2 {
		return []*unitTest{whole}, nil
	}
	var parts []*unitTest
	var sum time.Duration
	for _, match := range subtests {
		pattern := whole.pattern
		for element := range strings.SplitSeq(string(match[1]), "/") {
			pattern += "/^" + regexp.QuoteMeta(element) + "$"
		}
		part, _, err := t.recordOne(ctx, s, pattern)
		if err != nil {
			return nil, err
		}
		if part != nil {
			sum += part.took
			parts = append(parts, part)
		}
		if part == nil || sum > 2*whole.took+t.slack {
			return []*unitTest{whole}, nil // the parts depend on each other, or repeat much work
		}
	}
	for _, part := range parts {
		for function := range part.reached {
			delete(whole.reached, function)
		}
	}
	return append(parts, whole), nil // the whole test for functions that no part calls
}

// recordOne runs the tests that match a pattern. It returns nil for a test that fails.
func (t *together) recordOne(ctx context.Context, s *suite, pattern string) (*unitTest, []byte, error) {
	dir, err := os.MkdirTemp(t.dir, "record")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "reached")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		return nil, nil, err
	}
	began := time.Now()
	result, out, err := t.runTests(ctx, s, s.binary, dir, pattern, 10*time.Minute)
	if err != nil {
		return nil, nil, err
	}
	if result != lived {
		fmt.Fprintf(t.log, "left out: %s of %s, which without a mutant: %v\n", pattern, s.folder, result)
		return nil, nil, nil
	}
	test := &unitTest{pattern: pattern, took: time.Since(began)}
	test.reached, err = numbersIn(file)
	return test, out, err
}

// tryChosen runs the tests that call the function of a mutant.
func (t *together) tryChosen(ctx context.Context, m *switched) (outcome, error) {
	dir := filepath.Join(t.dir, fmt.Sprint(m.number))
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	ran := false
	for _, s := range t.suitesOf(m.mutant) {
		var chosen []*unitTest
		for _, test := range s.tests {
			if test.reached[m.function] {
				chosen = append(chosen, test)
			}
		}
		ran = ran || len(chosen) > 0
		if result, err := t.runBatches(ctx, s, s.binary, dir, chosen); result != lived {
			return result, err
		}
	}
	if !ran {
		return unreached, nil
	}
	return lived, nil
}

// tryAlone compiles one mutant, and runs all tests.
func (t *together) tryAlone(ctx context.Context, m *mutant) (outcome, error) {
	dir, err := os.MkdirTemp(t.dir, "alone")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := t.writeOverlay(dir, m)
	if err != nil {
		return "", err
	}
	for _, s := range t.suitesOf(m) {
		binary := filepath.Join(dir, "built.test")
		if out, err := t.build(ctx, s, overlay, binary); err != nil {
			if ctx.Err() == nil && compileError.Match(out) {
				return uncompiled, nil
			}
			return "", fmt.Errorf("the tests of %s: %w\n%s", s.folder, err, out)
		}
		if result, err := t.runBatches(ctx, s, binary, dir, s.tests); result != lived {
			return result, err
		}
	}
	return lived, nil
}

// suitesOf returns the suites that may fail for a mutant, that of its own folder first.
func (t *together) suitesOf(m *mutant) (suites []*suite) {
	own := path.Dir(m.file)
	for _, folder := range append([]string{own}, testsOf(own)...) {
		suites = append(suites, t.suites[folder])
	}
	return suites
}

// runBatches runs tests, which are in the order of their times, up to the first that fails.
func (t *together) runBatches(ctx context.Context, s *suite, binary, dir string, tests []*unitTest) (outcome, error) {
	for len(tests) > 0 {
		var patterns []string
		var sum time.Duration
		for len(tests) > 0 && (len(patterns) == 0 || sum+tests[0].took <= batch) {
			sum += tests[0].took
			patterns = append(patterns, tests[0].pattern)
			tests = tests[1:]
		}
		result, _, err := t.runTests(ctx, s, binary, dir, strings.Join(patterns, "|"), 10*sum+t.slack)
		if result != lived {
			return result, err
		}
	}
	return lived, nil
}

// runTests runs the tests that match a pattern, in a program in dir. At the end it kills the
// processes that they leave.
func (t *together) runTests(ctx context.Context, s *suite, binary, dir, pattern string, limit time.Duration) (outcome, []byte, error) {
	program, temp := filepath.Join(dir, filepath.Base(s.binary)), filepath.Join(dir, "tmp")
	if err := os.MkdirAll(temp, 0o777); err != nil {
		return "", nil, err
	}
	if err := os.Link(binary, program); err != nil && !errors.Is(err, os.ErrExist) {
		return "", nil, err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := t.command(limited, s.folder, temp, program, "-test.short", "-test.failfast", "-test.paniconexit0", "-test.v", "-test.run", pattern)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if c.Process != nil {
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return lived, out.Bytes(), nil
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case limited.Err() != nil:
		return late, out.Bytes(), nil
	}
	return killed, out.Bytes(), nil
}
