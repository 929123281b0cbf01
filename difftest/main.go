// Difftest has this package and the reference implementation, the Rust crate
// safetensors, judge the same made-up files, most of them damaged. It needs cargo:
//
//	cd difftest && go run . -n 300000
//	cd difftest && go run . -exhaustive
//
// It generates headers (generate.go), changes bytes of them and of the files of
// testdata/cases.jsonl (mutate.go), and asks both sides (reference.go, judge.go):
//
//   - Nothing is accepted that the reference rejects.
//   - What the reference alone accepts breaks a rule of the policy (policy.go), and
//     the error names that rule. Whatever breaks one is rejected.
//   - Where both accept, they read the same tensors and metadata, and Write writes
//     the bytes that the reference writes.
//   - Parse, ReadHeader and NewFile agree, also in their errors.
//
// The first difference is printed, its file saved as found-*.safetensors, and the
// exit status is 1. The same seed makes the same candidates.
//
// With -exhaustive the candidates are not random, but all files of at most three members
// out of some hundred, and all entries of at most three fields (exhaustive.go). The exit
// status is also 1 if the verdicts on them are not as many as doc/testing.md says.
//
// It is also an arbiter (arbiter.go), and then needs nothing but Go. It has any reader judge
// the files of testdata/cases.jsonl, prints what the reader gets wrong, by rule, and then
// the counts; the exit status is 0 if nothing is wrong:
//
//	cd difftest && go run . -reader './theirs'
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 300_000, "how many candidates")
	exhaustive := flag.Bool("exhaustive", false, "compare all files of a few small parts, not random ones")
	seed := flag.Uint64("seed", 1, "of the random numbers")
	command := flag.String("reader", "", "the `command` to judge: it gets the name of a file, and exits with 0 (accepts) or 1 (refuses)")
	cases := flag.String("cases", "../testdata/cases.jsonl", "what the reader gets, and what is damaged: a `file` as testdata/README.md describes")
	timeout := flag.Duration("timeout", 10*time.Second, "how long the reader may take for a file")
	flag.Parse()
	if r := (&reader{strings.Fields(*command), *timeout}); len(r.command) > 0 {
		if err := r.run(os.Stdout, *cases); err != nil {
			log.Fatal(err)
		}
		return
	}
	err := error(nil)
	if *exhaustive {
		err = runAll(os.Stdout, maxSmall)
	} else {
		err = run(os.Stdout, *cases, *seed, *n)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run compares n random candidates, up to the first difference, and writes a summary to w.
func run(w io.Writer, cases string, seed uint64, n int) error {
	seeds, err := loadSeeds(cases)
	if err != nil {
		return err
	}
	_, err = summarize(w, fmt.Sprintf("candidates of seed %d", seed), newGenerator(seed, seeds).candidates(n))
	return err
}

// runAll compares the small files with at most n members, up to the first difference, and
// writes a summary to w.
func runAll(w io.Writer, n int) error {
	j, err := summarize(w, fmt.Sprintf("files, all with at most %d members", n), smallFiles(n))
	if err != nil {
		return err
	}
	return requireCounts(j, n)
}

// summarize compares candidates, up to the first difference, and writes the counts to w.
func summarize(w io.Writer, what string, candidates iter.Seq[[]byte]) (judge, error) {
	program, err := build()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	j := make(judge)
	if err := compare(j, candidates, program); err != nil {
		return nil, err
	}
	elapsed := time.Since(began)
	n := j.files()
	fmt.Fprintf(w, "%d %s in %.1f s, %.0f a second\n", n, what, elapsed.Seconds(), float64(n)/elapsed.Seconds())
	for _, what := range slices.Sorted(maps.Keys(j)) {
		fmt.Fprintf(w, "%9d %s\n", j[what], what)
	}
	return j, nil
}

// compare judges candidates in batches: while the reference judges the rest of a batch, this
// package judges its start.
func compare(j judge, candidates iter.Seq[[]byte], program string) error {
	ref, err := start(program)
	if err != nil {
		return err
	}
	defer ref.stop()
	// Little is alive at any moment, and the collector would run all the time.
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	for batch := range batches(candidates, 2000) {
		sent := make(chan error, 1)
		go func() { sent <- ref.send(batch) }()
		for _, file := range batch {
			answer, err := ref.answer()
			if err == nil {
				err = j.judge(file, answer)
			}
			if err != nil {
				return save(file, answer, err)
			}
		}
		if err := <-sent; err != nil {
			return err
		}
	}
	return nil
}

// batches yields candidates n at a time, the last ones as many as are left.
func batches(candidates iter.Seq[[]byte], n int) iter.Seq[[][]byte] {
	return func(yield func([][]byte) bool) {
		batch := make([][]byte, 0, n)
		for file := range candidates {
			if batch = append(batch, file); len(batch) < n {
				continue
			}
			if !yield(batch) {
				return
			}
			batch = make([][]byte, 0, n)
		}
		if len(batch) > 0 {
			yield(batch)
		}
	}
}

// save writes a candidate that the two sides do not agree on into the working directory. It
// returns an error that describes it.
func save(file []byte, answer answer, difference error) error {
	length, header := "none", file
	if text, ok := headerText(file); ok {
		length, header = fmt.Sprint(len(text)), text
	}
	sum := sha256.Sum256(file)
	name := fmt.Sprintf("found-%x.safetensors", sum[:4])
	return errors.Join(fmt.Errorf(`difference: %w
  reference:     %v
  header:        %q
  header length: %s
  file size:     %d
  saved as:      difftest/%s`, difference, answer, header, length, len(file), name), os.WriteFile(name, file, 0o666))
}
