package dcp

import (
	"fmt"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/rankfile"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// openRanks opens the files of ranks in a directory. key selects the dict to take from each.
func openRanks(in osfile.Tree, dir string, names []variant.Rank, key string, skip func(name string, why error)) (whole *safetensors.File, err error) {
	if err := checkCount(len(names)); err != nil {
		return nil, err
	}
	f := &files{in: in, byName: make(map[string]*file)}
	defer func() {
		if whole == nil { // tested instead of err, which is nil if the fs.FS has panicked
			f.close()
		}
	}()
	j := &rankJob{
		key:     key,
		meshes:  meshes{known: make(map[string]*mesh)},
		tensors: make(map[string]*divided),
		skipped: make(map[string]error),
		pieces:  maxPieces,
	}
	opened := make([]*file, len(names))
	for i, name := range names {
		j.ranks = append(j.ranks, rank{name, -1})
		opened[i] = f.add(in.Join(dir, name.File))
	}
	if err := j.checkNames(); err != nil {
		return nil, err
	}
	if err := openAll(opened); err != nil {
		return nil, err
	}
	var size int64
	for _, file := range opened {
		size += file.info.Size()
	}
	j.bytes = rankfile.Most(size)
	for i, file := range opened { // reads one file after another, because each may take half a gigabyte
		if err := j.read(i, file); err != nil {
			return nil, fmt.Errorf("%s: %w", quote(names[i].File), j.advise(prefix.Strip(err)))
		}
	}
	if err := j.check(); err != nil {
		return nil, j.advise(err)
	}
	tensors, err := j.join(skip)
	if err != nil {
		return nil, j.advise(err)
	}
	if whole, err = safetensors.FileOf(tensors, j.metadata, f.close); err != nil { // a name is not valid in safetensors
		return nil, broken("", "%v", prefix.Strip(err))
	}
	return whole, nil
}
