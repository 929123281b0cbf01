package dest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// maxRanks is the largest number of ranks. No job has had as many.
const maxRanks = 1 << 20

// ParseRanks returns the destination of a distributed checkpoint for n ranks: a folder with one
// file for each rank, in the form of package dcp.
func ParseRanks(name string, n int) (Destination, error) {
	name, err := localfile.Path(name)
	switch {
	case err != nil:
		return nil, usage("%v", err)
	case n < 1 || n > maxRanks:
		return nil, usage("--ranks %d is not from 1 to %d", n, maxRanks)
	case name == "" || name == "-" || strings.Contains(name, "://") || formatOf(name) != nil:
		return nil, usage("the files of ranks go into a local folder")
	}
	if name = filepath.Clean(name); filepath.Base(name) == "." || filepath.Base(name) == ".." { // Write could not replace it
		return nil, usage("the files of ranks go into a folder with a name, not %s", name)
	}
	return ranks{folder{name: name}, name, n}, nil
}

// A ranks is a folder with a distributed checkpoint. It is not a Shared, because its files are written
// by Write only.
type ranks struct {
	Dir
	name string
	n    int
}

// Free returns an error unless the folder is absent or empty, because readers of a distributed checkpoint
// take all files in its folder for parts of it.
func (r ranks) Free() error {
	entries, err := os.ReadDir(r.name)
	if err = ignoreAbsent(err); err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty, and the files of ranks need a folder of their own: write to another folder", term.Name(r.name))
	}
	return err
}

// Lock locks nothing, because Write writes to another folder, and renames it to this one only if
// this one is absent or empty. A folder in the cache of a hub is an error.
func (r ranks) Lock(bool) (unlock func(), err error) { return func() {}, checkCache(r.name) }

// Write writes to another folder, and renames it to this one when it is complete. It returns the error of
// Free, if there is one.
func (r ranks) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) (err error) {
	if err := r.Free(); err != nil {
		return err
	}
	above, err := osfile.CreateFolders(filepath.Dir(r.name))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			osfile.RemoveFolders(above)
		}
	}()
	temp := osfile.TempName(filepath.Dir(r.name), "")
	if err := os.Mkdir(temp, 0o777); err != nil {
		return named(r.name, err, temp)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(temp)
		}
	}()
	for rank := range r.n {
		pieces, err := piecesOf(tensors, rank, r.n)
		if err != nil {
			return err
		}
		file := dcp.FileName(rank)
		if err := dcp.WriteFile(filepath.Join(temp, file), pieces, metadata); err != nil {
			return named(filepath.Join(r.name, file), term.Bare(err), filepath.Join(temp, file))
		}
	}
	if last != nil {
		if err := last(); err != nil {
			return err
		}
	}
	if err := ignoreAbsent(os.Remove(r.name)); err != nil {
		return err
	}
	return rename(temp, r.name)
}

// piecesOf returns the rows of each tensor that belong to a rank, as the placement Shard(0) divides
// them. Tensors without dimensions belong to rank 0.
func piecesOf(tensors map[string]safetensors.Tensor, rank, n int) (map[string]dcp.Piece, error) {
	pieces := make(map[string]dcp.Piece, len(tensors))
	for name, t := range tensors {
		scalar := len(t.Shape()) == 0
		if scalar && rank > 0 {
			continue
		}
		piece, err := dcp.NewPiece(t)
		if err == nil && !scalar {
			piece, err = piece.Shard(0, rank, n)
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, term.Bare(err))
		}
		pieces[name] = piece
	}
	return pieces, nil
}
