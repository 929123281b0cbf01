// Mutate changes the code a little, a comparison here, a statement there, and runs
// the tests against each change, a mutant. Tests that check what the code does kill
// nearly all mutants:
//
//	cd mutate && go run . -n 100
//
// It prints the mutants that lived: what they change goes untested. Either a test is
// missing, or the change makes no difference to any caller; such mutants are listed
// in equivalent.txt, each with the reason, and are not tried again.
//
// The operators (operators.go) are: comparisons negated and moved by one, arithmetic
// replaced, statements and conditions dropped, returned errors replaced by nil,
// constants raised and lowered by one, ! and minus removed, && and || exchanged,
// break and continue exchanged and dropped, min and max exchanged.
//
// A mutant is built with an overlay, so that the tree stays as it is. The tests of
// its own package run first, then those of apitest and interop or of the command itself,
// with -short, up to the first that fails (run.go). One that takes ten times as long as without the
// change has timed out; one that needs more than 3 GiB fails.
//
// The tests of the command take minutes. With -together, all mutants are compiled into the same test
// programs, as cases of a switch in the function that each one changes (switch.go). Every test runs
// once without a mutant, which shows the functions that it calls, even in other processes; a slow
// test does so subtest by subtest. Then each mutant runs with only those tests that call its
// function, the fastest first (together.go):
//
//	go run . -together -n 60 -files 'cmd/safetensors/*.go,cmd/safetensors/internal/*/*.go'
//
// A mutant of a constant, of a variable outside functions, or of a function with labels is compiled
// alone, and runs with all tests. Tests that fail without a mutant are left out, and named; those
// that count allocations may do so, because of the switch. Some mutants compile only together: one
// that no longer uses a package, for example, which the other cases use. A mutant whose function
// no test calls is printed as "lived, uncalled".
//
// The exit status is 1 if more than one in ten of those that were tested lived. The
// same seed takes the same sample. An interrupt ends it with what it has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	o := options{slack: 10 * time.Second, split: 2 * time.Second, match: regexp.MustCompile("")}
	flag.IntVar(&o.n, "n", 0, "how many mutants, taken at random; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "of the random numbers")
	flag.IntVar(&o.parallel, "p", runtime.NumCPU(), "how many at once")
	flag.BoolVar(&o.verbose, "v", false, "print all mutants, not only those that lived")
	flag.BoolVar(&o.together, "together", false, "compile all mutants into the same programs, and run only tests that call the function of a mutant")
	flag.StringVar(&o.tests, "run", "", "which tests of other packages run, a regular `expression`")
	files := flag.String("files", "*.go,internal/*/*.go", "the `files` to change, comma-separated patterns of paths in the repository")
	flag.TextVar(o.match, "match", o.match, "only mutants whose description, as it is printed, matches a regular `expression`")
	flag.Parse()
	o.files = strings.Split(*files, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, "..", "equivalent.txt", o); err != nil {
		stop()
		log.Fatal(err)
	}
}

type options struct {
	tests    string // of packages other than that of the mutant
	files    []string
	match    *regexp.Regexp
	n        int
	seed     uint64
	parallel int
	verbose  bool
	together bool
	slack    time.Duration // added to ten times what the tests take
	split    time.Duration // a test that takes longer is split into its subtests
}

var errTooMany = errors.New("more than one in ten lived")

// run tries mutants of the repository in root, and writes what became of them to w.
func run(ctx context.Context, w io.Writer, root, equivalent string, o options) error {
	began := time.Now()
	all, err := mutantsOf(root, o.files)
	if err != nil {
		return err
	}
	known, err := readEquivalent(equivalent)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool {
		return known[m.key()] || !o.match.MatchString(m.String())
	})
	if o.n > 0 && o.n < len(chosen) {
		chosen = sample(chosen, o.n, o.seed)
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	r := &runner{o, ctx, root, make(map[string]time.Duration)}
	count := make(map[outcome]int)
	err = r.runAll(w, chosen, func(m *mutant, result outcome) {
		if o.verbose || result == lived || result == unreached {
			fmt.Fprintf(w, "%s: %v\n", result, m)
		}
		if result == unreached {
			result = lived
		}
		count[result]++
	})
	tested := count[killed] + count[lived] + count[late]
	fmt.Fprintf(w, "%d of %d mutants, seed %d, in %v\n", tested+count[uncompiled], len(all), o.seed, time.Since(began).Round(time.Second))
	fmt.Fprintf(w, "%d killed, %d lived, %d did not compile, %d timed out\n", count[killed], count[lived], count[uncompiled], count[late])
	if err == nil && count[lived]*10 > tested {
		err = errTooMany
	}
	return err
}

// sample returns n of the mutants, in their order.
func sample(mutants []*mutant, n int, seed uint64) []*mutant {
	numbers := rand.New(rand.NewPCG(seed, 0)).Perm(len(mutants))[:n]
	slices.Sort(numbers)
	chosen := make([]*mutant, n)
	for i, number := range numbers {
		chosen[i] = mutants[number]
	}
	return chosen
}

// readEquivalent reads a list of mutants that no test can kill, by their keys. Its
// paragraphs are the key of a mutant, as it is printed when it lives, and the reason;
// lines that start with # are comments.
func readEquivalent(name string) (map[string]bool, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool)
	for paragraph := range strings.SplitSeq(string(comments.ReplaceAll(text, nil)), "\n\n") {
		paragraph = strings.Trim(paragraph, "\n")
		if match := keyAndReason.FindStringSubmatch(paragraph); match != nil {
			known[match[1]] = true
		} else if paragraph != "" {
			return nil, fmt.Errorf("%s: not a mutant and a reason:\n%s", name, paragraph)
		}
	}
	return known, nil
}

var (
	comments     = regexp.MustCompile(`(?m)^#.*\n`)
	keyAndReason = regexp.MustCompile(`^(.+\n- .*\n\+.*)(\n([^-]|-[^ ]).*)+$`)
)
