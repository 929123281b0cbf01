package checkpoint

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/variant"
	"github.com/gosafetensors/safetensors/torch"
)

// An Opener opens checkpoints with settings. The funcs Open and OpenFS are like the methods of the
// zero Opener. An Opener may be used concurrently if its Skip may.
type Opener struct {
	// Key selects a dict in files of torch.save, as in [torch.Opener] and [dcp.Opener].
	Key string

	// Variant selects the files of a variant in a directory, such as "fp16":
	// model.fp16.safetensors, model.fp16-00001-of-00002.safetensors,
	// model.safetensors.index.fp16.json.
	Variant string

	// Skip, if it is not nil, is called with the name of each entry that safetensors cannot hold, and the
	// reason; the entry is left out. See [torch.Opener] and [dcp.Opener]. If Skip is nil, a tensor that
	// safetensors cannot hold is an error.
	Skip func(name string, why error)
}

// Open opens a file of safetensors or of torch.save, an index of such files, or a directory. In a
// directory, it opens the first of these that it finds:
//
//   - safetensors files, if the directory has an index of them
//   - a checkpoint of torch.distributed.checkpoint, if the directory has the file .metadata, or such a file of each rank,
//     as [dcp.Open] opens it
//   - safetensors files of the ranks of a job, as [dcp.Open] opens them
//   - safetensors files without an index
//   - files of torch.save by the ranks of a job, as [dcp.Open] opens them
//   - files of torch.save, as [torch.Open] opens them
//
// If files of transformers (model, pytorch_model) and of diffusers (diffusion_pytorch_model) are in one directory, Open
// considers only those of the library that its config.json names, by its class.
//
// Tensors are returned as they are stored: quant.Dequantize converts quantised tensors to numbers. Open
// reads headers, indexes and pickles, but no data of tensors. Close closes the files. The result
// may be used concurrently.
//
// Open refuses a symbolic link that leads out of the directory, because an untrusted model must not
// reach other files. It follows the links from the cache of huggingface_hub to the blobs in that cache. It also
// refuses pipes and devices. OpenFS recognizes links in file systems that implement fs.ReadLinkFS, such as
// those of [os.DirFS].
//
// Errors are those of [safetensors.Open], [torch.Open] and [dcp.Open], and name the file. The
// error for a directory of another format names the format and a program that reads it. If
// there is nothing to open, the error wraps [fs.ErrNotExist]. That holds for a pipeline, too, whose models are in
// directories of their own: [Models] lists them.
func Open(name string) (*safetensors.File, error) { return Opener{}.Open(name) }

// OpenFS is like Open for a file or a directory in a file system. name is slash-separated; "." is the root.
func OpenFS(fsys fs.FS, name string) (*safetensors.File, error) { return Opener{}.OpenFS(fsys, name) }

// Open is like the func Open, with the settings of o.
func (o Opener) Open(name string) (*safetensors.File, error) {
	w := where{Tree: osfile.OS, below: func(dir string) fs.FS { return osDir(dir) }}
	w.openSafetensors, w.openTorch, w.openRanks = safetensors.Open, o.torch().Open, dcp.Opener{Key: o.Key, Skip: o.Skip}.Open
	return prefix.Added(o.open(w, name))
}

// OpenFS is like the func OpenFS, with the settings of o.
func (o Opener) OpenFS(fsys fs.FS, name string) (*safetensors.File, error) {
	tree, err := osfile.TreeOf(fsys, name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(o.open(o.whereFS(tree), name))
}

func (o Opener) torch() torch.Opener { return torch.Opener{Key: o.Key, Skip: o.Skip} }

// A where is the file system that contains a checkpoint, together with the funcs that open checkpoints in it.
type where struct {
	osfile.Tree
	below func(dir string) fs.FS // returns a directory as a file system

	openSafetensors, openTorch, openRanks func(name string) (*safetensors.File, error)
}

// whereFS returns the where for the file system of a tree.
func (o Opener) whereFS(tree osfile.Tree) where {
	fsys := tree.FS
	return where{
		Tree: tree,
		below: func(dir string) fs.FS {
			if dir == "." {
				return fsys
			}
			if reader, ok := fsys.(linkReader); ok {
				return linkedSubFS{subFS{fsys, dir}, reader}
			}
			return subFS{fsys, dir}
		},
		openSafetensors: func(name string) (*safetensors.File, error) { return safetensors.OpenFS(fsys, name) },
		openTorch:       func(name string) (*safetensors.File, error) { return o.torch().OpenFS(fsys, name) },
		openRanks: func(name string) (*safetensors.File, error) {
			return dcp.Opener{Key: o.Key, Skip: o.Skip}.OpenFS(fsys, name)
		},
	}
}

// open opens a file, an index or a directory.
func (o Opener) open(in where, name string) (*safetensors.File, error) {
	isDir, err := in.IsDir(name)
	if err != nil {
		return nil, prefix.OpenError(name, err)
	}
	if !isDir {
		if o.Variant != "" {
			return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("a variant can be selected only in a directory, and this is not one")}
		}
		return openFile(in, name)
	}
	l, err := list(in.Tree, name)
	if err != nil {
		return nil, prefix.OpenError(name, err)
	}
	names, err := o.choose(in, name, l)
	if err != nil {
		return nil, prefix.OpenError(name, err)
	}
	if names != nil {
		return o.openOnly(in, name, names)
	}
	if err := refuseLinks(in.Tree, name, l); err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if k.is(l) {
			return openInside(in, name, k)
		}
	}
	if err := foreignError(l); err != nil {
		return nil, prefix.OpenError(name, err)
	}
	f, err := in.openSafetensors(name) // fails if there is nothing, unless a model was saved since the listing
	if l.has(pipelineFile) || l.has(modulesFile) {
		if models, none := modelsIn(in.Tree, name); err != nil && none == nil {
			return nil, &variant.Members{Err: prefix.Strip(err), Names: models}
		}
	}
	return f, prefix.Strip(err)
}

// openInside opens the model of a directory as one of this kind. It refuses a model whose index names a
// shard that a link places outside of the directory.
func openInside(in where, dir string, k kind) (*safetensors.File, error) {
	f, err := k.open(in, dir)
	if err != nil {
		return nil, prefix.Strip(err)
	}
	for shard := range f.Headers() {
		if to, is := leaves(in.Tree, dir, shard); is {
			f.Close()
			return nil, prefix.OpenError(in.Join(dir, shard), leavesError(to))
		}
	}
	return f, nil
}

// openFile opens a file or an index. Its name indicates whether it is of torch.save; otherwise it is opened as
// one of safetensors.
func openFile(in where, name string) (*safetensors.File, error) {
	switch base := filepath.Base(name); {
	case isTorch(base) || isTorchIndex(base):
		return in.openTorch(name)
	case isDistcp(base):
		return nil, prefix.OpenError(name, errors.New("is a part of a checkpoint of torch.distributed.checkpoint: open its directory"))
	}
	f, err := in.openSafetensors(name)
	return f, prefix.Strip(err)
}

// A kind is a format in which a directory can hold a checkpoint.
type kind struct {
	is   func(l listing) bool
	open func(in where, dir string) (*safetensors.File, error)
}

// kinds lists the formats in their order of precedence.
var kinds = []kind{
	{func(l listing) bool { return l.any(isSafetensorsIndex) }, safetensorsIn},
	{func(l listing) bool { return l.any(variant.IsMetadata) }, ranksIn},
	{isItems, func(_ where, dir string) (*safetensors.File, error) {
		return nil, prefix.OpenError(dir, errors.New("the ranks of a job saved it with the package torch_checkpointing: only "+itemMetadata+
			" records where their tensors belong, and that file is not read; open the folder above it if that has the whole model"))
	}},
	{func(l listing) bool { return l.any(variant.IsRank) }, ranksIn},
	{func(l listing) bool { return l.any(isSafetensors) }, safetensorsIn},
	{lacksMetadata, ranksIn},
	{func(l listing) bool { return l.any(variant.IsRankFile) && !l.any(variant.IsTorchModel) }, func(in where, dir string) (*safetensors.File, error) {
		f, err := in.openRanks(dir)
		if errors.Is(err, fs.ErrNotExist) { // the name is that of a rank's file, but the file is a whole checkpoint
			return in.openTorch(dir)
		}
		return f, err
	}},
	{func(l listing) bool {
		return (l.any(variant.IsTorchModel) || foreignError(l) == nil) && (l.any(isTorchWeights) || l.any(isTorchIndex))
	}, func(in where, dir string) (*safetensors.File, error) {
		return in.openTorch(dir)
	}},
}

// lacksMetadata reports whether the only weights in a directory are .distcp files, and the .metadata that describes them is
// missing. Then package dcp returns an error that explains this.
func lacksMetadata(l listing) bool {
	return l.any(isDistcp) && !l.any(variant.IsMetadata) && !l.any(isSafetensors) && !l.any(isTorchWeights)
}

func safetensorsIn(in where, dir string) (*safetensors.File, error) { return in.openSafetensors(dir) }
func ranksIn(in where, dir string) (*safetensors.File, error)       { return in.openRanks(dir) }

// isItems reports whether a directory has the files that the ranks of a job save with the package torch_checkpointing.
func isItems(l listing) bool { return l.has(itemMetadata) && l.any(itemFile().MatchString) }

// openOnly opens the checkpoint that some of the files in a directory make.
func (o Opener) openOnly(in where, dir string, names []string) (*safetensors.File, error) {
	below := in.below(dir)
	var only fs.FS = onlyFS{below, names}
	if reader, ok := below.(linkReader); ok {
		only = struct {
			onlyFS
			linkReader
		}{onlyFS{below, names}, reader}
	}
	o.Variant = ""
	f, err := o.open(o.whereFS(osfile.Tree{FS: only, Join: path.Join}), ".")
	if err != nil {
		return nil, prefix.OpenError(dir, under(err))
	}
	return f, nil
}

// under removes the name "." from an error about a directory, which the caller names.
func under(err error) error {
	if at, ok := err.(*fs.PathError); ok && at.Path == "." {
		return at.Err
	}
	return err
}
