package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOperators lists all mutants of a small file.
func TestOperators(t *testing.T) {
	mutants, err := mutantsOf("testdata", []string{"sample/*.go"})
	require.NoError(t, err)
	var got strings.Builder
	before := ""
	for _, m := range mutants {
		if m.before != before {
			before = m.before
			fmt.Fprintf(&got, "%s:%d %s: %s\n", m.file, m.line, m.function, before)
		}
		fmt.Fprintf(&got, "\t%s\n", m.after)
	}
	require.Equal(t, `sample/sample.go:10 Clamp: if n < 0 {
	if false && (n < 0) {
	if n <= 0 {
	if n >= 0 {
	if n < 1 {
sample/sample.go:11 Clamp: return 0, errNegative
	return 0, nil
	return 1, errNegative
sample/sample.go:13 Clamp: return min(n, 10), nil
	return max(n, 10), nil
	return min(n, 11), nil
	return min(n, 9), nil
sample/sample.go:19 Sum: if x == 0 {
	if false && (x == 0) {
	if x != 0 {
	if x == 1 {
sample/sample.go:20 Sum: break
	continue
	
sample/sample.go:22 Sum: if odd := x%2 != 0; odd && !(x <= -100) {
	if odd := x%2 != 0; false && (odd && !(x <= -100)) {
	if odd := x%2 == 0; odd && !(x <= -100) {
	if odd := x*2 != 0; odd && !(x <= -100) {
	if odd := x%3 != 0; odd && !(x <= -100) {
	if odd := x%1 != 0; odd && !(x <= -100) {
	if odd := x%2 != 1; odd && !(x <= -100) {
	if odd := x%2 != 0; odd || !(x <= -100) {
	if odd := x%2 != 0; odd && (x <= -100) {
	if odd := x%2 != 0; odd && !(x < -100) {
	if odd := x%2 != 0; odd && !(x > -100) {
	if odd := x%2 != 0; odd && !(x <= 100) {
	if odd := x%2 != 0; odd && !(x <= -101) {
	if odd := x%2 != 0; odd && !(x <= -99) {
sample/sample.go:23 Sum: n += x
	n -= x
	
sample/sample.go:30 Join: func Join(a, b string) string { return a + b }
	func Join(a, b string) string { return a - b }
sample/sample.go:34 Forever: for more {
	for !more {
`, got.String())
}

// TestRun runs the tests of mutants of each outcome, one by one and together.
func TestRun(t *testing.T) {
	const (
		mutantKilled = `killed: sample/sample.go:11
sample/sample.go Clamp
- return 0, errNegative
+ return 0, nil

`
		mutantAlive = `: sample/sample.go:23
sample/sample.go Sum
- n += x
+ n -= x

`
		mutantBroken = `did not compile: sample/sample.go:30
sample/sample.go Join
- func Join(a, b string) string { return a + b }
+ func Join(a, b string) string { return a - b }

`
		mutantLate = `timed out: sample/sample.go:34
sample/sample.go Forever
- for more {
+ for !more {

`
		counts = `4 of 31 mutants, seed 0,
1 killed, 1 lived, 1 did not compile, 1 timed out
`
	)
	o := options{
		files:    []string{"sample/*.go"},
		match:    regexp.MustCompile(`\+ (return 0, nil|n -= x|.* return a - b }|for !more {)`),
		parallel: 1,
		verbose:  true,
		slack:    5 * time.Second,
	}
	require.Equal(t, mutantKilled+"lived"+mutantAlive+mutantBroken+mutantLate+counts, outputOf(t, o))
	o.together = true
	require.Equal(t, mutantBroken+"3 mutants together, 0 alone, 1 tests\n"+
		mutantKilled+"lived, uncalled"+mutantAlive+mutantLate+counts, outputOf(t, o))

	list := filepath.Join(t.TempDir(), "equivalent.txt")
	require.NoError(t, os.WriteFile(list, []byte("sample/sample.go Sum\n- n += x\n+ n -= x\nNobody calls it.\n"), 0o666))
	o.match = regexp.MustCompile(`\+ (return 0, nil|n -= x)`)
	for _, o.together = range []bool{false, true} {
		var out bytes.Buffer
		require.NoError(t, run(context.Background(), &out, "testdata", list, o))
		require.Contains(t, out.String(), "1 killed, 0 lived")
	}
}

// outputOf returns what run prints, without the time, if too many mutants live.
func outputOf(t *testing.T, o options) string {
	t.Helper()
	var out bytes.Buffer
	require.ErrorIs(t, run(context.Background(), &out, "testdata", os.DevNull, o), errTooMany)
	return regexp.MustCompile(` in .*s\n`).ReplaceAllString(out.String(), "\n")
}

// TestTogether has mutants that only subtests or other processes reach, mutants that cannot be
// switched, one in a function that is called before main, a missing return, and a test that fails without a mutant.
func TestTogether(t *testing.T) {
	out := outputOf(t, options{
		files:    []string{"started/*.go"},
		match:    regexp.MustCompile(`(?m)^\+( const limit = 4| return 2 / n| return 3 \* limit| for n >= 1 {| func Uncalled.* 8 }| func first.* 6 })?$`),
		parallel: 1,
		verbose:  true,
		together: true,
		slack:    5 * time.Second,
	})
	require.Equal(t, `did not compile: started/started.go:30
started/started.go Last
- panic("last")
+

left out: ^TestUnrecorded$ of started, which without a mutant: killed
4 mutants together, 3 alone, 9 tests
killed: started/early.go:6
started/early.go first
- func first() int { return 5 }
+ func first() int { return 6 }

killed: started/started.go:10
started/started.go Twice
- return 2 * limit
+ return 3 * limit

killed: started/started.go:12
started/started.go Twice
- return 2 * n
+ return 2 / n

lived, uncalled: started/started.go:26
started/started.go Uncalled
- func Uncalled() int { return 7 }
+ func Uncalled() int { return 8 }

killed: started/started.go:5
started/started.go limit
- const limit = 3
+ const limit = 4

killed: started/started.go:18
started/started.go Once
- for n > 1 {
+ for n >= 1 {

timed out: started/started.go:19
started/started.go Once
- n--
+

8 of 22 mutants, seed 0,
5 killed, 1 lived, 1 did not compile, 1 timed out
`, out)
}

// TestEquivalent checks that the list holds nothing but mutants of the code as it is
// now. A paragraph whose code was changed must follow it, or go.
func TestEquivalent(t *testing.T) {
	known, err := readEquivalent("equivalent.txt")
	require.NoError(t, err)
	mutants, err := mutantsOf("..", []string{"*.go", "*/*.go", "internal/*/*.go", "cmd/safetensors/*.go", "cmd/safetensors/internal/*/*.go"})
	require.NoError(t, err)
	for _, m := range mutants {
		delete(known, m.key())
	}
	require.Empty(t, known, "these are no mutants, or no longer")
}

// TestReadEquivalent has a list with and without a reason, and with two mutants in one
// paragraph.
func TestReadEquivalent(t *testing.T) {
	name := filepath.Join(t.TempDir(), "list")
	const key = "a.go f\n- x < 1\n+ x <= 1"
	require.NoError(t, os.WriteFile(name, []byte("# Comment.\n\n"+key+"\nx is never 1.\n\n\n"+strings.Replace(key, "f", "g 2", 1)+"\nNor\nhere.\n"), 0o666))
	known, err := readEquivalent(name)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{key: true, "a.go g 2\n- x < 1\n+ x <= 1": true}, known)
	for _, text := range []string{key + "\n", key + "\nx is never 1.\n" + key + "\nNor here.\n"} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
		_, err = readEquivalent(name)
		require.ErrorContains(t, err, "not a mutant and a reason")
	}
}

// TestSample: the same seed takes the same mutants, another seed others.
func TestSample(t *testing.T) {
	mutants, err := mutantsOf("testdata", []string{"sample/*.go"})
	require.NoError(t, err)
	require.Equal(t, sample(mutants, 8, 1), sample(mutants, 8, 1))
	require.NotEqual(t, sample(mutants, 8, 1), sample(mutants, 8, 2))
	_, err = mutantsOf("testdata", []string{"sample/*.go", "absent.go"})
	require.ErrorContains(t, err, `"absent.go": no file matches`)
}
