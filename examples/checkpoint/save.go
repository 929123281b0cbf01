package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gosafetensors/safetensors"
)

// A saver writes checkpoints to a file in the background, one after another.
type saver struct {
	file    string
	pending chan error // receives the result of the save in progress; nil if there is none
}

// save waits for the previous save, returns its error if it failed, and starts another one.
// WriteFile replaces the file atomically: whatever stops the program, the file holds this
// checkpoint or the previous one. The caller must not change the arguments afterwards.
func (s *saver) save(tensors map[string]safetensors.Tensor, metadata map[string]string) error {
	if err := s.wait(); err != nil {
		return err
	}
	done := make(chan error, 1)
	s.pending = done
	go func() { done <- safetensors.WriteFile(s.file, tensors, metadata) }()
	return nil
}

// wait waits for the save in progress, if any, and returns its error.
func (s *saver) wait() error {
	if s.pending == nil {
		return nil
	}
	err := <-s.pending
	s.pending = nil
	return err
}

// state returns the slices of p on which the next step depends. The keys are the prefixes that
// their tensors have in a checkpoint.
func (p *param) state() map[string][]float32 {
	return map[string][]float32{"master.": p.weights, "momentum.": p.momentum}
}

// snapshot returns the tensors and the metadata of a checkpoint. The tensors are copies, which the
// training does not change.
func (m *model) snapshot() (map[string]safetensors.Tensor, map[string]string, error) {
	tensors := make(map[string]safetensors.Tensor)
	for name, p := range m.params {
		for prefix, values := range p.state() {
			t, err := safetensors.NewTensor(safetensors.F32, p.shape, slices.Clone(values))
			if err != nil {
				return nil, nil, err
			}
			tensors[prefix+name] = t
		}
		weights, err := tensors["master."+name].Convert(safetensors.BF16) // lazy: WriteFile rounds
		if err != nil {
			return nil, nil, err
		}
		tensors[name] = weights
	}
	return tensors, map[string]string{"step": strconv.Itoa(m.step)}, nil
}

// resume restores the state that m had when the checkpoint in f was taken.
func (m *model) resume(f *safetensors.File) (err error) {
	step, ok := f.Metadata()["step"]
	if !ok {
		return errors.New("its metadata has no step: it is not a checkpoint of this program")
	}
	if m.step, err = strconv.Atoi(step); err != nil {
		return fmt.Errorf("the step in its metadata: %w", err)
	}
	return m.load(f, (*param).state)
}

// loadRounded reads the BF16 weights of a checkpoint, as its users do.
func (m *model) loadRounded(f *safetensors.File) error {
	return m.load(f, func(p *param) map[string][]float32 { return map[string][]float32{"": p.weights} })
}

// load copies tensors, which may be F32 or BF16, into the slices that the func into returns. The
// keys of these slices are the prefixes of the tensors.
func (m *model) load(f *safetensors.File, into func(*param) map[string][]float32) error {
	for name, p := range m.params {
		for prefix, values := range into(p) {
			stored, err := safetensors.Elements[float32](f, prefix+name, p.shape...)
			if err != nil {
				return err
			}
			copy(values, stored)
		}
	}
	return nil
}
