// Package rankfile connects package torch, which reads the files of torch.save, with package dcp,
// which joins the files that the ranks of a job have saved. Programs outside this module cannot
// import it.
package rankfile

import (
	"io"
	"math"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
)

// A File is the model in the file of one rank. Its maps and slices must not be modified.
type File struct {
	Entries  []Entry           // sorted by name
	Metadata map[string]string // entries that are not tensors, as text
	Skipped  map[string]error  // entries that cannot be read, by name, with the reasons
	Inner    string            // key of a dict in the model that is probably the model itself, or ""

	// Tensor converts a value of the pickle to a tensor, which reads the file on demand.
	Tensor func(v any) (safetensors.Tensor, error)
}

// An Entry is a tensor of the model, or one rank's part of a tensor.
type Entry struct {
	Name  string
	Part  *pickle.Object // a DTensor or a ShardedTensor; nil for a plain tensor
	Plain any            // the argument for File.Tensor; nil for a part
	Why   error          // the error of an entry that is neither; otherwise nil
}

// Open opens the file of a rank, and takes the dict that key selects, as torch.Opener does. Package
// torch sets this variable when it is initialized.
var Open func(r io.ReaderAt, size int64, key string) (*File, error)

// Most returns the largest number of bytes that all tensors in files of torch.save may have, where
// size is the size of these files together. It is 1,024 times the size, the most that deflate can
// expand, or 1 GiB if that is more. There has to be a limit because strides of 0 let a file of a
// few kilobytes describe terabytes.
func Most(size int64) int64 {
	const (
		expansion = 1 << 10
		always    = 1 << 30
	)
	return max(always, min(size, math.MaxInt64/expansion)*expansion)
}

// IsPart reports whether v is one rank's part of a tensor, and returns the name of its class in
// PyTorch.
func IsPart(v any) (class string, ok bool) {
	o, ok := v.(*pickle.Object)
	if !ok || o.Class != (pickle.Global{Module: "torch._tensor", Name: "_rebuild_from_type_v2"}) || len(o.Args) < 4 {
		return "", false
	}
	g, ok := o.Args[1].(pickle.Global)
	const own = "torch.distributed."
	ok = ok && len(g.Module) > len(own) && g.Module[:len(own)] == own && (g.Name == "DTensor" || g.Name == "ShardedTensor")
	return g.Name, ok
}
