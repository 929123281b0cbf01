package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// judgeCopies compares the tensors that Open returns with copies of them in other files. holders maps tensors
// to the files that hold them. judgeCopies ignores buffers, which models compute.
func (d *directory) judgeCopies(s *set, holders map[string][]string) error {
	maps.DeleteFunc(holders, func(tensor string, _ []string) bool { return isBuffer(tensor) })
	var copies tally
	why := make(map[string]string)
	for tensor, files := range holders {
		for _, file := range files {
			first := s.where[tensor]
			if first == file || first == "" {
				continue
			}
			a, b := d.heads[first].tensors[tensor], d.heads[file].tensors[tensor]
			if a.dtype != b.dtype || !slices.Equal(a.shape, b.shape) {
				copies.add(tensor, first, file)
				why[tensor] = fmt.Sprintf("%v in %s, %v in %s", a, quoted(first), b, quoted(file))
			}
		}
	}
	pairs := make(map[[2]string][]string)
	for tensor, files := range holders {
		for _, file := range files {
			if first := s.where[tensor]; first != "" && first != file && why[tensor] == "" {
				pairs[[2]string{first, file}] = append(pairs[[2]string{first, file}], tensor)
			}
		}
	}
	for pair, tensors := range pairs {
		slices.Sort(tensors)
		differing, err := d.compareFiles(pair[0], pair[1], tensors, tensors, len(tensors))
		if err != nil {
			return err
		}
		for _, tensor := range differing {
			copies.add(tensor, pair[0], pair[1])
		}
	}
	copies.each(func(files [2]string, tensor, text string) {
		text += fmt.Sprintf(" is stored in %s and in %s, and not alike", quoted(files[0]), quoted(files[1]))
		if more := why[tensor]; more != "" {
			text += " (" + more + ")"
		}
		d.note(Copies, tensor, text+": readers of whole shards may take the second", files[0], files[1])
	})
	return nil
}

// maxBeside is the number of findings of a directory after which no more files beside the model are compared
// with it.
const maxBeside = 100

// judgeBeside compares files with the checkpoint next to them, which is opened by the name main, and notes a
// finding if a tensor differs. If whole is true, it also notes a tensor that the files lack. what completes the
// text "beside MAIN, FILES is …" or "beside MAIN, FILES are …".
func (d *directory) judgeBeside(where place, files []string, rule Rule, what, main string, whole bool) error {
	if len(d.findings)-d.first >= maxBeside {
		return nil
	}
	beside := make(place)
	for _, name := range files {
		if h := d.heads[d.at(name)]; h != nil {
			for tensor := range h.tensors {
				beside[tensor] = d.at(name)
			}
		}
	}
	if len(beside) == 0 || len(where) == 0 {
		return nil // there is a finding about the files already
	}
	var both, only []string
	for tensor := range beside {
		if where.find(tensor) != "" {
			both = append(both, tensor)
		} else if !isBuffer(tensor) {
			only = append(only, tensor)
		}
	}
	for tensor := range where {
		if whole && beside.find(tensor) == "" && !isBuffer(tensor) {
			only = append(only, tensor)
		}
	}
	tensor, why := "", "only one of them has it"
	if len(only) > 0 {
		tensor = slices.Min(only)
	} else {
		var err error
		if tensor, why, err = d.difference(where, beside, both); err != nil {
			return err
		}
	}
	if tensor != "" {
		names := []string{d.at(main)}
		for _, name := range files {
			names = append(names, d.at(name))
		}
		verb := "is"
		if len(files) > 1 {
			verb = "are"
		}
		d.note(rule, tensor, fmt.Sprintf("beside %s, %s %s %s: the tensor %s differs (%s)", quoted(d.at(main)), quotedList(names[1:]), verb, what, quoted(tensor), why), names...)
	}
	return nil
}

// judgeStrays compares the model with the other files that match model*.safetensors, because mlx-lm reads all
// files with such names.
func (d *directory) judgeStrays() error {
	i := slices.IndexFunc(d.sets, func(s *set) bool { return s.stem == "model" && s.variant == "" && !s.torch })
	if i < 0 || !d.has(configFile) {
		return nil
	}
	model := d.sets[i]
	for _, s := range d.sets {
		if s == model || s.torch || s.variant != "" || !strings.HasPrefix(s.stem, "model") {
			continue
		}
		shared := func(name string) bool {
			h := d.heads[d.at(name)]
			if h == nil || slices.Contains(model.listed, name) {
				return false
			}
			for tensor := range h.tensors {
				if model.where[tensor] != "" {
					return true
				}
			}
			return false
		}
		main := model.index
		if main == "" {
			main = model.single
		}
		if s.single != "" && shared(s.single) {
			if err := d.judgeBeside(model.where, []string{s.single}, Ambiguous, "read by programs that read all of model*.safetensors", main, false); err != nil {
				return err
			}
		}
	}
	return nil
}
