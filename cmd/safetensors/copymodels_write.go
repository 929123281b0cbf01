package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// writeOne writes the only model that has selected tensors, or else the one of the folder itself, to
// a destination that has room for one.
func (m *modelsCopy) writeOne() (*copied, error) {
	one, dirs := m.models[0], make([]string, len(m.models))
	for i, model := range m.models {
		dirs[i] = model.dir
	}
	room, left, flag := term.Name(m.dst)+" has room for one", "only a folder has room for several models", ""
	if m.f.ranks != 0 {
		room, left, flag = "--ranks writes one", "--ranks writes one model", fmt.Sprintf(" --ranks %d", m.f.ranks)
	}
	if v := m.c.opener.Variant; v != "" && !m.c.opener.IgnoresVariant(source.ModelAt(m.src, dirs[0])) {
		flag += " --variant " + term.Word(v)
	}
	switch others := belowOf(dirs); {
	case len(dirs) == 1:
	case len(dirs) == len(others):
		return nil, fmt.Errorf("%s has several models (%s), and %s; name one: cp %s %s%s", storage.Shown(m.src), variant.List(dirs, 5, term.Name), room, storage.Word(source.Inside(m.src, dirs[0])), storage.Word(m.dst), flag)
	default: // the folder itself is the first
		m.c.opener.Note(fmt.Sprintf("the weights in %s are left out: %s", variant.List(others, 5, term.Name), left))
	}
	for _, other := range m.models[1:] {
		other.job.src.Close()
	}
	m.models = m.models[:1]
	to, err := m.c.openTarget(m.dst, m.f, 1)
	if err != nil {
		return nil, err
	}
	one.job.untied, one.job.within = hasNoMetadata(m.dst), ""
	if err := m.prepare(); err != nil {
		return nil, err
	}
	return m.c.writeCopy("cp", one.job, to)
}

// write writes the models to their folders in a folder that the caller has locked. First it checks
// all of them, so that it writes none if one would be refused.
func (m *modelsCopy) write(folder dest.Shared) (*copied, error) {
	if err := m.prepare(); err != nil {
		return nil, err
	}
	around, err := m.around()
	if err != nil {
		return nil, err
	}
	if err := around.sideFilesFree(folder); err != nil {
		return nil, err
	}
	for _, one := range m.models {
		unlock, err := m.ready(one)
		if err != nil {
			return nil, m.of(one.dir, err)
		}
		defer unlock()
	}
	left, err := m.leftBehind(around)
	if err != nil {
		return nil, err
	}
	all := &copied{File: m.dst, Files: []string{}}
	last := 0 // number of models that are written last: programs would take the model of the folder itself for the whole
	if m.models[0].dir == "." {
		last = 1
	}
	for _, one := range slices.Concat(m.models[last:], m.models[:last]) {
		some, err := m.c.write("cp", one.job, one.to, one.set)
		if err != nil {
			return nil, m.of(one.dir, err)
		}
		all.Total.Tensors += some.Total.Tensors
		all.Total.Parameters += some.Total.Parameters
		all.Total.Bytes += some.Total.Bytes
		for _, file := range some.Files {
			all.Files = append(all.Files, one.full(file))
		}
	}
	if err := around.copyFiles(folder); err != nil {
		return nil, dest.WeightsComplete(err)
	}
	all.Files = append(all.Files, around.side...)
	slices.Sort(all.Files)
	m.note(around, left)
	return all, nil
}

// note notes the models and the small files that the copy does not have.
func (m *modelsCopy) note(around *copyJob, files []string) {
	if len(m.left) > 0 {
		m.c.opener.Note(fmt.Sprintf("left out, because no tensor of them is selected: %s", variant.List(m.left, 5, func(name string) string { return name })))
	}
	m.c.noteLeft(files)
	for _, one := range append([]*modelCopy{{dir: ".", job: around}}, m.models...) {
		for _, file := range one.job.tooLarge {
			file.Name = one.full(file.Name)
			m.c.noteTooLarge([]storage.Pin{file})
		}
	}
}

// ready locks the folder of a model until unlock is called, and returns an error if the model may
// not be written there.
func (m *modelsCopy) ready(one *modelCopy) (unlock func(), err error) {
	if one.to, err = m.c.openTarget(source.ModelAt(m.dst, one.dir), m.f, 1); err != nil {
		return nil, err
	}
	unlock = func() {}
	if one.dir != "." { // the caller has locked the folder of all models
		if unlock, err = one.to.lock(false); err != nil {
			return nil, err
		}
	}
	if one.set, err = m.c.ready(one.job, one.to); err == nil && one.set != nil {
		err = one.set.Check(one.to.shards)
	}
	if err != nil {
		unlock()
	}
	return unlock, err
}

// around returns the job that copies the small files of the folder if it has no model of its own, or
// if this model is not selected. Otherwise that job has no files, because the model has them.
func (m *modelsCopy) around() (*copyJob, error) {
	if m.models[0].dir == "." {
		return &copyJob{copyFlags: m.f, src: &source.Checkpoint{}}, nil
	}
	from, err := m.c.opener.FolderOf(m.src)
	if err != nil {
		return nil, err
	}
	w, err := jobOf(&source.Checkpoint{Name: m.src, Folder: from, Files: m.models[0].job.src.Files}, m.f)
	if err != nil {
		return nil, err
	}
	m.leaveBelow(w)
	return w, nil
}

// leaveBelow removes the small files in the folders of models below from those of the folder itself.
func (m *modelsCopy) leaveBelow(w *copyJob) {
	below := belowOf(m.dirs)
	w.side = slices.DeleteFunc(w.side, func(name string) bool { return isBelow(name, below) })
	w.tooLarge = slices.DeleteFunc(w.tooLarge, func(file storage.Pin) bool { return isBelow(file.Name, below) })
}

// leftBehind returns the small files of all models that the copy does not have, and those around
// them.
func (m *modelsCopy) leftBehind(around *copyJob) (all []string, err error) {
	for _, one := range append([]*modelCopy{{dir: ".", job: around}}, m.models...) {
		names, err := one.job.leftBehind(source.ModelAt(m.dst, one.dir))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if one.dir != "." || !isBelow(name, belowOf(m.dirs)) {
				all = append(all, one.full(name))
			}
		}
	}
	return all, nil
}

// setOf returns the set of some names.
func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// isBelow reports whether a file is in one of the directories dirs, or below.
func isBelow(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
}
