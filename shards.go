package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	modelFile   = "model.safetensors"
	fileSuffix  = ".safetensors"
	indexSuffix = ".index.json"

	// shardsAtOnce is how many shards are opened at the same time. Their headers
	// are small, so that latency counts.
	shardsAtOnce = 20

	// maxIndexLength is far beyond the largest index known, 250 MB, and within
	// the 32 bits of a span.
	maxIndexLength = 1 << 30
)

// openCheckpoint opens what Open and Load take: a file, an index or a folder.
func openCheckpoint(name string, open func(string) (*File, error), atOnce int) (*File, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if name, err = findCheckpoint(name); err != nil {
			return nil, err
		}
	}
	if !strings.HasSuffix(name, indexSuffix) {
		return open(name)
	}
	f, size, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxIndexLength {
		return nil, nameError(name, indexTooLong())
	}
	text := make([]byte, size)
	if err := readFull(f, text, 0); err != nil {
		return nil, nameError(name, err)
	}
	file, err := openShards(text, atOnce, func(shard string) (*File, error) {
		return open(filepath.Join(filepath.Dir(name), filepath.FromSlash(shard)))
	})
	if err != nil {
		return nil, nameError(name, err)
	}
	return file, nil
}

// findCheckpoint returns what in a folder is its checkpoint.
func findCheckpoint(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nameError(dir, err)
	}
	var files, indexes []string
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, tempPrefix):
		case strings.HasSuffix(name, fileSuffix):
			files = append(files, name)
		case strings.HasSuffix(name, fileSuffix+indexSuffix):
			indexes = append(indexes, name)
		}
	}
	var found string
	switch {
	case slices.Contains(files, modelFile):
		found = modelFile
	case slices.Contains(indexes, modelFile+indexSuffix):
		found = modelFile + indexSuffix
	case len(indexes) == 1:
		found = indexes[0]
	case len(indexes) == 0 && len(files) == 1:
		found = files[0]
	case len(indexes) > 1 || len(files) > 1:
		err = fmt.Errorf("no %s in it, and more than one other: %s", modelFile, listNames(append(indexes, files...)))
		return "", nameError(dir, err)
	default:
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		err = fmt.Errorf("no %s file in it, only [%s]: %w", fileSuffix, listNames(names), fs.ErrNotExist)
		return "", nameError(dir, err)
	}
	return filepath.Join(dir, found), nil
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

// NewSharded opens several shards as one File. index is the content of a
// model.safetensors.index.json, as written by WriteShards, by BuildIndex and by
// the Python packages. open is called once for each shard named there, 20 at a
// time, and returns it; the names have been checked to be local, slash-separated
// paths. The result owns those Files: its Close closes them.
//
// It holds exactly the tensors of the index, each from the shard that the index
// says, shard by shard in the order of their names. Metadata is that of the
// first shard.
//
// An index that breaks a rule, a shard that cannot be opened and a tensor that
// its shard does not hold are a *FormatError. All shards at fault are reported
// together, and what open returned is wrapped.
func NewSharded(index io.Reader, open func(shard string) (*File, error)) (*File, error) {
	text, err := io.ReadAll(io.LimitReader(index, maxIndexLength+1))
	if err != nil {
		return nil, fmt.Errorf("safetensors: reading the index: %w", err)
	}
	return openShards(text, shardsAtOnce, open)
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
	parallel(atOnce, int64(len(shards)), func(i int64) error {
		if files[i], failures[i] = open(shards[i]); files[i] == nil && failures[i] == nil {
			failures[i] = errors.New("no File for it")
		}
		return nil
	})
	f := &File{metadata: func() map[string]string { return nil }}
	for i, shard := range shards {
		if err := failures[i]; err != nil {
			failures[i] = fmt.Errorf("%w: %w", &FormatError{Offset: -1, Reason: "shard " + quote(shard)}, bare(err))
			continue
		}
		failures[i] = f.addShard(shard, files[i], w)
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
	f.index, _ = newIndex(f.count(), f.name)
	return f, nil
}

// addShard appends what w says is in a shard to the parts of f.
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
	reason := fmt.Sprintf("shard %s does not hold it, as the index says", quote(shard))
	if left > 1 {
		reason += fmt.Sprintf("; nor %d other tensors", left-1)
	}
	missing := slices.IndexFunc(w.pairs, func(p weightPair) bool {
		return w.str(p.shard) == shard && file.index.lookup(w.str(p.name), file.name) < 0
	})
	return &FormatError{Offset: -1, Tensor: w.name(missing), Reason: reason}
}

// joinSome joins the errors that are not nil, the first of many.
func joinSome(errs []error) error {
	const limit = 10
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > limit {
		errs = append(errs[:limit:limit], fmt.Errorf("safetensors: and %d more shards", len(errs)-limit))
	}
	return errors.Join(errs...)
}

// A weightMap is a validated index: which shard has which tensor.
type weightMap struct {
	text  string
	pairs []weightPair   // in the order of the text
	count map[string]int // of tensors in each shard
	index index          // finds pairs by name
}

type weightPair struct{ name, shard span }

func (w *weightMap) str(s span) string { return w.text[s.off:][:s.len] }
func (w *weightMap) name(i int) string { return w.str(w.pairs[i].name) }

// shardOf returns the shard that has a tensor, "" if none has.
func (w *weightMap) shardOf(name string) string {
	i := w.index.lookup(name, w.name)
	if i < 0 {
		return ""
	}
	return w.str(w.pairs[i].shard)
}

// shards returns the names of the shards in order.
func (w *weightMap) shards() []string { return slices.Sorted(maps.Keys(w.count)) }

func indexTooLong() error {
	return &FormatError{Offset: -1, Reason: fmt.Sprintf("the index is longer than %d bytes", maxIndexLength)}
}

// parseIndex checks an index, which it owns from now on. An index is a JSON
// object with a weight_map, from names to shards; metadata and what else may be
// there is ignored, as all readers do.
func parseIndex(text []byte) (*weightMap, error) {
	if len(text) > maxIndexLength {
		return nil, indexTooLong()
	}
	s := &scanner{text: text}
	if !utf8.Valid(text) {
		return nil, s.fail(validUTF8(text), "the index is not valid UTF-8")
	}
	w := &weightMap{count: make(map[string]int)}
	if err := s.index(w); err != nil {
		return nil, err
	}
	w.text = freeze(text)
	var twice int
	if w.index, twice = newIndex(len(w.pairs), w.name); twice >= 0 {
		name := w.pairs[twice].name
		return nil, &FormatError{Offset: int64(name.off), Tensor: w.str(name), Reason: "the name stands in the index twice"}
	}
	return w, nil
}

// index reads the whole text of an index.
func (s *scanner) index(w *weightMap) error {
	seen := make(map[string]bool)
	err := s.object("the index, an object,", func(key span) error {
		name := string(s.text[key.off:][:key.len])
		if seen[name] {
			return s.fail(int(key.off), "%s stands in the index twice", quote(name))
		}
		seen[name] = true
		if name != "weight_map" {
			return s.skip(1)
		}
		return s.object("an object, the weight_map,", func(name span) error { return s.pair(w, name) })
	})
	if err != nil {
		return err
	}
	if s.space(); s.pos < len(s.text) {
		return s.failHere("the end of the index")
	}
	if !seen["weight_map"] {
		return s.fail(0, "the index has no weight_map")
	}
	return nil
}

// pair reads the shard of a tensor.
func (s *scanner) pair(w *weightMap, name span) error {
	s.tensor = name
	shard, err := s.str("a string, the name of a shard,")
	if err != nil {
		return err
	}
	file := s.text[shard.off:][:shard.len]
	if _, ok := w.count[string(file)]; !ok && !localName(string(file)) {
		return s.fail(int(shard.off), "shard %s is not a file beside the index", quote(string(file)))
	}
	w.count[string(file)]++
	w.pairs = append(reserve(s, w.pairs, 1, len(`"":"x",`)), weightPair{name, shard})
	s.tensor = span{}
	return nil
}

// localName reports whether a shard name stays in the folder of its index, on
// whatever system it is opened: index files come from strangers.
func localName(name string) bool {
	return fs.ValidPath(name) && name != "." && filepath.IsLocal(filepath.FromSlash(name)) && !strings.ContainsAny(name, "\\:\x00")
}
