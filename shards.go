package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// The names of a model's files, in directories and on hubs, as the Python packages
// give them.
const (
	fileSuffix  = ".safetensors"
	indexSuffix = ".index.json"
	modelFile   = modelStem + fileSuffix  // a model in one file
	indexFile   = modelFile + indexSuffix // which names the shards of a model in several
	modelStem   = "model"
)

const (
	// shardsAtOnce is how many shards are opened concurrently. Headers are small,
	// so latency dominates.
	shardsAtOnce = 20

	// maxFailures is how many shards may fail before no further one is opened.
	maxFailures = 10
)

// openSet opens a set of shards that has no index.
func openSet(in folder, dir string, names []string) (*File, error) {
	files, failures := openAll(names, in.atOnce(), func(shard string) (*File, error) {
		return openIn(in, in.join(dir, shard))
	})
	err := joinSome(failures)
	if err == nil {
		var f *File
		if f, err = join(files); err == nil {
			return f, nil
		}
	}
	closeAll(files)
	return nil, err
}

func readIndex(in folder, name string) ([]byte, error) {
	f, size, err := in.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxIndexLength {
		return nil, indexTooLong()
	}
	return readWhole(f, size)
}

// findCheckpoint returns which file in a folder is its checkpoint, or which set of
// shards without an index.
func findCheckpoint(in folder, dir string) ([]string, error) {
	entries, err := in.list(dir)
	if err != nil {
		return nil, err
	}
	var names, files, indexes []string
	for _, e := range entries {
		name := e.Name()
		names = append(names, name)
		switch {
		case strings.HasPrefix(name, osfile.TempPrefix):
		case strings.HasSuffix(name, fileSuffix):
			files = append(files, name)
		case strings.HasSuffix(name, fileSuffix+indexSuffix):
			indexes = append(indexes, name)
		}
	}
	switch {
	case slices.Contains(files, modelFile):
		return []string{modelFile}, nil
	case slices.Contains(indexes, indexFile):
		return []string{indexFile}, nil
	case len(indexes) == 1:
		return indexes, nil
	case len(indexes) == 0 && len(files) == 0:
		return nil, fmt.Errorf("no %s file in it, only [%s]: %w", fileSuffix, listNames(names), fs.ErrNotExist)
	case len(indexes) == 0:
		if set, err := shardsOf(files); set || err != nil {
			return files, err
		}
		if len(files) == 1 {
			return files, nil
		}
	}
	return nil, fmt.Errorf("no %s in it, and several others: %s", modelFile, listNames(append(indexes, files...)))
}

// cutShardName takes the name of a shard apart: stem-00001-of-00003.safetensors.
func cutShardName(name string) (stem, number, count string, ok bool) {
	digits := func(s string) bool { return len(s) >= 5 && strings.Trim(s, "0123456789") == "" }
	base, ok := strings.CutSuffix(name, fileSuffix)
	of := strings.LastIndex(base, "-of-")
	if !ok || of < 0 {
		return "", "", "", false
	}
	dash := strings.LastIndexByte(base[:of], '-')
	if dash < 1 {
		return "", "", "", false
	}
	stem, number, count = base[:dash], base[dash+1:of], base[of+len("-of-"):]
	return stem, number, count, digits(number) && digits(count)
}

// shardsOf reports whether files are the shards of one model. It is an error if
// some are missing: a part of a model must not pass for the whole.
func shardsOf(files []string) (set bool, err error) {
	var stem, count string
	have := make(map[int]bool)
	for _, name := range files {
		itsStem, number, itsCount, ok := cutShardName(name)
		if !ok || len(have) > 0 && (itsStem != stem || itsCount != count) {
			return false, nil
		}
		stem, count = itsStem, itsCount
		i, _ := strconv.Atoi(number)
		have[i] = true
	}
	n, _ := strconv.Atoi(count)
	if n > maxShards {
		return false, fmt.Errorf("%d shards exceed the limit of %d", n, maxShards)
	}
	var missing []string
	for i := 1; i <= n; i++ {
		if !have[i] {
			missing = append(missing, fmt.Sprintf("%s-%05d-of-%s%s", stem, i, count, fileSuffix))
		}
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("%d of %d shards are missing: %s: %w", len(missing), n, listNames(missing), fs.ErrNotExist)
	}
	return len(files) == n, nil // false if two files have one number, with more zeros
}

// listNames lists file names for an error, the first of many.
func listNames(names []string) string {
	const limit = 10
	more := ""
	if len(names) > limit {
		more = fmt.Sprintf(" and %d more", len(names)-limit)
		names = names[:limit]
	}
	names = slices.Clone(names)
	for i, name := range names {
		if strings.ContainsFunc(name, unicode.IsControl) {
			names[i] = quote(name)
		}
	}
	return strings.Join(names, ", ") + more
}

// OpenShards opens the shards of a model.safetensors.index.json as one File. It calls
// open once for each, 20 concurrently; names are local, slash-separated paths. Close
// closes these Files. Tensors are those of the index, shard by shard in name order;
// metadata is that of the first, then of the index.
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
