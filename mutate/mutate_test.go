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

// TestRun runs the tests of mutants of each outcome.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	o := options{
		files:    []string{"sample/*.go"},
		match:    regexp.MustCompile(`\+ (return 0, nil|n -= x|.* return a - b }|for !more {)`),
		parallel: 1,
		verbose:  true,
		slack:    5 * time.Second,
	}
	require.ErrorIs(t, run(context.Background(), &out, "testdata", os.DevNull, o), errTooMany)
	got := regexp.MustCompile(` in .*s\n`).ReplaceAllString(out.String(), "\n")
	require.Equal(t, `killed: sample/sample.go:11
sample/sample.go Clamp
- return 0, errNegative
+ return 0, nil

lived: sample/sample.go:23
sample/sample.go Sum
- n += x
+ n -= x

did not compile: sample/sample.go:30
sample/sample.go Join
- func Join(a, b string) string { return a + b }
+ func Join(a, b string) string { return a - b }

timed out: sample/sample.go:34
sample/sample.go Forever
- for more {
+ for !more {

4 of 31 mutants, seed 0,
1 killed, 1 lived, 1 did not compile, 1 timed out
`, got)

	list := filepath.Join(t.TempDir(), "equivalent.txt")
	require.NoError(t, os.WriteFile(list, []byte("sample/sample.go Sum\n- n += x\n+ n -= x\nNobody calls it.\n"), 0o666))
	o.match = regexp.MustCompile(`\+ (return 0, nil|n -= x)`)
	out.Reset()
	require.NoError(t, run(context.Background(), &out, "testdata", list, o))
	require.Contains(t, out.String(), "1 killed, 0 lived")
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
