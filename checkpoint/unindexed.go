package checkpoint

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gosafetensors/safetensors/internal/variant"
)

// judgeUnindexed judges a set that has no index, or whose index cannot be read.
func (d *directory) judgeUnindexed(s *set, rest [][]string) error {
	rest = slices.DeleteFunc(rest, func(files []string) bool { // an index in a directory above names these files
		return !slices.ContainsFunc(files, func(name string) bool { return !d.claimed[d.at(name)] })
	})
	first := d.firstWhole(s, rest)
	if first < 0 {
		if other := d.twin(s); s.torch && other != nil && (other.single != "" || other.index != "") {
			return nil // shards left from a download of files that no library opens beside safetensors
		}
		for _, files := range rest {
			d.holes(files)
		}
		return nil
	}
	holders := make(map[string][]string)
	for _, name := range rest[first] {
		if h := d.heads[d.at(name)]; h != nil {
			for tensor := range h.tensors {
				if s.where[tensor] != "" {
					holders[tensor] = append(holders[tensor], d.at(name))
				} else {
					s.where[tensor] = d.at(name)
				}
			}
		}
	}
	if err := d.judgeCopies(s, holders); err != nil {
		return err
	}
	main := rest[first][0]
	if n := len(rest[first]); n > 1 && s.index == "" { // judgeNames judges the name of a single shard
		d.note(NoIndex, "", fmt.Sprintf("the %d shards from %s on have no index: some readers find no model", n, quoted(d.at(main))), d.at(main))
	}
	for i, files := range rest {
		if i == first {
			continue
		}
		if err := d.judgeBeside(s.where, files, Ambiguous, "another checkpoint", main, hole(files) == nil); err != nil {
			return err
		}
	}
	return nil
}

// firstWhole returns the index of the first group of files that lacks no shard, or -1.
func (d *directory) firstWhole(s *set, rest [][]string) int {
	return slices.IndexFunc(rest, func(files []string) bool { return files[0] == s.single || hole(files) == nil })
}

// hole returns the shards that are missing according to the numbers of the others.
func hole(files []string) (missing []string) {
	have := make(map[int]bool)
	var first variant.Shard
	for _, name := range files {
		s, ok := variant.ParseShard(name)
		if !ok {
			return nil
		}
		first = s
		number, _ := strconv.Atoi(s.Number)
		have[number] = true
	}
	count, _ := strconv.Atoi(first.Count)
	for i := 1; i <= min(count, maxWeights+1); i++ {
		if !have[i] {
			first.Number = fmt.Sprintf("%0*d", len(first.Number), i)
			missing = append(missing, first.String())
		}
	}
	return missing
}

// holes notes the shards that are missing according to the numbers of the others.
func (d *directory) holes(files []string) {
	missing := hole(files)
	if len(missing) == 0 {
		return
	}
	var names []string
	for _, name := range missing {
		names = append(names, d.at(name))
	}
	shard, _ := variant.ParseShard(files[0])
	count, _ := strconv.Atoi(shard.Count)
	n, verb := len(names)+max(0, count-maxWeights-1), "are" // hole looks no further
	if n == 1 {
		verb = "is"
	}
	text := fmt.Sprintf("%d of %d shards %s missing: %s", n, count, verb, quotedList(names))
	d.note(Missing, "", text, append(names[:min(len(names), 10)], d.at(files[0]))...)
}
