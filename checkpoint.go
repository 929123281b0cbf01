package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// The names of a model's files, in directories and on hubs, as the Python packages
// give them.
const (
	fileSuffix  = ".safetensors"
	indexSuffix = ".index.json"
	modelFile   = modelStem + fileSuffix  // a model in one file
	indexFile   = modelFile + indexSuffix // names the shards of a model in several files
	modelStem   = "model"

	pipelineFile = "model_index.json" // in the root directory of a diffusers pipeline, above the directories of the pipeline's models
)

var endings = variant.Endings{fileSuffix}

// openCheckpoint opens what Open takes: a file, an index or a directory. A save may replace the
// checkpoint after openCheckpoint has chosen its files and before it has opened them. Then a file
// may be missing, so openCheckpoint chooses the files again and opens these.
//
// Even if the second choice equals the first, a save may be the reason: one save may have removed a
// file, and a later one may have written a file with the same name. So openCheckpoint opens an equal
// choice once more, unless it is an index, whose text identifies the save.
func openCheckpoint(in folder, name string) (*File, error) {
	const tries = 10
	c := choose(in, name)
	again := false // whether c equals the choice before it
	for i := 1; ; i++ {
		f, err := c.open(in)
		if i == tries || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		now := choose(in, name)
		same := c.name == now.name && slices.Equal(c.set, now.set) && bytes.Equal(c.index, now.index)
		if same && (again || c.err != nil || c.index != nil) {
			return nil, err
		}
		c, again = now, same
	}
}

// A choice is the checkpoint that a name refers to when it is resolved.
type choice struct {
	name  string   // name of a file, of an index, or of the directory that contains the files in set
	set   []string // the files of a set of shards without an index
	index []byte   // text of the index; nil if name is not the name of an index
	err   error    // nil, or the error for a name that is not a checkpoint
}

// choose finds the checkpoint that a name refers to, and reads its index.
func choose(in folder, name string) choice {
	c := choice{name: name}
	isDir, err := in.IsDir(name)
	if err != nil {
		return choice{name: name, err: err}
	}
	if isDir {
		found, err := findCheckpoint(in, name)
		if err != nil || len(found) > 1 {
			return choice{name: name, set: found, err: err}
		}
		c.name = in.Join(name, found[0])
	}
	if endings.IsIndex(c.name) {
		c.index, c.err = readIndex(in, c.name)
	}
	return c
}

// open opens the files of a checkpoint.
func (c choice) open(in folder) (*File, error) {
	var f *File
	err := c.err
	switch {
	case err != nil:
	case c.set != nil:
		whole := func(_ string, shard *File) (*File, error) { return shard, nil }
		f, err = openAll(c.set, in.atOnce, in.shardsIn(c.name), whole)
	case endings.IsIndex(c.name):
		f, err = openShards(bytes.Clone(c.index), in.atOnce, in.shardsIn(in.Join(c.name, "..")))
	default:
		return openIn(in, c.name)
	}
	if err != nil {
		return nil, prefix.OpenError(c.name, err)
	}
	f.opened = c.name
	return f, nil
}

// shardsIn returns the func that opens shards in dir. Its errors omit dir, which the caller adds.
func (f folder) shardsIn(dir string) func(shard string) (*File, error) {
	return func(shard string) (*File, error) {
		file, err := openIn(f, f.Join(dir, shard))
		if err != nil {
			return nil, &shardError{shard, err}
		}
		return file, nil
	}
}

func openIn(in folder, name string) (*File, error) {
	f, err := in.openFile(name)
	if err != nil {
		return nil, prefix.OpenError(name, err)
	}
	f.opened = name
	f.parts[0].file = filepath.Base(name)
	f.parts[0].src.setName(name)
	return f, nil
}

func readIndex(in folder, name string) ([]byte, error) {
	f, _, err := osfile.OpenFS(in.FS, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return indexText(f)
}

// findCheckpoint returns the file in dir that is its checkpoint, or the files of a set of shards
// without an index.
func findCheckpoint(in folder, dir string) ([]string, error) {
	entries, err := fs.ReadDir(in.FS, dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	files, indexes := endings.Among(slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return strings.HasPrefix(name, osfile.TempPrefix)
	}))
	main := variant.Main(modelFile, files, indexes)
	switch {
	case main != "":
		return []string{main}, nil
	case len(indexes) == 0 && len(files) == 0:
		return nil, noWeights(in, dir, names)
	case len(indexes) == 0:
		if set, err := shardsOf(files); set || err != nil {
			return files, err
		}
		if len(files) == 1 {
			return files, nil
		}
	}
	return nil, &variant.Several{Usual: modelFile, Names: append(indexes, files...), List: listNames(append(indexes, files...))}
}

// noWeights returns the error for a directory without weights. If that is a pipeline of
// diffusers, the error names the directories in it that have weights.
func noWeights(in folder, dir string, names []string) error {
	if len(names) == 0 {
		return prefix.Absent{Err: fmt.Errorf("no %s file in it: it is empty", fileSuffix)}
	}
	others := "only " + listNames(names)
	if slices.Contains(names, pipelineFile) {
		models := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			below, _ := fs.ReadDir(in.FS, in.Join(dir, name))
			return !slices.ContainsFunc(below, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), fileSuffix) })
		})
		if len(models) > 0 {
			others = "only in folders of its pipeline: " + listNames(models)
		}
	}
	return prefix.Absent{Err: fmt.Errorf("no %s file in it, %s", fileSuffix, others+packageIn(names))}
}

// packageIn returns the end of an error about files without a model: the name of the package that
// reads such files, or "" if there is none.
func packageIn(names []string) string {
	if slices.ContainsFunc(names, func(name string) bool { r, _ := variant.RankOf(name); return r.Sure }) {
		return " (package dcp joins the files of ranks)"
	}
	for _, other := range []struct {
		reads   string
		endings variant.Endings
	}{
		{"dcp reads the distributed checkpoint", variant.Endings{".metadata", ".distcp"}},
		{"torch reads the files of PyTorch", variant.Endings{".bin", ".pt", ".pth", ".ckpt"}},
	} {
		has := func(ending string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ending) })
		}
		if slices.ContainsFunc(other.endings, has) {
			return " (package " + other.reads + ")"
		}
	}
	return ""
}

// parseShard splits the name of a shard that is a safetensors file.
func parseShard(name string) (variant.Shard, bool) {
	s, ok := variant.ParseShard(name)
	return s, ok && s.Ending == fileSuffix
}

// shardsOf reports whether files are the shards of one model. Missing shards are an error: a part
// of a model must not pass for the whole.
func shardsOf(files []string) (set bool, err error) {
	n, missing := variant.SetOf(files, maxShards)
	switch {
	case n > maxShards:
		return false, fmt.Errorf("%d shards exceed the limit of %d", n, maxShards)
	case len(missing) > 0:
		return false, prefix.Absent{Err: errors.New(variant.MissingShards(n, missing, fileText))}
	}
	return n > 0 && len(files) == n, nil // false if two names have the same number, with and without leading zeros
}

// listNames lists the names of files for an error.
func listNames(names []string) string { return variant.List(names, 10, fileText) }
