package parts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
)

// agree stores the plan, or compares it with the one that is there. It ends with the plan
// of the folder being that of this part.
func (j *Job) agree() error {
	const tries = 10 // others may replace the plan meanwhile
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
		if !j.Force {
			return Refuse(fmt.Errorf("%s holds the plan of another job: %w; --force takes it away", j.Name, differs))
		}
		if err := j.replace(files, there); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: other jobs replace the plan all the time", j.Name)
}

func (j *Job) read(name string) ([]byte, error) { return j.To.Read(name, dest.MostSmall) }

// create stores the plan in a folder that has none, unless that holds a checkpoint. It
// returns the plan that another part has stored meanwhile.
func (j *Job) create(files map[string]dest.Stored) ([]byte, error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if dest.IsCheckpoint(name) {
			return nil, j.occupied(name)
		}
	}
	text := j.Plan.encode()
	for range 2 { // a store that knows no conditions creates it a second time
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
	return nil, Refuse(fmt.Errorf("%s: the store replaces a file that was to be created only if there is none, which parts rely on", j.Name))
}

func (j *Job) occupied(name string) error {
	return Refuse(fmt.Errorf("%s holds a checkpoint: %s", j.Name, name))
}

// compare compares the plan with a stored one, and returns what is stale by that.
func (j *Job) compare(text []byte) (stale map[string]string, err error) {
	stored, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", PlanName, err)
	}
	return stored.Stale, j.Plan.differences(stored)
}

// checkLast checks that the folder is not a checkpoint, or that of the plan.
func (j *Job) checkLast(files map[string]dest.Stored) (err error) {
	last, other := j.Index, strings.TrimSuffix(j.Index, ".index.json") // of the plan, and of another
	if j.Index == "" {
		last = j.Plan.Shards[0].Name
		other = last + ".index.json"
	}
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

// replace replaces the plan of another job. It fails if that job has come to its end. Its
// shards are removed as long as their plan is there to name them, but become stale if this job
// has the same names: another part that replaces the same plan may have done so before, and
// written new ones. It may also store the plan once more, which makes no difference: its list
// of files is older than the first.
func (j *Job) replace(files map[string]dest.Stored, there []byte) error {
	known, stale := make(map[string]bool), make(map[string]string)
	if old, err := decode(there); err == nil {
		for _, s := range old.Shards {
			known[s.Name] = true
		}
	}
	var others []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch {
		case !dest.IsCheckpoint(name):
		case !strings.Contains(name, "-of-"), !known[name], !strings.HasSuffix(name, ".safetensors"): // it is a whole checkpoint, an index, or another's
			return j.occupied(name)
		case j.Shards[name] != nil:
			stale[name] = files[name].Version
		default:
			others = append(others, name)
		}
	}
	switch now, err := j.read(PlanName); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil || !bytes.Equal(now, there):
		return nil // files may be those of the plan that is there now
	}
	for _, name := range others {
		if err := j.To.Remove(name); err != nil {
			return err
		}
	}
	j.Plan.Stale = stale
	return j.To.Put(PlanName, j.Plan.encode())
}
