package parts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// check reports whether a shard is there: its length and its header are those of the
// plan.
func (r *run) check(s Shard, files map[string]dest.Stored) (bool, error) {
	if !r.Plan.complete(s, files) {
		return false, nil
	}
	start, err := r.To.Read(s.Name, int64(s.start))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && sum(start) == s.Header, err
}

// write writes the shards of the part that are not there.
func (r *run) write() (*Result, error) {
	files, err := r.To.Files("", false)
	if err != nil {
		return nil, err
	}
	result := new(Result)
	size := int64(0)
	for i, s := range r.Plan.Shards {
		if !r.Part.Has(i) {
			continue
		}
		found, err := r.check(s, files)
		switch {
		case err != nil:
			return nil, err
		case found:
			result.Found = append(result.Found, s)
		default:
			result.Written = append(result.Written, s)
			size += s.Size
		}
		r.sound[s.Name] = true // or there will be an error
	}
	r.Begin(size)
	return result, parallel.Do(min(r.AtOnce, r.To.AtOnce()), int64(len(result.Written)), func(i int64) error { return r.writeShard(result.Written[i]) })
}

// writeShard writes a shard, and just before the only one appears, the files next to it. If
// that fails, another run of the part may have done it, and have swept the temporary files of
// this one.
func (r *run) writeShard(s Shard) error {
	err := r.To.WriteShard(s.Name, dest.Shard{Tensors: r.Shards[s.Name]}, r.Metadata, func() error {
		err := r.stillPlanned()
		if err == nil && r.index == nil {
			err = r.CopyFiles()
		}
		return err
	})
	if err == nil || errors.Is(err, ErrRefused) || errors.Is(err, errReplaced) {
		return err
	}
	if files, listErr := r.To.Files("", false); listErr == nil {
		if found, checkErr := r.check(s, files); checkErr == nil && found {
			return nil
		}
	}
	return err
}

// errReplaced is the error of a part that knows less of stale shards than the plan.
var errReplaced = errors.New("another job has replaced the plan, and this one has replaced that")

// stillPlanned checks that the plan is still there, and the source what it was: before a
// shard appears, which may be hours after the part began.
func (r *run) stillPlanned() error {
	if err := r.Unchanged(); err != nil {
		return err
	}
	there, err := r.read(PlanName)
	if errors.Is(err, fs.ErrNotExist) {
		return Refuse(fmt.Errorf("%s: the plan was removed", r.Name))
	}
	if err != nil {
		return err
	}
	stored, err := decode(there)
	if err == nil {
		err = r.Plan.differences(stored)
	}
	if err != nil {
		return Refuse(fmt.Errorf("%s: another job has replaced the plan: %w", r.Name, err))
	}
	if !maps.Equal(r.Plan.Stale, stored.Stale) {
		return fmt.Errorf("%s: %w", r.Name, errReplaced)
	}
	return nil
}

// finish makes the folder a checkpoint if all its shards are there. Of parts that end at
// the same time, each has written its shards before, so that the last one sees them all.
func (r *run) finish() (complete bool, err error) {
	files, err := r.To.Files("", true)
	if err != nil {
		return false, err
	}
	for _, s := range r.Plan.Shards {
		if !r.Plan.complete(s, files) {
			return false, nil
		}
	}
	if _, found := files[format.IndexFile]; found && r.index != nil {
		complete, err = true, r.checkLast(files)
	} else if complete, err = r.checkAll(files); complete && r.index != nil {
		err = r.commit()
	}
	if err != nil || !complete {
		return false, err
	}
	r.To.Sweep()
	return true, nil
}

// checkAll checks all shards that this run has not seen.
func (r *run) checkAll(files map[string]dest.Stored) (bool, error) {
	all := make([]bool, len(r.Plan.Shards))
	err := parallel.Do(8, int64(len(all)), func(i int64) (err error) {
		s := r.Plan.Shards[i]
		if all[i] = r.sound[s.Name]; !all[i] {
			all[i], err = r.check(s, files)
		}
		return err
	})
	return err == nil && !slices.Contains(all, false), err
}

// commit writes what comes after the shards: the index last. If that fails, another part
// may have done it.
func (r *run) commit() error {
	err := r.stillPlanned()
	if err == nil {
		err = r.CopyFiles()
	}
	var there []byte
	if err == nil {
		there, err = r.To.Create(format.IndexFile, r.index)
	}
	if err != nil && !errors.Is(err, ErrRefused) {
		if now, readErr := r.read(format.IndexFile); readErr == nil {
			there, err = now, nil
		}
	}
	if err == nil && there != nil && !bytes.Equal(there, r.index) {
		err = r.occupied(format.IndexFile)
	}
	return err
}
