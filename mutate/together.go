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

// A together compiles all mutants into the same test programs (switch.go), and runs each mutant with
// only those tests that call its function.
type together struct {
	*runner
	dir    string     // temporary
	mu     sync.Mutex // of log, while tests are recorded
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
	suite   *suite
	pattern string // for -test.run
	took    time.Duration
	reached map[int]bool // the functions that it calls, by their numbers; nil if the test fails
}

// batch limits the sum of the times of tests that run in one process, unless it is a single test.
const batch = 3 * time.Second

// runTogether tries mutants like runAll.
func (r *runner) runTogether(log io.Writer, mutants []*mutant, report func(*mutant, outcome)) (err error) {
	defer func() {
		if err != nil {
			err = cmp.Or(r.ctx.Err(), err) // after an interrupt, err is that of a killed command
		}
	}()
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := &together{runner: r, dir: dir, log: log, suites: make(map[string]*suite)}
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
// calls. Tests that fail are left out, with a line in the log. A slow test is then split into its
// subtests.
func (t *together) record() error {
	tests, err := t.list()
	if err != nil {
		return err
	}
	parts := make([][]*unitTest, len(tests))
	err = t.each(len(tests), func(ctx context.Context, i int) error {
		out, err := t.recordOne(ctx, tests[i])
		if tests[i].took > t.split {
			parts[i] = subtests(tests[i], out)
		}
		return err
	})
	if err != nil {
		return err
	}
	all := slices.Concat(parts...)
	err = t.each(len(all), func(ctx context.Context, i int) error {
		_, err := t.recordOne(ctx, all[i])
		return err
	})
	for i, test := range tests {
		s := test.suite
		if test.reached == nil {
			continue
		}
		if failed := func(test *unitTest) bool { return test.reached == nil }; !slices.ContainsFunc(parts[i], failed) {
			for _, part := range parts[i] {
				maps.DeleteFunc(test.reached, func(function int, _ bool) bool { return part.reached[function] })
			}
			s.tests = append(s.tests, parts[i]...)
		}
		s.tests = append(s.tests, test) // for functions that no subtest calls
	}
	for _, s := range t.suites {
		slices.SortFunc(s.tests, func(a, b *unitTest) int { return int(a.took - b.took) })
	}
	return err
}

// list returns the tests of all suites, those of parent folders first, which are the slowest.
func (t *together) list() (tests []*unitTest, err error) {
	others, err := regexp.Compile(t.tests)
	if err != nil {
		return nil, err
	}
	suites := t.sorted()
	slices.Reverse(suites)
	for _, s := range suites {
		if _, err := os.Stat(s.binary); errors.Is(err, os.ErrNotExist) {
			continue // the folder has no tests
		}
		out, err := t.command(t.ctx, s.folder, t.dir, s.binary, "-test.list", "^(Test|Example|Fuzz)").Output()
		if err != nil {
			return nil, fmt.Errorf("the tests of %s: %w", s.folder, err)
		}
		for name := range strings.FieldsSeq(string(out)) {
			if s.own || others.MatchString(name) {
				tests = append(tests, &unitTest{suite: s, pattern: "^" + name + "$"})
			}
		}
	}
	return tests, nil
}

// passed matches the line of a subtest, one level below its test.
var passed = regexp.MustCompile(`(?m)^    --- PASS: \w+/(\S+) \(([0-9.]+s)\)$`)

// subtests returns the subtests of a test by what it printed. It returns none if the test does
// much outside of its subtests, which each of them would repeat.
func subtests(test *unitTest, out []byte) (parts []*unitTest) {
	outside := test.took
	for _, match := range passed.FindAllSubmatch(out, -1) {
		took, _ := time.ParseDuration(string(match[2]))
		outside -= took
		pattern := test.pattern
		for element := range strings.SplitSeq(string(match[1]), "/") {
			pattern += "/^" + regexp.QuoteMeta(element) + "$"
		}
		parts = append(parts, &unitTest{suite: test.suite, pattern: pattern})
	}
	if len(parts) < 2 || outside*time.Duration(len(parts)) > max(test.took, time.Second) {
		return nil
	}
	return parts
}

// recordOne runs a test, or a subtest. If that fails, took and reached stay zero.
func (t *together) recordOne(ctx context.Context, test *unitTest) ([]byte, error) {
	dir, err := os.MkdirTemp(t.dir, "record")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "reached")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		return nil, err
	}
	began := time.Now()
	result, out, err := t.runTests(ctx, test.suite, test.suite.binary, dir, test.pattern, 10*time.Minute)
	if err != nil {
		return nil, err
	}
	if result != lived {
		t.mu.Lock()
		defer t.mu.Unlock()
		_, err := fmt.Fprintf(t.log, "left out: %s of %s, which without a mutant: %v\n", test.pattern, test.suite.folder, result)
		return nil, err
	}
	test.took = time.Since(began)
	test.reached, err = numbersIn(file)
	return out, err
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
