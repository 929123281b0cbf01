// Difftest has this package and the reference implementation, the Rust crate
// safetensors, judge the same made-up files, most of them damaged. It needs cargo:
//
//	cd difftest && go run . -n 300000
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
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 300_000, "how many candidates")
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
	if err := run(os.Stdout, *cases, *seed, *n); err != nil {
		log.Fatal(err)
	}
}

// run compares n candidates, up to the first difference, and writes a summary to w.
func run(w io.Writer, cases string, seed uint64, n int) error {
	seeds, err := loadSeeds(cases)
	if err != nil {
		return err
	}
	program, err := build()
	if err != nil {
		return err
	}
	began := time.Now()
	j := make(judge)
	if err := compare(j, newGenerator(seed, seeds), program, n); err != nil {
		return err
	}
	elapsed := time.Since(began)
	fmt.Fprintf(w, "%d candidates of seed %d in %.1f s, %.0f a second\n", n, seed, elapsed.Seconds(), float64(n)/elapsed.Seconds())
	for _, what := range slices.Sorted(maps.Keys(j)) {
		fmt.Fprintf(w, "%9d %s\n", j[what], what)
	}
	return nil
}

// compare judges n candidates in batches: while the reference judges the rest of a
// batch, this package judges its start.
func compare(j judge, g *generator, program string, n int) error {
	ref, err := start(program)
	if err != nil {
		return err
	}
	defer ref.stop()
	for n > 0 {
		batch := make([][]byte, min(n, 2000))
		n -= len(batch)
		for i := range batch {
			batch[i] = g.candidate()
		}
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
