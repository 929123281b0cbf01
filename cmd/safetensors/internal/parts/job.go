package parts

import (
	"errors"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
)

// A Refusal is an error that another try cannot solve: the folder belongs to another job, or the
// store lacks an operation that parts need.
type Refusal struct{ error }

func (r Refusal) Unwrap() error { return r.error }

// Refuse returns err as a Refusal. It returns nil for nil.
func Refuse(err error) error {
	if err == nil {
		return nil
	}
	return Refusal{err}
}

// A Job writes one part of a checkpoint. Its exported fields are set by the caller, and not
// modified afterwards, except that Do completes Plan.
type Job struct {
	To       dest.Shared
	Name     string // name of To, for messages
	Part     Part
	Plan     Plan // plan without Form and Shards, which Do sets
	Shards   map[string]map[string]safetensors.Tensor
	Index    string // name of the index; "" if there is only one shard
	Metadata map[string]string

	Parameters int64 // number of parameters, for the index: see dest.Set

	AtOnce int  // largest number of shards that are written concurrently
	Force  bool // whether to replace another plan, unless its checkpoint is complete

	// Unchanged returns an error if the source differs from Plan.Source.
	Unchanged func() error

	// CopyFiles writes the files next to the weights. Do calls it before it writes the last file of
	// the checkpoint. Free returns an error if it would replace a file that must stay. Do calls Free
	// before that, and before it stores the plan in a folder that has none.
	CopyFiles, Free func() error

	// Vacant returns an error if the folder, which has these files, holds another checkpoint that readers would open instead
	// of the one that the job writes. Do calls Vacant before it stores a plan. Vacant may be nil.
	Vacant func(files map[string]dest.Stored) error

	// Begin is called with the number of bytes of the shards that are about to be written.
	Begin func(size int64)

	index []byte
}

// A Result lists the shards of a part. Its fields are also the JSON that the command prints.
type Result struct {
	Written  []string `json:"written"`  // names of the shards that this run has written
	Found    []string `json:"found"`    // names of the shards that an earlier run of the part has written
	Complete bool     `json:"complete"` // whether the whole checkpoint is complete
}

// Do writes the shards of the part, and completes the checkpoint if those of all parts are written.
// If Do is killed at any point, it can be called again. It can also be called several times
// concurrently, and after the checkpoint is complete.
func (j *Job) Do() (*Result, error) {
	if err := j.plan(); err != nil {
		return nil, Refuse(err)
	}
	result, err := j.together()
	if err == nil && result.Complete {
		dest.SweepAlone(j.To) // does nothing while another part is running, so that the last one to end sweeps
	}
	return result, err
}

// together does the work of Do once j.Plan is complete. It holds a shared lock of the folder, so
// that other parts may run at the same time, but no other program that writes to the folder.
func (j *Job) together() (*Result, error) {
	unlock, err := j.To.Lock(true)
	if errors.As(err, new(dest.CachedError)) {
		return nil, Refuse(err)
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := j.agree(); err != nil {
		return nil, err
	}
	result, err := j.write()
	if err != nil {
		return nil, err
	}
	result.Complete, err = j.finish()
	return result, err
}

// plan completes j.Plan, and makes the index.
func (j *Job) plan() error {
	j.Plan.Form = planVersion
	headers := make(map[string]*safetensors.Header)
	for _, name := range slices.Sorted(maps.Keys(j.Shards)) {
		s, h, err := j.shardOf(name, j.Shards[name])
		if err != nil {
			return err
		}
		j.Plan.Shards = append(j.Plan.Shards, s)
		headers[name] = h
	}
	if j.Index != "" {
		var err error
		if j.index, err = dest.IndexOf(headers, j.Parameters); err != nil {
			return err
		}
	}
	stored, err := decode(j.Plan.encode())
	if err == nil { // file names may contain invalid UTF-8, which JSON replaces: take what a reader of the plan gets, so that both compare equal
		j.Plan.Flags, j.Plan.Source = stored.Flags, stored.Source
	}
	return err
}
