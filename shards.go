package safetensors

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

const (
	// shardsAtOnce is the number of shards that are opened concurrently. Headers are small, so
	// latency dominates.
	shardsAtOnce = 20

	// maxFailures is the number of failures after which no further shard is opened.
	maxFailures = 10
)

// OpenShards opens the shards of a model.safetensors.index.json as one File. It calls open once
// for each shard, up to 20 concurrently. Names of shards are local, slash-separated paths. Close
// closes these Files. The File has the tensors of the index, shard by shard in the order of their
// names.
//
// If the index breaks a rule, or names a tensor that its shard lacks, the error is a
// *[FormatError]. Errors of open are wrapped with the shard's name. After ten
// errors, no further shard is opened.
func OpenShards(index io.Reader, open func(shard string) (*File, error)) (*File, error) {
	if index == nil || open == nil {
		return nil, prefixed(errors.New("opening shards: the index or the callback is nil"))
	}
	text, err := indexText(index)
	if err != nil {
		return nil, prefixed(err)
	}
	f, err := openShards(text, shardsAtOnce, open)
	return f, prefixed(err)
}

// openShards opens the shards of an index. The File keeps text, which must not be used again.
func openShards(text []byte, atOnce int, open func(shard string) (*File, error)) (*File, error) {
	w, err := parseIndex(text)
	if err != nil {
		return nil, err
	}
	f, err := openAll(slices.Sorted(maps.Keys(w.count)), atOnce, open, w.selected)
	if err != nil {
		return nil, err
	}
	f.metadata = w.withNotes(f.metadata)
	return f, nil
}

// openAll opens shards, up to atOnce of them concurrently. From each File, the func selected makes
// the File with the tensors that belong to the result, and openAll joins these. After maxFailures
// failures it opens no more shards. If openAll fails, it closes all Files.
func openAll(shards []string, atOnce int, open func(shard string) (*File, error), selected func(shard string, f *File) (*File, error)) (*File, error) {
	files := make([]*File, len(shards))
	parts := make([]*File, len(shards))
	failures := make([]error, len(shards))
	var failed atomic.Int64
	joined := false
	defer func() {
		for _, f := range files {
			if f != nil && !joined { // there was an error, or open panicked
				f.Close()
			}
		}
	}()
	err := parallel.Do(atOnce, int64(len(shards)), func(i int64) error {
		file, err := open(shards[i])
		if err == nil && file == nil {
			err = errors.New("open returned no File")
		}
		if err == nil {
			files[i] = file
			return nil
		}
		failures[i] = fmt.Errorf("shard %s: %w", quote(shards[i]), bare(err))
		if failed.Add(1) < maxFailures {
			return nil
		}
		return err // stops parallel.Do: no further shard is opened
	})
	if err != nil && failed.Load() == 0 { // open called runtime.Goexit
		failures = append(failures, err)
	}
	broken := 0
	for i, f := range files {
		if f == nil || broken == maxFailures { // at most maxFailures, because each failure costs a search through the index
			continue
		}
		if parts[i], failures[i] = selected(shards[i], f); failures[i] != nil {
			broken++
		}
	}
	if err := joinSome(failures); err != nil {
		return nil, err
	}
	f, err := join(parts)
	joined = err == nil
	return f, err
}

// selected returns a File with the tensors that the index w places in a shard.
func (w *weightMap) selected(shard string, file *File) (*File, error) {
	f := &File{metadata: file.metadata}
	unfound := w.count[shard] // number of tensors of the shard that were not found yet
	for _, p := range file.parts {
		t, all := *p.table, p
		t.entries, p.tensors = make([]entry, 0, min(unfound, len(t.entries))), nil
		for i, e := range all.entries {
			if w.shardOf(all.name(i)) != shard {
				continue
			}
			t.entries = append(t.entries, e)
			if all.tensors != nil {
				p.tensors = append(p.tensors, all.tensors[i])
			}
		}
		unfound -= len(t.entries)
		p.table, p.file = &t, shard
		p.src.setName(shard)
		f.parts = append(f.parts, p)
	}
	if unfound == 0 {
		return f, nil
	}
	reason := fmt.Sprintf("the index places it in shard %s, which lacks it", quote(shard))
	if unfound > 1 {
		reason += fmt.Sprintf(", and %d more", unfound-1)
	}
	missing := slices.IndexFunc(w.pairs, func(p member) bool {
		return w.str(p.value) == shard && file.names.lookup(w.str(p.key), file.name) < 0
	})
	return nil, &FormatError{Offset: -1, Tensor: w.name(missing), Reason: reason}
}

// joinSome joins the errors that are not nil; if there are many, only the first ones.
func joinSome(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > maxFailures {
		errs = append(errs[:maxFailures:maxFailures], fmt.Errorf("and %s", shapetext.Count(len(errs)-maxFailures, "more shard")))
	}
	return errors.Join(errs...)
}
