package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

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
	indexFile   = modelFile + indexSuffix // which names the shards of a model in several
	modelStem   = "model"

	pipelineFile = "model_index.json" // of diffusers, above the folders of its models
)

var endings = variant.Endings{fileSuffix}

// openCheckpoint opens what Open takes: a file, an index or a folder. Where a save replaces
// it meanwhile, a file is gone, and what names the files is another than the one read.
func openCheckpoint(in folder, name string) (*File, error) {
	const tries = 10
	c := choose(in, name)
	for i := 1; ; i++ {
		f, err := c.open(in)
		if i == tries || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		now := choose(in, name)
		if c.name == now.name && slices.Equal(c.set, now.set) && bytes.Equal(c.index, now.index) {
			return nil, err
		}
		c = now
	}
}

// A choice is the checkpoint that a name stands for at some moment.
type choice struct {
	name  string   // of a file, of an index, or of the folder with a set
	set   []string // the files of a set of shards without an index
	index []byte   // the text, if it is an index
	err   error    // why there is none
}

// choose finds the checkpoint that a name stands for, and reads its index.
func choose(in folder, name string) choice {
	c := choice{name: name}
	if in.IsDir(name) {
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
	return f, prefix.OpenError(c.name, err)
}

// shardsIn returns what opens the shards in a folder that its caller names in errors.
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

// findCheckpoint returns which file in a folder is its checkpoint, or which set of
// shards without an index.
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
	switch {
	case slices.Contains(files, modelFile):
		return []string{modelFile}, nil
	case slices.Contains(indexes, indexFile):
		return []string{indexFile}, nil
	case len(indexes) == 1:
		return indexes, nil
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
	return nil, fmt.Errorf("no %s in it, and several others: %s", modelFile, listNames(append(indexes, files...)))
}

// noWeights is the error for a folder without weights. Of a pipeline of diffusers it names
// the folders that have some.
func noWeights(in folder, dir string, names []string) error {
	others := "only [" + listNames(names) + "]"
	if len(names) == 0 {
		others = "and nothing else"
	}
	if slices.Contains(names, pipelineFile) {
		models := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			if !in.IsDir(in.Join(dir, name)) {
				return true
			}
			below, _ := fs.ReadDir(in.FS, in.Join(dir, name))
			return !slices.ContainsFunc(below, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), fileSuffix) })
		})
		if len(models) > 0 {
			others = "only in folders of its pipeline: " + listNames(models)
		}
	}
	return fmt.Errorf("no %s file in it, %s: %w", fileSuffix, others, fs.ErrNotExist)
}

// cutShardName takes the name of a shard apart: stem-00001-of-00003.safetensors.
func cutShardName(name string) (stem, number, count string, ok bool) {
	base, ok := strings.CutSuffix(name, fileSuffix)
	if !ok {
		return "", "", "", false
	}
	return variant.CutShard(base)
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
