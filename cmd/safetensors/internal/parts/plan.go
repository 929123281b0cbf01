package parts

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// PlanName is the name of the file with the plan, in the folder that the parts fill. The file stays
// in the folder, as a record of the source of the checkpoint.
const PlanName = ".safetensors-plan.json"

// planVersion is the version of the JSON of a Plan.
const planVersion = 1

// A Plan holds everything that the parts must agree on. It does not contain the number of parts,
// because the shards are the same for any number.
type Plan struct {
	Form    int                 `json:"plan"`    // planVersion
	Command string              `json:"command"` // version of the command
	Flags   map[string][]string `json:"flags"`   // flags that affect the bytes of the checkpoint
	Source  []storage.Pin       `json:"source"`
	Shards  []Shard             `json:"shards"` // sorted by name

	// Stale has the versions of files that another plan has left, by name, if a shard of this plan
	// has the same name. Such a file does not count as a written shard. Parts need not agree about
	// Stale.
	Stale map[string]string `json:"stale,omitempty"`
}

// A Shard is a file of the checkpoint.
type Shard struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Header string `json:"header"` // SHA-256 sum, in hexadecimal, of the file up to its data
}

// shardOf describes the file with these tensors. It reads no data.
func (j *Job) shardOf(name string, tensors map[string]safetensors.Tensor) (Shard, *safetensors.Header, error) {
	start, h, err := j.To.Start(tensors, j.Metadata)
	if err != nil {
		return Shard{}, nil, err
	}
	return Shard{name, int64(len(start)) + numbers.Bytes(tensors), sum(start)}, h, nil
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

func (p *Plan) encode() []byte {
	text, _ := json.Marshal(p) // never fails for texts and numbers
	return append(text, '\n')
}

// decode reads a plan. A plan of another version is not an error, so that the caller can name its
// version.
func decode(text []byte) (*Plan, error) {
	p := new(Plan)
	if err := json.Unmarshal(text, p); err != nil || p.Form == 0 {
		return nil, errors.New("is not a plan of this command")
	}
	return p, nil
}

// differences returns an error that lists the differences from a plan that was stored before, or
// nil if there are none.
func (p *Plan) differences(stored *Plan) error {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	switch {
	case p.Form != stored.Form:
		return fmt.Errorf("it has the form %d, not %d", stored.Form, p.Form)
	case p.Command != stored.Command:
		add("it was made by safetensors %s, not %s", term.Clean(stored.Command), p.Command)
	}
	if made, now := otherFlags(stored.Flags, p.Flags); len(made) > 0 {
		add("it was made with %s, and this command has %s", english.WordSeries(made, "and"), english.WordSeries(now, "and"))
	}
	otherRun := len(all) > 0
	there, here := pinsByName(stored.Source), pinsByName(p.Source)
	for _, name := range union(here, there) {
		was, planned := there[name]
		now, found := here[name]
		switch {
		case otherRun && besides(name) && (!planned || !found || hashed(was) != hashed(now)): // the flags or the version make this difference
		case !planned:
			add("its SRC lacks %s", term.Name(name))
		case !found:
			add("its SRC has %s", term.Name(name))
		case was != now:
			add("%s in SRC has changed: %s of %s, was %s of %s", term.Name(name), shapetext.Count(now.Size, "byte"), now.Tag, shapetext.Count(was.Size, "byte"), term.Clean(was.Tag))
		}
	}
	if len(all) == 0 && !slices.Equal(p.Shards, stored.Shards) {
		add("its shards differ")
	}
	return listed(all)
}

// listed returns an error that lists differences, or nil if there are none.
func listed(all []string) error {
	const most = 5
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

// besides reports whether a file of a source is one beside the weights, such as config.json. The flags decide which of these
// are read, and whether they are hashed.
func besides(name string) bool { return !storage.OfWeights(strings.ToLower(name)) }

func hashed(p storage.Pin) bool { return strings.HasPrefix(p.Tag, "sha256:") }

// otherFlags returns the flags that differ between two command lines, as each of them has it.
func otherFlags(there, here map[string][]string) (before, now []string) {
	for _, name := range union(there, here) {
		if !slices.Equal(there[name], here[name]) {
			before, now = append(before, flag(name, there[name])), append(now, flag(name, here[name]))
		}
	}
	return before, now
}

// flag returns a flag as it stands on a command line, or "no --flag" if it is not set.
func flag(name string, values []string) string {
	switch {
	case len(values) == 0:
		return "no --" + term.Name(name)
	case slices.Equal(values, []string{"true"}): // a flag without a value
		return "--" + term.Name(name)
	}
	return "--" + term.Name(name) + " " + term.Name(strings.Join(values, " "))
}

func pinsByName(pins []storage.Pin) map[string]storage.Pin {
	byName := make(map[string]storage.Pin, len(pins))
	for _, p := range pins {
		byName[p.Name] = p
	}
	return byName
}

func union[V any](a, b map[string]V) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

// complete reports whether a shard may be complete: files contains it with the right size, and it
// is not stale.
func (p *Plan) complete(s Shard, files map[string]dest.Stored) bool {
	file, found := files[s.Name]
	stale, left := p.Stale[s.Name]
	return found && file.Size == s.Size && !(left && stale == file.Version)
}
