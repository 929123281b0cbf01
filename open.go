package safetensors

import (
	"io/fs"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// Open opens a checkpoint for lazy reading: a .safetensors file, an index of shards, or a
// directory, which is searched in this order: model.safetensors; its index; the only other index;
// the only other file; a complete set x-00001-of-0000N.safetensors without other files. A variant
// such as x.fp16.safetensors is ignored if x.safetensors exists.
//
// Open maps the file; where that is impossible, tensors are read on demand. Each file takes a
// descriptor until Close. Do not write to an open file or truncate it; replacing it, as WriteFile
// does, is safe except on Windows.
//
// Errors of the system are wrapped and name the file. The error for a URL names the package that opens
// it. A file that breaks a rule of the format is a *[FormatError].
func Open(name string) (*File, error) {
	return prefix.Added(openCheckpoint(mapped, name))
}

// Load reads a checkpoint, named as for Open, into memory. Nothing stays open, and
// views stay valid after Close.
func Load(name string) (*File, error) {
	return prefix.Added(openCheckpoint(loaded, name))
}

// OpenFS opens a checkpoint, named as for Open, in a file system; "." is its root. A file that is
// an [io.ReaderAt] is read on demand; any other file, such as one in a zip archive, is read into
// memory at once. Errors are those of Open.
func OpenFS(fsys fs.FS, name string) (*File, error) {
	tree, err := osfile.TreeOf(fsys, name)
	if err != nil {
		return nil, prefixed(err)
	}
	return prefix.Added(openCheckpoint(folderOf(tree), name))
}
