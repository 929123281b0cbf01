package dcp

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// An Opener opens checkpoints as the funcs Open and OpenFS do, which are its methods for the
// zero Opener.
type Opener struct {
	// Skip is told of the entries of a .metadata that are left out, and why, in order. If
	// the error wraps [errors.ErrUnsupported], it is about a tensor that safetensors cannot
	// hold, such as one of complex128; without Skip that is an error. Otherwise it is about
	// a Python object, such as the step.
	Skip func(name string, why error)
}

// Open opens the checkpoint in a directory. If that has a .metadata, the tensors are those
// in its .distcp files, and Python objects are left out; else those of all its *.safetensors
// files, as PyTorch's HuggingFaceStorageReader has them. The result has every tensor whole,
// joined from its pieces. Open reads the headers or the .metadata, no data; Close closes the
// files. If PyTorch saved with enable_consolidation, open the subdirectory sharded.
//
// A safetensors file without sharding information holds whole tensors. Metadata is that of
// the first by name, without the keys of DCP. Header and the order of the tensors are
// those of the file that [safetensors.Write] makes of them.
//
// Errors are those of [safetensors.Open], with the name of the file. Pieces that
// overlap, leave a hole or differ in dtype or rank, and sharding information or a .metadata
// that breaks a rule, are a *[safetensors.FormatError] that names tensor, piece and file.
// If the directory has no such file, the error wraps [fs.ErrNotExist].
func Open(dir string) (*safetensors.File, error) { return Opener{}.Open(dir) }

// OpenFS opens the checkpoint in a directory of a file system, such as [os.DirFS] or a
// [archive/zip.Reader], as Open does. dir is slash-separated; "." is the root. The files
// are read as by [safetensors.OpenFS], but .distcp files must be io.ReaderAts.
func OpenFS(fsys fs.FS, dir string) (*safetensors.File, error) { return Opener{}.OpenFS(fsys, dir) }

// Open is the func Open, with what o says.
func (o Opener) Open(dir string) (*safetensors.File, error) {
	return prefix.Added(o.open(osfile.OS, dir, safetensors.Open))
}

// OpenFS is the func OpenFS, with what o says.
func (o Opener) OpenFS(fsys fs.FS, dir string) (*safetensors.File, error) {
	tree, err := osfile.TreeOf(fsys, dir)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(o.open(tree, dir, func(name string) (*safetensors.File, error) {
		return safetensors.OpenFS(fsys, name)
	}))
}

// open opens the checkpoint in a directory of a tree. openFile opens a safetensors file in
// that tree.
func (o Opener) open(in osfile.Tree, dir string, openFile func(string) (*safetensors.File, error)) (f *safetensors.File, err error) {
	entries, err := fs.ReadDir(in.FS, dir)
	var names []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	switch {
	case err != nil:
	case slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == metadataFile }):
		f, err = o.openChunks(in, dir)
	case len(names) == 0:
		err = fmt.Errorf("no *%s file and no %s in it: %w", suffix, metadataFile, fs.ErrNotExist)
	default:
		f, err = openShards(names, func(name string) (*safetensors.File, error) { return openFile(in.Join(dir, name)) })
	}
	return f, openError(dir, err)
}

// openShards opens the safetensors files of a directory.
func openShards(names []string, open func(string) (*safetensors.File, error)) (joined *safetensors.File, err error) {
	if err := checkCount(len(names)); err != nil {
		return nil, err
	}
	files := make([]*safetensors.File, len(names))
	defer func() {
		if joined == nil { // also if open panicked
			closeAll(files)
		}
	}()
	err = parallel.Do(shardsAtOnce, int64(len(files)), func(i int64) (err error) {
		files[i], err = open(names[i])
		return prefix.Strip(err)
	})
	if err != nil {
		return nil, err
	}
	return join(files, func(i int) string { return quote(names[i]) })
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
)

func checkCount(files int) error {
	if files > maxFiles {
		return fmt.Errorf("%d files exceed the limit of %d", files, maxFiles)
	}
	return nil
}

func closeAll(files []*safetensors.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
