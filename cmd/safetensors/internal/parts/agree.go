package parts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// agree stores the plan in a folder without one, or compares it with the plan that is stored there.
// After it has returned nil, the folder's plan is the plan of j.
func (j *Job) agree() error {
	const tries = 10 // other parts may replace the plan in the meantime
	for range tries {
		files, err := j.To.Files("", false)
		if err != nil {
			return err
		}
		there, err := j.read(PlanName)
		if errors.Is(err, fs.ErrNotExist) {
			there, err = j.create(files)
		}
		if err != nil {
			return err
		}
		stale, differs := j.compare(there)
		if differs == nil {
			j.Plan.Stale = stale
			return j.checkLast(files)
		}
		stale, others, err := j.leftovers(files, there)
		switch {
		case !j.Force && err != nil:
			return Refuse(fmt.Errorf("%s holds the plan of another job: %w; it also holds a checkpoint, which --force does not replace: name another DST", j.Name, differs))
		case !j.Force:
			return Refuse(fmt.Errorf("%s holds the plan of another job: %w; --force replaces it", j.Name, differs))
		case err != nil:
			return err
		}
		if err := j.replace(there, stale, others); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: other jobs replace the plan all the time", j.Name)
}

func (j *Job) read(name string) ([]byte, error) { return j.To.Read(name, dest.MostSmall) }

// create stores the plan in a folder that has no plan. It is an error if the folder holds a
// checkpoint, or another file that must stay. If another part has stored a plan in the meantime, create returns that plan.
func (j *Job) create(files map[string]dest.Stored) ([]byte, error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if inTheWay(name, j.last()) {
			return nil, j.occupied(name)
		}
	}
	if j.Vacant != nil {
		if err := j.Vacant(files); err != nil {
			return nil, err
		}
	}
	if err := j.Free(); err != nil {
		return nil, err
	}
	text := j.Plan.encode()
	for range 2 { // a store that ignores conditions would succeed a second time
		switch err := j.To.Create(PlanName, text); {
		case errors.Is(err, fs.ErrExist):
			return j.read(PlanName)
		case errors.Is(err, errors.ErrUnsupported):
			return nil, Refuse(err)
		case err != nil:
			return nil, err
		}
	}
	j.To.Remove(PlanName)
	return nil, Refuse(fmt.Errorf("%s: the store has replaced a file that it should only have created, and parts rely on that", j.Name))
}

// inTheWay reports whether a file in a folder belongs to a checkpoint that cannot stay beside the checkpoints of some jobs. Only
// another variant of the same model can. own has one file of the checkpoint of each job.
func inTheWay(name string, own ...string) bool {
	return dest.IsCheckpoint(name) && slices.ContainsFunc(own, func(file string) bool { return !dest.OtherVariant(name, file) })
}

// last returns the name of the file that completes the checkpoint.
func (j *Job) last() string {
	if j.Index != "" {
		return j.Index
	}
	return j.Plan.Shards[0].Name
}

// occupied returns the error for a folder that holds a checkpoint, to which the file with this name
// belongs.
func (j *Job) occupied(name string) error {
	return Refuse(fmt.Errorf("%s holds a checkpoint: %s; name another DST", j.Name, name))
}

// compare compares the plan with a stored plan, whose JSON is text. It returns the stale shards of
// the stored plan, and an error with the differences.
func (j *Job) compare(text []byte) (stale map[string]string, err error) {
	stored, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", PlanName, err)
	}
	return stored.Stale, j.Plan.differences(stored)
}

// checkLast returns an error if the folder holds a checkpoint other than that of the plan.
func (j *Job) checkLast(files map[string]dest.Stored) (err error) {
	last := j.last()
	other := dest.OtherKind(last) // last file of a checkpoint of the other kind
	if _, found := files[other]; found {
		return j.occupied(other)
	}
	if _, found := files[last]; !found {
		return nil
	}
	same := false
	if j.Index == "" {
		same, err = j.check(j.Plan.Shards[0], files)
	} else {
		var there []byte
		there, err = j.read(last)
		same = bytes.Equal(there, j.index)
	}
	if err == nil && !same {
		err = j.occupied(last)
	}
	return err
}

// leftovers returns the shards of another job, whose plan is there, in the folder: as stale, with
// their versions, those with the name of a shard of this job, and as others the names of the rest. It
// is an error if that job has completed its checkpoint, or the folder holds another one. Checkpoints of variants that neither
// job writes are ignored.
func (j *Job) leftovers(files map[string]dest.Stored, there []byte) (stale map[string]string, others []string, err error) {
	known, own := make(map[string]bool), []string{j.last()}
	if old, err := decode(there); err == nil {
		for _, s := range old.Shards {
			known[s.Name] = true
		}
		for _, s := range old.Shards[:min(len(old.Shards), 1)] { // all are of the same variant
			own = append(own, s.Name)
		}
	}
	stale = make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_, isShard := variant.ParseShard(name)
		switch {
		case !inTheWay(name, own...):
		case !isShard, !known[name]: // a single file, an index, or a file of another program
			return nil, nil, j.occupied(name)
		case j.Shards[name] != nil:
			stale[name] = files[name].Version
		default:
			others = append(others, name)
		}
	}
	return stale, others, nil
}

// replace replaces the plan of another job, which is there. It removes the shards in others while
// that plan still names them. The shards in stale, whose names shards of this job also have, are not
// removed: another part that replaces the same plan may have done so before, and may already have
// written the new shard. Such a part may store the plan once more, with the same effect, because its
// list of files is older than the first new shard.
func (j *Job) replace(there []byte, stale map[string]string, others []string) error {
	switch now, err := j.read(PlanName); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil || !bytes.Equal(now, there):
		return nil // the files may belong to the plan that is there now
	}
	for _, name := range others {
		if err := j.To.Remove(name); err != nil {
			return err
		}
	}
	j.Plan.Stale = stale
	return j.To.Put(PlanName, j.Plan.encode())
}
