package dcp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// A rankJob collects the contents of the files that the ranks of a job saved with torch.save. Each
// file holds a state dict. A tensor in it is either a DTensor or a ShardedTensor of PyTorch, with
// the part that belongs to the rank, or a plain tensor, which must be equal in all files.
type rankJob struct {
	meshes
	key     string // selects the dict to take from each file; "" selects the usual one
	inner   string // see rankfile.File
	ranks   []rank
	tensors map[string]*divided
	world   int // number of ranks, from names of files or process groups; 0 if unknown

	metadata map[string]string // entries without tensors that are equal in all files
	skipped  map[string]error  // entries that are left out, and the reasons

	pieces int   // number of pieces that further tensors may have
	bytes  int64 // number of bytes that further pieces may have
}

// maxPieces limits the number of parts of all tensors in all files, so that they take at most half
// a gigabyte of memory. A part with many dimensions counts several times.
const maxPieces = 1 << 19

// A rank describes the file of one rank.
type rank struct {
	variant.Rank
	own int // number of the rank according to the contents of the file; -1 if the contents do not include it
}

func (r rank) String() string {
	return fmt.Sprintf("rank %d (%s)", r.number(), quote(r.File))
}

// number returns the number of the rank according to the contents of the file, or else according to
// its name.
func (r rank) number() int {
	if r.own >= 0 {
		return r.own
	}
	return r.Number
}

// A divided collects the parts of one tensor from the files of all ranks.
type divided struct {
	name string
	share
	why      error     // reason why safetensors cannot represent the tensor; nil if it can
	holdings []holding // parts of the tensor by file, in the order of the files
}

// A holding is the part of a tensor that one file has.
type holding struct {
	rank   int // index in rankJob.ranks
	mesh   *mesh
	pieces []localPiece
}

// missing returns the error for a rank that has no file.
func (j *rankJob) missing(rank int) error {
	if rank >= j.world {
		return broken("", "there is a file of rank %d, but the job had %s", rank, shapetext.Count(j.world, "rank"))
	}
	return j.missingOf(rank, j.world)
}

// missingOf returns the error for one of a number of ranks that has no file.
func (j *rankJob) missingOf(rank, ranks int) error {
	return broken("", "the file of rank %d is missing: there are files of %d of the %d ranks", rank, len(j.ranks), ranks)
}

// advise adds advice to an error about an entry beside the dict that is probably the model: a key selects
// that dict alone. It returns any other error unchanged.
func (j *rankJob) advise(err error) error {
	var about *safetensors.FormatError
	if j.inner == "" || !errors.As(err, &about) || about.Tensor == "" || strings.HasPrefix(about.Tensor, j.inner+".") {
		return err
	}
	return broken(about.Tensor, "%s; %s%q", about.Reason, variant.KeySelects, j.inner)
}
