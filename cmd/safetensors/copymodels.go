package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// copyModels copies all models of a directory, if it is the only source and has several: a pipeline
// of diffusers, or a model of sentence-transformers with weights in its modules. Otherwise it
// copies the sources as one model.
func (c *command) copyModels(names []string, name string, f *copyFlags) (*copied, error) {
	if len(names) > 1 {
		if err := c.oneModel(names, "cp joins single models"); err != nil {
			return nil, err
		}
		return c.copyOne(names, name, f)
	}
	dirs, err := c.opener.Models(names[0])
	if err != nil {
		return nil, err
	}
	if len(belowOf(dirs)) == 0 {
		return c.copyOne(names, name, f)
	}
	dst, err := c.openDestination(name, f.maxShardSize, f.ranks)
	if err != nil {
		return nil, err
	}
	m := &modelsCopy{c: c, f: f, src: names[0], dst: name, dirs: dirs}
	defer m.close()
	if err := m.open(); err != nil {
		return nil, err
	}
	if err := m.choose(); err != nil {
		return nil, err
	}
	if err := m.checkQuantised(); err != nil {
		return nil, err
	}
	folder, ok := dst.(dest.Shared)
	if !ok {
		return m.writeOne()
	}
	if !f.force && isOnto(names[0], name) {
		return nil, onItself(name)
	}
	unlock, err := folder.Lock(false)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return m.write(folder)
}

// A modelsCopy copies the models of the folder src to the folder dst. Names of their tensors begin
// with the folder of the model, as ls prints them.
type modelsCopy struct {
	c        *command
	f        *copyFlags
	src, dst string
	dirs     []string     // folders of all models, which may begin with "."
	models   []*modelCopy // the models of which tensors are selected
	left     []string     // the other models, as a note names them
}

// A modelCopy copies one of several models of a folder.
type modelCopy struct {
	dir string // folder of the model, or "."
	job *copyJob
	to  copyTarget
	set *dest.Set // result of ready
}

// full returns the name of a tensor with the folder of its model, as ls prints it.
func (m *modelCopy) full(name string) string {
	if m.dir == "." {
		return name
	}
	return m.dir + "/" + name
}

func (m *modelsCopy) close() {
	for _, one := range m.models {
		one.job.src.Close()
	}
}

// open opens the models. If the folder has a model of its own, only that one is quantised or
// dequantised: sentence-transformers does not read other modules in quantised form.
func (m *modelsCopy) open() error {
	m.c.noteDefaults(m.src, m.dirs)
	plain, dequantised := false, false // whether models without, and with, quantised tensors were found
	for _, dir := range m.dirs {
		flags := *m.f
		if dir != "." && slices.Contains(m.dirs, ".") {
			flags.targets = nil
			flags.dequantize, flags.quantize, flags.plain = "", "", 0
		}
		job, err := m.c.openCopy([]string{source.ModelAt(m.src, dir)}, &flags)
		if err != nil {
			return m.of(dir, err)
		}
		m.models = append(m.models, &modelCopy{dir: dir, job: job})
		if dir == "." {
			m.leaveBelow(job)
		} else {
			job.within = dir
		}
		err = job.unpack()
		if errors.As(err, new(notQuantised)) {
			plain = true
			flags.dequantize, flags.plain = "", 0
			err = job.unpack()
		}
		if err != nil {
			return m.of(dir, err)
		}
		dequantised = dequantised || flags.plain != 0
	}
	if plain && !dequantised {
		return notQuantised(m.src)
	}
	var opened []*source.Checkpoint
	for _, one := range m.models {
		opened = append(opened, one.job.src)
	}
	m.c.noteVariants(m.src, m.dirs, opened)
	return nil
}

// checkQuantised returns an error if --quantize or --dequantize applies to the model of the folder itself, and none of the
// tensors of that model are selected.
func (m *modelsCopy) checkQuantised() error {
	flag := ""
	switch {
	case m.f.quantize != "":
		flag = "--quantize"
	case m.f.plain != 0:
		flag = "--dequantize"
	}
	if flag == "" || !slices.Contains(m.dirs, ".") || len(m.models) == 0 || m.models[0].dir == "." {
		return nil
	}
	return usage("%s applies to the model of the folder itself, and none of its tensors are selected", flag)
}

// of returns an error about the model in dir, with the name of this folder.
func (m *modelsCopy) of(dir string, err error) error {
	if dir == "." {
		return err
	}
	return fmt.Errorf("%s: %w", term.Name(dir), err)
}

// choose selects and renames tensors by their names with the folders of their models. It removes
// the models without a selected tensor.
func (m *modelsCopy) choose() error {
	var all []string
	for _, one := range m.models {
		for _, name := range one.job.candidates() {
			all = append(all, one.full(name))
		}
	}
	names, err := m.f.selection.Of(all)
	if err != nil {
		return err
	}
	selected, renamed := setOf(names), names
	if len(m.f.renaming) > 0 {
		if renamed, err = pattern.RenameAll(names, m.f.renaming); err != nil {
			return err
		}
	}
	kept := m.models[:0:0]
	for _, one := range m.models {
		w := one.job
		candidates := w.candidates()
		for _, name := range candidates {
			if selected[one.full(name)] {
				w.names = append(w.names, name)
			}
		}
		n := len(w.names)
		if err := refusedError(w.src, w.names); err != nil {
			return err
		}
		if w.renamed, err = m.local(one, names[:n], renamed[:n]); err != nil {
			return err
		}
		names, renamed = names[n:], renamed[n:]
		if n == 0 && len(candidates) > 0 {
			left := storage.Shown(source.ModelAt(m.src, one.dir))
			if one.dir == "." {
				left += " itself"
			}
			m.left = append(m.left, left)
			w.src.Close()
			continue
		}
		kept = append(kept, one)
	}
	m.models = kept
	return nil
}

// local returns new names of tensors of a model without its folder. It is an error if a new name is
// one in another folder, because each tensor stays in its model.
func (m *modelsCopy) local(one *modelCopy, names, renamed []string) (local []string, err error) {
	for i, name := range renamed {
		belongs := strings.HasPrefix(name, one.full(""))
		for _, other := range m.models {
			belongs = belongs && (len(other.full("")) <= len(one.full("")) || name == names[i] || !strings.HasPrefix(name, other.full("")))
		}
		if !belongs {
			return nil, fmt.Errorf("--rename: %q would become %q, and a tensor stays in its model: the folder at the start of a name cannot change", names[i], name)
		}
		local = append(local, strings.TrimPrefix(name, one.full("")))
	}
	return local, nil
}

// prepare sets the tensors that the models get, and their configs.
func (m *modelsCopy) prepare() error {
	for _, one := range m.models {
		if err := one.job.take(); err != nil {
			return err
		}
	}
	if err := m.aim(); err != nil {
		return err
	}
	if err := m.leaveNotLoaded(); err != nil {
		return err
	}
	for _, one := range m.models {
		if err := one.job.finish(); err != nil {
			return m.of(one.dir, err)
		}
	}
	return nil
}

// leaveNotLoaded leaves the models unquantised that no program would load quantised, such as the unet of a pipeline, and
// notes them. It is an error if no other model is left.
func (m *modelsCopy) leaveNotLoaded() error {
	var first error
	var left []string
	others := false
	for _, one := range m.models {
		if one.job.quantize == "" {
			continue
		}
		switch err := refuseQuantised(one.job.src); {
		case err == nil:
			others = true
		case errors.As(err, new(notLoaded)):
			first = cmp.Or(first, err)
			left = append(left, one.dir)
			one.job.quantize, one.job.targets = "", nil
		default:
			return err
		}
	}
	if first != nil && !others {
		return first
	}
	if len(left) > 0 {
		m.c.opener.Note(fmt.Sprintf("not quantised, because diffusers does not load the format of compressed-tensors: %s", variant.List(left, 5, term.Name)))
	}
	return nil
}

// aim selects the tensors that --targets names with the folders of their models. A model in which it
// names none is not quantised.
func (m *modelsCopy) aim() error {
	if len(m.f.targets) == 0 {
		return nil
	}
	var all []string
	for _, one := range m.models {
		for _, name := range slices.Sorted(maps.Keys(one.job.tensors)) {
			if len(one.job.targets) > 0 {
				all = append(all, one.full(name))
			}
		}
	}
	all, err := m.f.targeted.Of(all)
	if err != nil {
		return err
	}
	selected := setOf(all)
	for _, one := range m.models {
		w := one.job
		for _, name := range slices.Sorted(maps.Keys(w.tensors)) {
			if selected[one.full(name)] && len(w.targets) > 0 {
				w.aimed = append(w.aimed, name)
			}
		}
		if len(w.aimed) == 0 {
			w.quantize, w.targets = "", nil
		}
	}
	return nil
}
