package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

const (
	// shardsAtOnce is how many shards are opened concurrently. Headers are small,
	// so latency dominates.
	shardsAtOnce = 20

	// maxFailures is how many shards may fail before no further one is opened.
	maxFailures = 10
)

// A folder is where the files of a checkpoint are: in the operating system or in
// an fs.FS, mapped or in memory.
type folder interface {
	isDir(name string) bool
	list(name string) ([]fs.DirEntry, error)
	join(dir, file string) string // file is local and slash-separated
	dir(name string) string
	open(name string) (fs.File, int64, error) // a regular file and its size
	openFile(name string) (*File, error)
	atOnce() int // how many files to open concurrently
}

// openCheckpoint opens what Open takes: a file, an index or a folder.
func openCheckpoint(in folder, name string) (*File, error) {
	if in.isDir(name) {
		found, err := findCheckpoint(in, name)
		if err != nil {
			return nil, openError(name, err)
		}
		name = in.join(name, found)
	}
	if !strings.HasSuffix(name, osfile.IndexSuffix) {
		f, err := in.openFile(name)
		if err != nil {
			return nil, openError(name, err)
		}
		return f, nil
	}
	text, err := readIndex(in, name)
	if err != nil {
		return nil, openError(name, err)
	}
	f, err := openShards(text, in.atOnce(), func(shard string) (*File, error) {
		shard = in.join(in.dir(name), shard)
		f, err := in.openFile(shard)
		if err != nil {
			return nil, openError(shard, err)
		}
		return f, nil
	})
	if err != nil {
		return nil, openError(name, err)
	}
	return f, nil
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
	return readGrowing(f, size)
}

// findCheckpoint returns which file in a folder is its checkpoint.
func findCheckpoint(in folder, dir string) (string, error) {
	entries, err := in.list(dir)
	if err != nil {
		return "", err
	}
	var names, files, indexes []string
	for _, e := range entries {
		name := e.Name()
		names = append(names, name)
		switch {
		case strings.HasPrefix(name, osfile.TempPrefix):
		case strings.HasSuffix(name, osfile.FileSuffix):
			files = append(files, name)
		case strings.HasSuffix(name, osfile.FileSuffix+osfile.IndexSuffix):
			indexes = append(indexes, name)
		}
	}
	switch {
	case slices.Contains(files, osfile.ModelFile):
		return osfile.ModelFile, nil
	case slices.Contains(indexes, osfile.IndexFile):
		return osfile.IndexFile, nil
	case len(indexes) == 1:
		return indexes[0], nil
	case len(indexes) == 0 && len(files) == 1:
		return files[0], nil
	case len(indexes) == 0 && len(files) == 0:
		return "", fmt.Errorf("no %s file in it, only [%s]: %w", osfile.FileSuffix, listNames(names), fs.ErrNotExist)
	}
	return "", fmt.Errorf("no %s in it, and several others: %s", osfile.ModelFile, listNames(append(indexes, files...)))
}

// listNames lists file names for an error, the first of many.
func listNames(names []string) string {
	const limit = 10
	more := ""
	if len(names) > limit {
		more = fmt.Sprintf(" and %d more", len(names)-limit)
		names = names[:limit]
	}
	return strings.Join(names, ", ") + more
}

// OpenShards opens several shards as one File. index is the content of a
// model.safetensors.index.json, as written by WriteShards, by BuildIndex and by
// the Python packages. It calls open once for each shard that the index names, 20
// concurrently; the names have been checked to be local, slash-separated paths.
// The result owns the Files that open returns: its Close closes them.
//
// It holds exactly the tensors of the index, each from the shard that the index
// says, shard by shard in the order of their names. Metadata is that of the first
// shard.
//
// An index that breaks a rule, and a shard that lacks a tensor the index places in
// it, are a *FormatError. Errors of open are wrapped, with the name of the shard.
// The failures of several shards are reported together; after ten no further
// shard is opened.
func OpenShards(index io.Reader, open func(shard string) (*File, error)) (*File, error) {
	text, err := io.ReadAll(io.LimitReader(index, maxIndexLength+1))
	if err != nil {
		return nil, prefixed(fmt.Errorf("reading the index: %w", err))
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
	files := make([]*File, len(shards))
	failures := make([]error, len(shards))
	var failed atomic.Int64
	parallel.Do(atOnce, int64(len(shards)), func(i int64) error {
		var err error
		if files[i], err = open(shards[i]); err == nil && files[i] == nil {
			err = errors.New("open returned no File")
		}
		if err == nil {
			return nil
		}
		failures[i] = fmt.Errorf("shard %s: %w", quote(shards[i]), bare(err))
		if failed.Add(1) < maxFailures {
			return nil
		}
		return errors.New("too many failures") // ends the loop; the failures are reported below
	})
	f := &File{metadata: func() map[string]string { return nil }}
	for i, shard := range shards {
		if files[i] != nil {
			failures[i] = f.addShard(shard, files[i], w)
		}
	}
	if err := joinSome(failures); err != nil {
		for _, file := range files {
			if file != nil {
				file.Close()
			}
		}
		return nil, err
	}
	if len(files) > 0 {
		f.metadata = files[0].metadata
	}
	f.names, _ = newNameIndex(f.count(), f.name)
	return f, nil
}

// addShard appends the tensors that w places in a shard to the parts of f.
func (f *File) addShard(shard string, file *File, w *weightMap) error {
	left := w.count[shard]
	for _, p := range file.parts {
		t := *p.table
		t.entries = make([]entry, 0, min(left, len(t.entries)))
		for i, e := range p.entries {
			if w.shardOf(p.name(i)) == shard {
				t.entries = append(t.entries, e)
			}
		}
		left -= len(t.entries)
		f.parts = append(f.parts, part{table: &t, src: p.src, first: f.count()})
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
