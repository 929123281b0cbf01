package safetensors

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/parallel"
)

const (
	// shardsAtOnce is how many shards are opened concurrently. Headers are small,
	// so latency dominates.
	shardsAtOnce = 20

	// maxFailures is how many shards may fail before no further one is opened.
	maxFailures = 10
)

// OpenShards opens the shards of a model.safetensors.index.json as one File. It calls
// open once for each, 20 concurrently; names are local, slash-separated paths. Close
// closes these Files. Tensors are those of the index, shard by shard in name order.
//
// An index that breaks a rule, or names a tensor that its shard lacks, is a
// *[FormatError]. Errors of open are wrapped, with the shard; ten end the opening.
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

// openShards opens the shards of an index, which it owns from now on.
func openShards(text []byte, atOnce int, open func(shard string) (*File, error)) (*File, error) {
	w, err := parseIndex(text)
	if err != nil {
		return nil, err
	}
	shards := w.shards()
	files, failures := openAll(shards, atOnce, open)
	f := &File{metadata: func() map[string]string { return nil }}
	failed := 0
	for i, shard := range shards {
		if files[i] == nil {
			continue
		}
		if failures[i] = f.addShard(shard, files[i], w); failures[i] != nil {
			if failed++; failed == maxFailures {
				break // each is a search through the index
			}
		}
	}
	err = joinSome(failures)
	if err == nil {
		err = f.checkSize()
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	if len(files) > 0 {
		f.metadata = files[0].metadata
	}
	f.metadata = w.withNotes(f.metadata)
	f.names, _ = newNameIndex(f.count(), f.name)
	return f, nil
}

// openAll opens shards, atOnce concurrently. It returns a File or an error for
// each, and neither for those after too many failures. If open calls
// runtime.Goexit, there is one more error.
func openAll(shards []string, atOnce int, open func(shard string) (*File, error)) ([]*File, []error) {
	files := make([]*File, len(shards))
	failures := make([]error, len(shards))
	var failed atomic.Int64
	finished := false
	defer func() {
		if !finished { // open panicked
			closeAll(files)
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
		return err // which ends the loop
	})
	finished = true
	if err != nil && failed.Load() == 0 { // open called runtime.Goexit
		failures = append(failures, err)
	}
	return files, failures
}

func closeAll(files []*File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// addShard appends the tensors that w places in a shard to the parts of f.
func (f *File) addShard(shard string, file *File, w *weightMap) error {
	left := w.count[shard]
	for _, p := range file.parts {
		t, all := *p.table, p
		t.entries, p.tensors = make([]entry, 0, min(left, len(t.entries))), nil
		for i, e := range all.entries {
			if w.shardOf(all.name(i)) != shard {
				continue
			}
			t.entries = append(t.entries, e)
			if all.tensors != nil {
				p.tensors = append(p.tensors, all.tensors[i])
			}
		}
		left -= len(t.entries)
		p.table, p.file, p.first = &t, shard, f.count()
		p.src.setName(shard)
		f.parts = append(f.parts, p)
	}
	if left == 0 {
		return nil
	}
	reason := fmt.Sprintf("the index places it in shard %s, which lacks it", quote(shard))
	if left > 1 {
		reason += fmt.Sprintf(" and %d others", left-1)
	}
	missing := slices.IndexFunc(w.pairs, func(p weightPair) bool {
		return w.str(p.shard) == shard && file.names.lookup(w.str(p.name), file.name) < 0
	})
	return &FormatError{Offset: -1, Tensor: w.name(missing), Reason: reason}
}

// joinSome joins the errors that are not nil, the first of many.
func joinSome(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > maxFailures {
		errs = append(errs[:maxFailures:maxFailures], fmt.Errorf("and %d more shards", len(errs)-maxFailures))
	}
	return errors.Join(errs...)
}
