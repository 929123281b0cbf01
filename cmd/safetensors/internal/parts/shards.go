package parts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"golang.org/x/sync/errgroup"
)

// check reports whether a shard is complete: its length and its header are those in the plan.
func (j *Job) check(s Shard, files map[string]dest.Stored) (bool, error) {
	if !j.Plan.complete(s, files) {
		return false, nil
	}
	start, err := j.To.Read(s.Name, s.Size-numbers.Bytes(j.Shards[s.Name])) // the header
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && sum(start) == s.Header, err
}

// write writes those shards of the part that are not complete.
func (j *Job) write() (*Result, error) {
	files, err := j.To.Files("", false)
	if err != nil {
		return nil, err
	}
	result := &Result{Written: []string{}, Found: []string{}}
	var todo []Shard
	size := int64(0)
	for i, s := range j.Plan.Shards {
		if !j.Part.Has(i) {
			continue
		}
		found, err := j.check(s, files)
		switch {
		case err != nil:
			return nil, err
		case found:
			result.Found = append(result.Found, s.Name)
		default:
			result.Written = append(result.Written, s.Name)
			todo = append(todo, s)
			size += s.Size
		}
	}
	j.Begin(size)
	var group errgroup.Group // writes the other shards even after an error of one
	group.SetLimit(min(j.AtOnce, j.To.AtOnce()))
	for _, s := range todo {
		group.Go(func() error { return j.writeShard(s) })
	}
	return result, group.Wait()
}

// writeShard writes a shard. If it is the only shard, it also writes the files next to the weights,
// just before the shard appears. If that fails, another run of the part may have written the shard,
// and removed the temporary files of this run.
func (j *Job) writeShard(s Shard) error {
	err := j.To.WriteShard(s.Name, dest.Shard{Tensors: j.Shards[s.Name]}, j.Metadata, func() error {
		err := j.stillPlanned()
		if err == nil && j.Index == "" {
			err = j.copyFiles()
		}
		return err
	})
	if err == nil || errors.As(err, new(Refusal)) || errors.Is(err, errReplaced) {
		return err
	}
	if files, listErr := j.To.Files("", false); listErr == nil {
		if found, checkErr := j.check(s, files); checkErr == nil && found {
			return nil
		}
	}
	return err
}

// copyFiles writes the files next to the weights.
func (j *Job) copyFiles() error {
	if err := j.Free(); err != nil {
		return err
	}
	return j.CopyFiles()
}

// errReplaced is the error of a part whose list of stale shards is older than that in the folder.
var errReplaced = errors.New("another job has replaced the plan, and this one has replaced that")

// stillPlanned checks that the plan is still stored, and that the source is unchanged. It is called
// before a shard appears, which may be hours after the part began.
func (j *Job) stillPlanned() error {
	if err := j.Unchanged(); err != nil {
		return err
	}
	there, err := j.read(PlanName)
	if errors.Is(err, fs.ErrNotExist) {
		return Refuse(fmt.Errorf("%s: the plan was removed", j.Name))
	}
	if err != nil {
		return err
	}
	stale, err := j.compare(there)
	if err != nil {
		return Refuse(fmt.Errorf("%s: another job has replaced the plan: %w", j.Name, err))
	}
	if !maps.Equal(j.Plan.Stale, stale) {
		return fmt.Errorf("%s: %w", j.Name, errReplaced)
	}
	return nil
}

// finish completes the checkpoint if all its shards are complete. If several parts end at the same
// time, each has written its shards before it calls finish, so that the last part sees all shards.
func (j *Job) finish() (complete bool, err error) {
	files, err := j.To.Files("", true)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(j.Plan.Shards, func(s Shard) bool { return !j.Plan.complete(s, files) }) {
		return false, nil
	}
	if _, found := files[j.Index]; found && j.Index != "" {
		complete, err = true, j.checkLast(files)
	} else if complete, err = j.checkAll(files); complete && j.Index != "" {
		err = j.commit()
	}
	return err == nil && complete, err
}

// checkAll checks all shards, even those that this run has written or found.
func (j *Job) checkAll(files map[string]dest.Stored) (bool, error) {
	all := make([]bool, len(j.Plan.Shards))
	err := parallel.Do(8, int64(len(all)), func(i int64) (err error) {
		all[i], err = j.check(j.Plan.Shards[i], files)
		return err
	})
	return err == nil && !slices.Contains(all, false), err
}

// commit writes the files that come after the shards: those next to the weights, and the index last.
// An error that is not a Refusal is ignored if the same index is there, because then another part has
// completed the checkpoint.
func (j *Job) commit() error {
	err := j.stillPlanned()
	if err == nil {
		err = j.copyFiles()
	}
	if err == nil {
		err = j.To.Create(j.Index, j.index)
	}
	if err == nil || errors.As(err, new(Refusal)) {
		return err
	}
	switch there, readErr := j.read(j.Index); {
	case readErr != nil:
		return err
	case !bytes.Equal(there, j.index):
		return j.occupied(j.Index)
	}
	return nil
}
