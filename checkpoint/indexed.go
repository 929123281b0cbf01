package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// readIndex reads the index of a set and judges the shards that it names.
func (d *directory) readIndex(s *set) error {
	f, _, err := osfile.OpenFS(d.in.FS, d.path(d.at(s.index)))
	if err != nil {
		return err
	}
	defer f.Close()
	x, err := safetensors.ReadIndex(f)
	if err != nil {
		if !isVerdict(err) {
			return err
		}
		d.unreadable(d.at(s.index), err)
		return nil
	}
	if len(x.Metadata) == 0 || x.Metadata[0] != '{' {
		d.judgeMetadata(s)
	}
	s.listed = slices.Compact(slices.Sorted(maps.Values(x.Shards)))
	if s.listed == nil {
		s.listed = []string{}
	}
	there, absent, err := d.present(s)
	if err != nil {
		return err
	}
	s.lost = make(place)
	for tensor, shard := range x.Shards {
		if _, found := slices.BinarySearch(absent, shard); found {
			s.lost[tensor] = shard
		}
	}
	if err := d.readHeads(there); err != nil {
		return err
	}
	return d.judgeIndexed(s, x.Shards)
}

// judgeMetadata notes an index without an object "metadata", which transformers and diffusers do not open,
// although other libraries do. It ignores a directory without a config, because such a directory is for neither of
// the two.
func (d *directory) judgeMetadata(s *set) {
	if s.stem != "adapter_model" && slices.Contains(knownStems, s.stem) && d.has(configFile) {
		d.note(Unreadable, "", fmt.Sprintf("the index %s has no object \"metadata\", without which transformers and diffusers do not open it", quoted(d.at(s.index))), d.at(s.index))
	}
}

// present returns the shards that an index names and that exist, and the sorted names of those that do not, which it
// notes. If none of the shards of torch.save exists beside safetensors, it notes nothing: they were left out of a
// download.
func (d *directory) present(s *set) (there, absent []string, err error) {
	below := map[string]listing{".": d.listing}
	var missing []Finding
	for _, shard := range s.listed {
		d.claimed[d.at(shard)] = true
		if to, is := leaves(d.in, d.root, d.at(shard)); is {
			if !d.seen[d.at(shard)] {
				d.seen[d.at(shard)] = true
				d.unreadable(d.at(shard), leavesError(to))
			}
			continue
		}
		dir, base := path.Dir(shard), path.Base(shard)
		l, known := below[dir]
		if !known {
			l, err = d.list(d.at(dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, err
			}
			below[dir] = l
		}
		if l.has(base) && !s.torch && isTorch(base) {
			d.note(Unreadable, "", fmt.Sprintf("the index %s names %s, a file of torch.save by its name: only some libraries open that", quoted(d.at(s.index)), quoted(d.at(shard))), d.at(shard), d.at(s.index))
			continue
		}
		if l.has(base) {
			there = append(there, d.at(shard))
			continue
		}
		text := fmt.Sprintf("the index %s names %s, which is not there", quoted(d.at(s.index)), quoted(d.at(shard)))
		for _, name := range []string{base + ".incomplete", base + ".tmp", base + ".part", base + ".aria2", base + ".crdownload"} {
			if l.has(name) {
				text += "; " + quoted(name) + " is there, from a download that was not finished"
			}
		}
		if i := slices.IndexFunc(l.names, func(name string) bool { return strings.EqualFold(name, base) }); i >= 0 {
			text += "; " + quoted(l.names[i]) + " differs in capitals"
		}
		absent = append(absent, shard)
		missing = append(missing, Finding{Rule: Missing, Text: text, Files: []string{d.at(shard), d.at(s.index)}})
	}
	if len(there) == 0 && s.torch && d.any(isSafetensors) {
		s.listed = nil
		return nil, nil, nil
	}
	d.findings = append(d.findings, missing...)
	return there, absent, nil
}

// judgeIndexed compares an index with the shards that it names.
func (d *directory) judgeIndexed(s *set, shards map[string]string) error {
	var lacking, misplaced, unlisted tally
	holders := make(map[string][]string) // shards that hold a tensor although the index does not place it there
	for _, shard := range s.listed {
		h := d.heads[d.at(shard)]
		if h == nil {
			continue
		}
		for tensor := range h.tensors {
			switch want, named := shards[tensor]; {
			case !named:
				if !isBuffer(tensor) {
					unlisted.add(tensor, d.at(shard), "")
				}
				if _, have := s.where[tensor]; have {
					holders[tensor] = append(holders[tensor], d.at(shard))
				} else {
					s.where[tensor] = d.at(shard)
				}
			case want == shard:
				s.where[tensor] = d.at(shard)
			default:
				holders[tensor] = append(holders[tensor], d.at(shard))
			}
		}
	}
	for tensor, shard := range shards {
		h := d.heads[d.at(shard)]
		if h == nil { // there is a finding about the shard already
			continue
		}
		if _, found := h.tensors[tensor]; found || h.refused[tensor] || isAlias(h, tensor) {
			continue
		}
		if others := holders[tensor]; len(others) > 0 {
			misplaced.add(tensor, d.at(shard), others[0])
			s.where[tensor] = others[0]
		} else {
			lacking.add(tensor, d.at(shard), "")
		}
	}
	index := d.at(s.index)
	lacking.each(func(files [2]string, tensor, text string) {
		d.note(Missing, tensor, fmt.Sprintf("%s lacks %s, which the index %s places there", quoted(files[0]), text, quoted(index)), files[0], index)
	})
	misplaced.each(func(files [2]string, tensor, text string) {
		d.note(Missing, tensor, fmt.Sprintf("%s lacks %s, which the index %s places there instead of in %s", quoted(files[0]), text, quoted(index), quoted(files[1])), files[0], files[1], index)
	})
	unlisted.each(func(files [2]string, tensor, text string) {
		d.note(Unlisted, tensor, fmt.Sprintf("%s of %s is not in the index %s: readers of the index leave it out", text, quoted(files[0]), quoted(index)), files[0], index)
	})
	return d.judgeCopies(s, holders)
}

// isAlias reports whether the metadata of a file lists tensor as another name of a tensor in the file, as
// huggingface_hub does for tied tensors.
func isAlias(h *head, tensor string) bool {
	_, found := h.tensors[h.metadata[tensor]]
	return found
}

// judgeRest compares files that the index does not name with the files that Open opens.
func (d *directory) judgeRest(s *set, rest [][]string, main string) error {
	for _, files := range rest {
		if d.judgeRenamed(s, files) {
			continue
		}
		rule, what := Unlisted, "of another save"
		if len(files) == 1 && files[0] == s.single {
			rule, what = Ambiguous, "a whole model"
		}
		if err := d.judgeBeside(s.where, files, rule, what, main, rule == Ambiguous); err != nil {
			return err
		}
	}
	return nil
}

// judgeRenamed notes the first tensor of files that the index does not name, if the index places that tensor in a shard
// that is not there: the file is probably that shard, under another name. It reports whether there is such a tensor.
func (d *directory) judgeRenamed(s *set, files []string) bool {
	first, holder := "", ""
	for _, name := range files {
		h := d.heads[d.at(name)]
		if h == nil {
			continue
		}
		for tensor := range h.tensors {
			if s.lost[tensor] != "" && s.where.find(tensor) == "" && (first == "" || tensor < first) {
				first, holder = tensor, d.at(name)
			}
		}
	}
	if first == "" || len(d.findings)-d.first >= maxBeside {
		return first != ""
	}
	index, shard := d.at(s.index), d.at(s.lost[first])
	d.note(Unlisted, first, fmt.Sprintf("%s is not in the index %s; it holds %s, which the index places in %s, a file that is not there", quoted(holder), quoted(index), quoted(first), quoted(shard)), holder, index)
	return true
}
