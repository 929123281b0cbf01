package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// What the training needs beside the BF16 weights has names with these prefixes.
const (
	masterPrefix  = "master."
	moment1Prefix = "adam.moment1."
	moment2Prefix = "adam.moment2."
)

// save writes a checkpoint and returns its name. There is a file of that name
// only once it is complete and on the disk: WriteFile sees to that. So whatever
// stops the program, the newest checkpoint is a whole one.
func (m *model) save(dir string) (string, error) {
	tensors := make(map[string]safetensors.Tensor)
	for _, p := range m.params {
		for prefix, values := range p.state() {
			t, err := safetensors.NewTensor(safetensors.F32, p.shape, *values)
			if err != nil {
				return "", err
			}
			tensors[prefix+p.name] = t
		}
		// This converts nothing yet: WriteFile does, on the way to the disk.
		weights, err := tensors[masterPrefix+p.name].Convert(safetensors.BF16)
		if err != nil {
			return "", err
		}
		tensors[p.name] = weights
	}
	// The number has leading zeros, so that names sort as steps do.
	name := filepath.Join(dir, fmt.Sprintf("step-%09d.safetensors", m.step))
	return name, safetensors.WriteFile(name, tensors, map[string]string{"step": strconv.Itoa(m.step)})
}

// state returns all of p that the next step of the training depends on, by the
// prefix that its tensors have in a checkpoint.
func (p *param) state() map[string]*[]float32 {
	return map[string]*[]float32{
		masterPrefix:  &p.weights,
		moment1Prefix: &p.moment1,
		moment2Prefix: &p.moment2,
	}
}

// load continues the training of a checkpoint.
func (m *model) load(name string) error {
	f, err := safetensors.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // all has been copied by then
	if m.step, err = strconv.Atoi(f.Metadata()["step"]); err != nil {
		return fmt.Errorf("the step in the metadata: %w", err)
	}
	for _, p := range m.params {
		for prefix, values := range p.state() {
			if *values, err = read(*values, f, prefix+p.name, p.shape); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadWeights returns the model that users of a checkpoint see.
func loadWeights(name string) (*model, error) {
	f, err := safetensors.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := newModel()
	for _, p := range m.params {
		if p.weights, err = read(p.weights, f, p.name, p.shape); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// read reads a tensor, be it F32 or BF16, into the memory of values.
func read(values []float32, f *safetensors.File, name string, shape []int) ([]float32, error) {
	t, err := f.Tensor(name)
	if err != nil {
		return values, err
	}
	if !slices.Equal(t.Shape(), shape) {
		return values, fmt.Errorf("tensor %q has shape %v, the model needs %v", name, t.Shape(), shape)
	}
	return safetensors.Append(values[:0], t)
}

// checkpoints returns the names of the checkpoints in a folder, the newest last.
func checkpoints(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "step-") && strings.HasSuffix(e.Name(), ".safetensors") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, err
}

// removeLeftovers removes what is left of saves that were killed. It comes before
// the training: nobody else may be saving to the folder.
func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if err == nil && strings.HasPrefix(e.Name(), ".safetensors-") && strings.HasSuffix(e.Name(), ".tmp") {
			err = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return err
}

// prune removes all checkpoints but the newest ones. It comes after save, which
// returns once the new one is on the disk.
func prune(dir string, keep int) error {
	names, err := checkpoints(dir)
	if err != nil {
		return err
	}
	for _, name := range names[:max(0, len(names)-keep)] {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}
