package parts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"golang.org/x/sync/errgroup"
)

// ErrRefused is wrapped by the errors that another try does not help against: the folder
// is somebody else's, or the store cannot do what parts need.
var ErrRefused = errors.New("refused")

// A refusal is an ErrRefused with a text of its own.
type refusal struct{ error }

func (r refusal) Unwrap() []error { return []error{r.error, ErrRefused} }

// Refuse makes an error an ErrRefused.
func Refuse(err error) error {
	if err == nil || errors.Is(err, ErrRefused) {
		return err
	}
	return refusal{err}
}

// A Job is a checkpoint to be written in parts.
type Job struct {
	To       dest.Shared
	Name     string // of To, for messages
	Part     Part
	Plan     Plan // without Form and Shards
	Shards   map[string]map[string]safetensors.Tensor
	Metadata map[string]string
	AtOnce   int  // shards to be written concurrently, at most
	Force    bool // another plan is replaced, unless it has come to its end

	// Unchanged returns an error if the source is no longer what Plan says.
	Unchanged func() error

	// Beside writes the files next to the weights, before the last file of these.
	Beside func() error

	// Begin is told the bytes of the shards that are to be written.
	Begin func(size int64)
}

// A Result is what a part did.
type Result struct {
	Written  []Shard // by this run
	Found    []Shard // of this part, written by an earlier one
	Complete bool    // the whole checkpoint is
}

// A run is a Job that is being done.
type run struct {
	*Job
	headers map[string]*safetensors.Header
	index   []byte // nil if there is one shard
	sound   map[string]bool
}

// The names of what makes a folder a checkpoint, when all else is there.
const (
	modelFile = format.ModelFile
	indexFile = format.IndexFile
)

// Do does a part. Killed at any point, it can be done again; it can be done several times
// at once, and after the end.
func (j *Job) Do() (*Result, error) {
	r := &run{Job: j, headers: make(map[string]*safetensors.Header), sound: make(map[string]bool)}
	if err := r.plan(); err != nil {
		return nil, Refuse(err)
	}
	if err := r.agree(); err != nil {
		return nil, err
	}
	result, err := r.write()
	if err != nil {
		return nil, err
	}
	result.Complete, err = r.finish()
	return result, err
}

// plan completes the plan.
func (r *run) plan() (err error) {
	r.Plan.Form = planVersion
	for _, name := range slices.Sorted(maps.Keys(r.Shards)) {
		s, h, err := shardOf(name, r.Shards[name], r.Metadata)
		if err != nil {
			return err
		}
		r.Plan.Shards = append(r.Plan.Shards, s)
		r.headers[name] = h
	}
	if len(r.Plan.Shards) > 1 {
		r.index, err = safetensors.BuildIndex(iter.Seq2[string, *safetensors.Header](func(yield func(string, *safetensors.Header) bool) {
			for name, h := range r.headers {
				if !yield(name, h) {
					return
				}
			}
		}))
	}
	return err
}

// last is the name of the file that makes the folder a checkpoint.
func (r *run) last() string {
	if r.index == nil {
		return modelFile
	}
	return indexFile
}

// agree stores the plan, or compares it with the one that is there. It ends with the plan
// of the folder being that of this part.
func (r *run) agree() error {
	const tries = 10 // others may replace the plan meanwhile
	for range tries {
		files, err := r.To.Files(false)
		if err != nil {
			return err
		}
		there, err := r.read(PlanName)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			there, err = r.create(files)
		case err != nil:
			return err
		}
		if err != nil || there == nil {
			return err
		}
		differs := r.adopt(there)
		if differs == nil {
			return r.checkLast(files)
		}
		if !r.Force {
			return Refuse(fmt.Errorf("%s holds the plan of another job: %w; --force takes it away", r.Name, differs))
		}
		if err := r.replace(files, there); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: other jobs replace the plan all the time", r.Name)
}

// read reads a small file.
func (r *run) read(name string) ([]byte, error) {
	const most = 64 << 20
	return r.To.Read(name, most)
}

// create stores the plan in a folder that has none, unless that holds a checkpoint. It
// returns the plan that another part has stored meanwhile.
func (r *run) create(files map[string]dest.Stored) (there []byte, err error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if dest.IsCheckpoint(name) {
			return nil, r.occupied(name)
		}
	}
	text, err := r.Plan.encode()
	if err != nil {
		return nil, err
	}
	if there, err = r.To.Create(PlanName, text); there != nil || err != nil {
		return there, unsupported(err)
	}
	// A store that knows no conditions creates it a second time.
	if there, err = r.To.Create(PlanName, text); err == nil && there == nil {
		r.To.Remove(PlanName)
		return nil, Refuse(fmt.Errorf("%s: the store replaces a file that was to be created only if there is none, which parts rely on", r.Name))
	}
	return there, unsupported(err)
}

func unsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return Refuse(err)
	}
	return err
}

func (r *run) occupied(name string) error {
	return Refuse(fmt.Errorf("%s holds a checkpoint: %s", r.Name, name))
}

// adopt compares the plan with a stored one, and adopts what is stale.
func (r *run) adopt(text []byte) error {
	stored, err := decode(text)
	if err != nil {
		return fmt.Errorf("%s %w", PlanName, err)
	}
	if err := r.Plan.differences(stored); err != nil {
		return err
	}
	r.Plan.Stale = stored.Stale
	return nil
}

// checkLast checks that the folder is not a checkpoint, or that of the plan.
func (r *run) checkLast(files map[string]dest.Stored) error {
	for _, name := range []string{modelFile, indexFile} {
		if _, found := files[name]; !found {
			continue
		}
		same := false
		var err error
		switch {
		case name != r.last():
		case r.index == nil:
			same, err = r.check(r.Plan.Shards[0], files)
		default:
			var there []byte
			there, err = r.read(name)
			same = bytes.Equal(there, r.index)
		}
		if err != nil {
			return err
		}
		if !same {
			return r.occupied(name)
		}
	}
	return nil
}

// replace replaces the plan of another job, whose shards become stale. It fails if that
// job has come to its end. The shards are not removed: another part that replaces the
// same plan may have done so before, and written new ones. It may also store the plan
// once more, which makes no difference: its list of files is older than the first.
func (r *run) replace(files map[string]dest.Stored, there []byte) error {
	var old Plan
	if stored, err := decode(there); err == nil {
		old = *stored
	}
	known, names := old.names(), r.Plan.names()
	stale := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch {
		case !dest.IsCheckpoint(name):
		case name == modelFile, !known[name]: // such as an index
			return r.occupied(name)
		case names[name]:
			stale[name] = files[name].Version
		}
	}
	if now, err := r.read(PlanName); err != nil || !bytes.Equal(now, there) {
		return ignoreAbsent(err) // files may be those of the plan that is there now
	}
	r.Plan.Stale = stale
	text, err := r.Plan.encode()
	if err != nil {
		return err
	}
	if err := r.To.Put(PlanName, text); err != nil {
		return err
	}
	for _, s := range old.Shards {
		if _, found := files[s.Name]; found && !names[s.Name] && path.Base(s.Name) == s.Name && strings.HasSuffix(s.Name, ".safetensors") {
			if err := r.To.Remove(s.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

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
	files, err := r.To.Files(false)
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
	var group errgroup.Group
	group.SetLimit(min(r.AtOnce, r.To.AtOnce()))
	for _, s := range result.Written {
		group.Go(func() error { return r.writeShard(s) })
	}
	return result, group.Wait()
}

// writeShard writes a shard, and before the only one what is next to it. If that fails,
// another run of the part may have done it, and have swept the temporary files of this one.
func (r *run) writeShard(s Shard) (err error) {
	if r.index == nil {
		err = r.Beside()
	}
	if err == nil {
		err = r.To.WriteShard(s.Name, r.Shards[s.Name], r.Metadata, r.stillPlanned)
	}
	if err == nil || errors.Is(err, ErrRefused) {
		return err
	}
	if files, listErr := r.To.Files(false); listErr == nil {
		if found, checkErr := r.check(s, files); checkErr == nil && found {
			return nil
		}
	}
	return err
}

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
	return nil
}

// finish makes the folder a checkpoint if all its shards are there. Of parts that end at
// the same time, each has written its shards before, so that the last one sees them all.
func (r *run) finish() (complete bool, err error) {
	files, err := r.To.Files(true)
	if err != nil {
		return false, err
	}
	for _, s := range r.Plan.Shards {
		if !r.Plan.complete(s, files) {
			return false, nil
		}
	}
	if r.index == nil {
		complete, err = r.checkAll(files)
	} else if _, found := files[indexFile]; found {
		complete, err = true, r.checkLast(files)
	} else if complete, err = r.checkAll(files); complete {
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
	var group errgroup.Group
	group.SetLimit(8)
	all := make([]bool, len(r.Plan.Shards))
	for i, s := range r.Plan.Shards {
		if all[i] = r.sound[s.Name]; all[i] {
			continue
		}
		group.Go(func() (err error) {
			all[i], err = r.check(s, files)
			return err
		})
	}
	err := group.Wait()
	return err == nil && !slices.Contains(all, false), err
}

// commit writes what comes after the shards: the index last. If that fails, another part
// may have done it.
func (r *run) commit() error {
	err := r.stillPlanned()
	if err == nil {
		err = r.Beside()
	}
	var there []byte
	if err == nil {
		there, err = r.To.Create(indexFile, r.index)
	}
	if err != nil && !errors.Is(err, ErrRefused) {
		if now, readErr := r.read(indexFile); readErr == nil {
			there, err = now, nil
		}
	}
	if err == nil && there != nil && !bytes.Equal(there, r.index) {
		err = r.occupied(indexFile)
	}
	return err
}
