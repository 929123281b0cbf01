package parts

import (
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
)

// A Refusal is an error that another try does not help against: the folder is somebody
// else's, or the store cannot do what parts need.
type Refusal struct{ error }

func (r Refusal) Unwrap() error { return r.error }

// Refuse makes an error a Refusal.
func Refuse(err error) error {
	if err == nil {
		return nil
	}
	return Refusal{err}
}

// A Job is a checkpoint to be written in parts.
type Job struct {
	To       dest.Shared
	Name     string // of To, for messages
	Part     Part
	Plan     Plan // without Form and Shards
	Shards   map[string]map[string]safetensors.Tensor
	Index    string // its name; "" if there is one shard
	Metadata map[string]string
	AtOnce   int  // shards to be written concurrently, at most
	Force    bool // another plan is replaced, unless it has come to its end

	// Unchanged returns an error if the source is no longer what Plan says.
	Unchanged func() error

	// CopyFiles writes the files next to the weights, before the last file of these.
	CopyFiles func() error

	// Begin is told the bytes of the shards that are to be written.
	Begin func(size int64)

	index []byte
}

// A Result is what a part did, to which shards. Its fields are those of the JSON form.
type Result struct {
	Written  []string `json:"written"`  // by this run
	Found    []string `json:"found"`    // of this part, written by an earlier one
	Complete bool     `json:"complete"` // the whole checkpoint is
}

// Do does a part. Killed at any point, it can be done again; it can be done several times
// at once, and after the end.
func (j *Job) Do() (*Result, error) {
	if err := j.plan(); err != nil {
		return nil, Refuse(err)
	}
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

// plan completes the plan.
func (j *Job) plan() error {
	j.Plan.Form = planVersion
	headers := make(map[string]*safetensors.Header)
	for _, name := range slices.Sorted(maps.Keys(j.Shards)) {
		s, h, err := shardOf(name, j.Shards[name], j.Metadata)
		if err != nil {
			return err
		}
		j.Plan.Shards = append(j.Plan.Shards, s)
		headers[name] = h
	}
	if j.Index != "" {
		index, err := safetensors.NewIndex(maps.All(headers))
		if err != nil {
			return err
		}
		if j.index, err = index.AppendBinary(nil); err != nil {
			return err
		}
	}
	stored, err := decode(j.Plan.encode())
	if err == nil { // JSON replaces what is not UTF-8, as names of files may be
		j.Plan.Flags, j.Plan.Source = stored.Flags, stored.Source
	}
	return err
}
