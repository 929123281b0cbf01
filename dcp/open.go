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
	"github.com/gosafetensors/safetensors/internal/variant"
)

// An Opener opens checkpoints. The funcs Open and OpenFS use the zero Opener.
type Opener struct {
	// Key selects the dict to take from the files that ranks saved with torch.save, as in
	// [torch.Opener]. If it is empty and several dicts hold tensors, the dict "model" is taken.
	// Other checkpoints have no dicts, and ignore Key.
	Key string

	// Skip is called with the name of each entry that is left out, and the reason. The entries are
	// those of a .metadata, or of the files of torch.save. If why wraps [errors.ErrUnsupported],
	// safetensors cannot represent the tensor, such as one of complex128; if Skip is nil, that is an
	// error. Otherwise the entry is a Python object, such as the step. The objects of a .metadata are
	// not read, and may contain tensors. One Open makes no concurrent calls.
	Skip func(name string, why error)
}

// Open opens the checkpoint in a directory. If the directory has a .metadata, or the files __0.metadata,
// __1.metadata and so on that ranks save with use_collectives=False, the result has the tensors in the
// .distcp files, and Python objects are left out. Otherwise it has the tensors of
// all *.safetensors files, as in PyTorch's HuggingFaceStorageReader. If there are none, it has the
// tensors of the files that ranks saved with torch.save, and Python objects are left out. Every
// tensor of the result is whole, joined from its pieces. Open reads the headers or the .metadata,
// but no data; Close closes the files. If PyTorch saved with enable_consolidation, open the
// subdirectory sharded.
//
// A safetensors file without sharding information holds whole tensors. The metadata is that of the
// first file by name, without the keys of DCP. The header and the order of the tensors are those
// that [safetensors.Write] would give a file of these tensors.
//
// Errors are those of [safetensors.Open], with the name of the file. The error is a
// *[safetensors.FormatError] that names tensor, piece and file if pieces overlap, leave a hole or
// differ in dtype or rank, or if sharding information or a .metadata breaks a rule. If the
// directory has no such file, the error wraps [fs.ErrNotExist].
func Open(dir string) (*safetensors.File, error) { return Opener{}.Open(dir) }

// OpenFS opens the checkpoint in a directory of a file system, such as [os.DirFS] or an
// [archive/zip.Reader], by the rules of Open. dir is slash-separated; "." is the root. The files
// are read as by [safetensors.OpenFS], but .distcp files must implement io.ReaderAt.
func OpenFS(fsys fs.FS, dir string) (*safetensors.File, error) { return Opener{}.OpenFS(fsys, dir) }

// Open is like the func Open, but uses the settings of o.
func (o Opener) Open(dir string) (*safetensors.File, error) {
	return prefix.Added(o.open(osfile.OS, dir, safetensors.Open))
}

// OpenFS is like the func OpenFS, but uses the settings of o.
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
	var all, names, others []string
	for _, e := range entries {
		all = append(all, e.Name())
		switch {
		case e.IsDir():
		case strings.HasSuffix(e.Name(), suffix):
			names = append(names, e.Name())
		default:
			others = append(others, e.Name())
		}
	}
	ranks, several := variant.RankFiles(others)
	metas, twoSaves := variant.Metadata(all)
	switch {
	case err != nil:
	case twoSaves != nil:
		err = broken("", "%v", twoSaves)
	case len(metas) > 0:
		f, err = openChunks(in, dir, metas, o.Skip)
	case len(names) == 0 && errors.As(several, new(*variant.NumberedError)):
		err = prefix.Absent{Err: several}
	case len(names) == 0 && several != nil:
		err = broken("", "%v", several)
	case len(names) == 0 && len(ranks) > 0:
		f, err = openRanks(in, dir, ranks, o.Key, o.Skip)
	case len(names) == 0 && slices.ContainsFunc(others, func(name string) bool { return strings.HasSuffix(name, ".distcp") }):
		err = prefix.Absent{Err: fmt.Errorf("it has .distcp files, but no %s, which describes them and is saved last", metadataFile)}
	case len(names) == 0:
		err = prefix.Absent{Err: fmt.Errorf("no *%s file and no %s in it, and no files of torch.save by ranks", suffix, metadataFile)}
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
		if joined == nil { // true even if open has panicked
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
