package dcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// Open opens the checkpoint in a directory: all its *.safetensors files, as PyTorch's
// HuggingFaceStorageReader does. The result has every tensor whole, joined from its
// pieces. Open maps the files and reads their headers, no data; Close closes them. If
// PyTorch saved with enable_consolidation, open the subdirectory sharded.
//
// A file without sharding information holds whole tensors. Metadata is that of the
// first file by name, without the keys of DCP. Header and the order of the tensors are
// those of the file that [safetensors.Write] makes of them.
//
// Errors are those of [safetensors.Open], with the name of the file. Pieces that
// overlap, leave a hole or differ in dtype or rank, and sharding information that
// breaks a rule, are a *[safetensors.FormatError] that names tensor, piece and file.
// If the directory has no such file, the error wraps [fs.ErrNotExist].
func Open(dir string) (*safetensors.File, error) {
	f, err := openAll(os.ReadDir, dir, func(name string) (*safetensors.File, error) {
		return safetensors.Open(filepath.Join(dir, name))
	})
	return f, prefixed(err)
}

// OpenFS opens the checkpoint in a directory of a file system, such as [os.DirFS] or a
// [archive/zip.Reader], as Open does. dir is slash-separated; "." is the root. The files
// are read as by [safetensors.OpenFS].
func OpenFS(fsys fs.FS, dir string) (*safetensors.File, error) {
	switch {
	case fsys == nil:
		return nil, prefixed(&fs.PathError{Op: "open", Path: dir, Err: errors.New("the fs.FS is nil")})
	case !fs.ValidPath(dir):
		return nil, prefixed(&fs.PathError{Op: "open", Path: dir, Err: fs.ErrInvalid})
	}
	list := func(dir string) ([]fs.DirEntry, error) { return fs.ReadDir(fsys, dir) }
	f, err := openAll(list, dir, func(name string) (*safetensors.File, error) {
		return safetensors.OpenFS(fsys, path.Join(dir, name))
	})
	return f, prefixed(err)
}

// A shard is one file of a checkpoint.
type shard struct {
	name    string // as errors call it
	file    *safetensors.File
	offsets map[string][]int // of each tensor; nil if the file has no sharding information
}

// openAll opens the checkpoint in a directory. open opens a file in it.
func openAll(list func(string) ([]fs.DirEntry, error), dir string, open func(string) (*safetensors.File, error)) (*safetensors.File, error) {
	names, err := shardNames(list, dir)
	if err != nil {
		return nil, openError(dir, err)
	}
	if err := checkCount(len(names)); err != nil {
		return nil, openError(dir, err)
	}
	shards := make([]shard, len(names))
	opened := false
	defer func() {
		if !opened { // also if open panicked
			closeAll(shards)
		}
	}()
	err = parallel.Do(shardsAtOnce, int64(len(shards)), func(i int64) error {
		f, err := open(names[i])
		if err != nil {
			return bare(err)
		}
		shards[i] = shard{name: quote(names[i]), file: f}
		return shards[i].readOffsets()
	})
	if err == nil {
		var f *safetensors.File
		if f, err = join(shards); err == nil {
			opened = true
			return f, nil
		}
	}
	return nil, openError(dir, err)
}

const (
	// shardsAtOnce is how many files are opened concurrently. Headers are small, so
	// latency dominates.
	shardsAtOnce = 20

	// maxFiles and maxRank limit checkpoints. PyTorch has tensors of up to 64
	// dimensions.
	maxFiles = 10_000
	maxRank  = 64

	suffix = ".safetensors"
	pickle = ".distcp" // of the other format of DCP
)

// shardNames returns the names of the files in a directory that belong to its
// checkpoint, in order.
func shardNames(list func(string) ([]fs.DirEntry, error), dir string) ([]string, error) {
	entries, err := list(dir)
	if err != nil {
		return nil, err
	}
	const noFile = "no *" + suffix + " file in it"
	reason := noFile
	var names []string
	for _, e := range entries {
		switch {
		case e.IsDir():
		case strings.HasSuffix(e.Name(), suffix):
			names = append(names, e.Name())
		case strings.HasSuffix(e.Name(), pickle):
			reason = noFile + ", and its *" + pickle + " files hold pickled Python objects (PyTorch's HuggingFaceStorageWriter writes safetensors)"
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: %w", reason, fs.ErrNotExist)
	}
	return names, nil
}

func checkCount(files int) error {
	if files > maxFiles {
		return fmt.Errorf("%d files exceed the limit of %d", files, maxFiles)
	}
	return nil
}

func closeAll(shards []shard) error {
	var errs []error
	for _, s := range shards {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	return errors.Join(errs...)
}
