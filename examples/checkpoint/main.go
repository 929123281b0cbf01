// Checkpoint trains a small model, and saves it every few steps while the training continues. Stop
// it at any moment and start it again: it resumes from the last checkpoint, and ends with the same
// weights, bit for bit, as a run that was not stopped.
//
//	go run ./examples/checkpoint -steps 1000 -every 200 -file /tmp/training.safetensors
//
// A checkpoint has the weights in BF16, for those who use the model. It also has the master weights
// and the momentum of the optimizer in F32, which only the training needs. The printed losses show
// why both are saved: rounding to BF16 changes the weights, so a run that resumed from the BF16
// weights would give other results.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gosafetensors/safetensors"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "checkpoint:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("checkpoint", flag.ExitOnError)
	file := flags.String("file", filepath.Join("checkpoints", "latest.safetensors"), "the checkpoint, replaced by each save")
	steps := flags.Int("steps", 1000, "train up to this step")
	every := flags.Int("every", 200, "save after this many steps, and after the last")
	flags.Parse(args)
	if flags.NArg() > 0 || *every < 1 {
		return errors.New("expected flags only, and -every of at least 1; -h shows the usage")
	}
	if err := os.MkdirAll(filepath.Dir(*file), 0o777); err != nil {
		return err
	}
	m := newModel()
	f, err := safetensors.Open(*file)
	switch {
	case err == nil:
		err = m.resume(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("resuming from %s: %w", *file, err)
		}
		fmt.Fprintf(stdout, "step %d: loss %.6f, resumed from %s\n", m.step, m.loss(), *file)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	s := saver{file: *file}
	for m.step < *steps {
		m.train()
		if m.step%*every > 0 && m.step < *steps {
			continue
		}
		tensors, metadata, err := m.snapshot()
		if err != nil {
			return err
		}
		if err := s.save(tensors, metadata); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "step %d: loss %.6f\n", m.step, m.loss())
	}
	if err := s.wait(); err != nil {
		return err
	}
	if f, err = safetensors.Open(*file); err != nil {
		return err
	}
	defer f.Close()
	rounded := newModel()
	if err := rounded.loadRounded(f); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: loss %.6f with the BF16 weights\n", *file, rounded.loss())
	return nil
}
