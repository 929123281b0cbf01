// Checkpoint trains a small network and saves it every few steps. Stop it at any
// moment and start it again: it goes on from the newest checkpoint, and ends with
// the very weights that a run without the stop would have given.
//
//	go run ./examples/checkpoint -dir /tmp/checkpoints -steps 1000 -every 200
//
// A checkpoint is one file. It has the weights in BF16, for those who use the
// model, and what only the training needs in F32: the master weights and the
// moments of the optimiser. The printed losses show why: weights that were
// rounded to BF16 are not those that the training had arrived at, and a run that
// went on from them would be another run.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "checkpoint:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("checkpoint", flag.ExitOnError)
	dir := flags.String("dir", "checkpoints", "the `folder` of the checkpoints")
	steps := flags.Int("steps", 1000, "train up to this step")
	every := flags.Int("every", 200, "save after so many steps, and after the last")
	keep := flags.Int("keep", 3, "keep so many checkpoints, the newest")
	flags.Parse(args)
	if flags.NArg() > 0 || *every < 1 || *keep < 1 {
		return errors.New("-every and -keep must be at least 1, and no arguments follow the flags; -h shows the usage")
	}
	if err := os.MkdirAll(*dir, 0o777); err != nil {
		return err
	}
	if err := removeLeftovers(*dir); err != nil {
		return err
	}
	m := newModel()
	names, err := checkpoints(*dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		newest := names[len(names)-1]
		if err := m.load(newest); err != nil {
			return fmt.Errorf("resuming from %s: %w", newest, err)
		}
		fmt.Fprintf(stdout, "resumed from %s, loss %.6f\n", newest, m.loss())
	}
	for m.step < *steps {
		m.train()
		if m.step%*every > 0 && m.step < *steps {
			continue
		}
		name, err := m.save(*dir)
		if err != nil {
			return err
		}
		rounded, err := loadWeights(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "step %d: loss %.6f (%.6f with the BF16 weights), saved as %s\n", m.step, m.loss(), rounded.loss(), name)
		if err := prune(*dir, *keep); err != nil {
			return err
		}
	}
	return nil
}
