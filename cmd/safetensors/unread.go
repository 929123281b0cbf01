package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// namesOf returns the names of all entries of a source, including those that cannot be read.
func namesOf(src *source.Checkpoint) []string {
	return slices.Concat(src.Order, slices.Sorted(maps.Keys(src.Refused)))
}

// selectRead returns the tensors of a source that a selection selects, for verbs that leave out the entries that cannot be
// read. A pattern may also match only such entries, whose names the user knows from notes. If none of the selected entries can
// be read, selectRead returns an error.
func (c *command) selectRead(src *source.Checkpoint, selection pattern.Selection) ([]string, error) {
	all, err := c.selectTensors(src, selection, namesOf(src))
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(slices.Clone(all), func(name string) bool { _, readable := src.Tensors[name]; return !readable })
	if len(names) == 0 && !selection.IsZero() {
		return nil, refusedWith(src, all, "no other tensor is selected")
	}
	return names, nil
}

// unread returns those of the tensors in names that cannot be read, and an error about them, which
// is nil if there are none. A verb with a verdict must refuse such tensors, because it has not read
// them.
func unread(src *source.Checkpoint, names []string) (all []report.Unread, err error) {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	found := slices.DeleteFunc(src.Unread(), func(name string) bool { return !wanted[name] })
	for _, name := range found {
		all = append(all, report.Unread{File: src.Name, Name: name, Reason: src.Refused[name].Error()})
	}
	return all, refusedError(src, found)
}

// refusedError returns the error for those of names that cannot be read, or nil if all can.
func refusedError(src *source.Checkpoint, names []string) error {
	return refusedWith(src, names, "--except leaves out what cannot be read")
}

// refusedWith is like refusedError, with other advice at the end.
func refusedWith(src *source.Checkpoint, names []string, advice string) error {
	const most = 10
	var errs []error
	more := 0
	for _, name := range names {
		why, ok := src.Refused[name]
		switch {
		case ok && len(errs) < most:
			errs = append(errs, fmt.Errorf("%q of %s: %w", name, storage.Shown(src.Name), why))
		case ok:
			more++
		}
	}
	if len(errs) == 0 {
		return nil
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("and %d more of %s", more, storage.Shown(src.Name)))
	}
	return errors.Join(append(errs, errors.New(advice))...)
}

// ofTensor returns an error about a tensor, with its name. It returns err itself, without the prefix of the library, if that
// is an error of package quant about this tensor, which names it already.
func ofTensor(name string, err error) error {
	var named interface{ Tensor() string }
	if err = term.Bare(err); errors.As(err, &named) && named.Tensor() == name {
		return err
	}
	return fmt.Errorf("tensor %q: %w", name, err)
}
