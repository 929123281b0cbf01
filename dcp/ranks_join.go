package dcp

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// join joins the tensors of all ranks. It calls skip for each entry that it leaves out.
func (j *rankJob) join(skip func(name string, why error)) (map[string]safetensors.Tensor, error) {
	tensors := make(map[string]safetensors.Tensor, len(j.tensors))
	early := int64(maxEarly)
	for _, name := range slices.Sorted(maps.Keys(j.tensors)) {
		t := j.tensors[name]
		switch {
		case t.why != nil && skip == nil:
			return nil, fmt.Errorf("tensor %s: %w", quote(name), t.why)
		case t.why != nil:
			j.skipped[name] = t.why
			continue
		}
		joined, err := j.whole(t, &early)
		if err != nil {
			return nil, err
		}
		tensors[name] = joined
		t.holdings = nil
	}
	if skip != nil {
		for _, name := range slices.Sorted(maps.Keys(j.skipped)) {
			skip(name, j.skipped[name])
		}
	}
	return tensors, nil
}

// whole returns a tensor joined from the pieces of all ranks. If several ranks have a copy of a
// piece, sameOf compares the copies, now or when they are read. *early is the number of bytes that
// may still be read for comparisons now; sameOf subtracts those that it reads.
func (j *rankJob) whole(t *divided, early *int64) (joined safetensors.Tensor, err error) {
	var pieces []*piece
	for _, h := range t.holdings {
		for _, p := range h.pieces {
			if !p.empty() {
				pieces = append(pieces, &piece{box: p.box, stored: p.box, tensor: p.tensor, file: quote(j.ranks[h.rank].File)})
			}
		}
	}
	merged, err := mergeCopies(t.name, pieces, early)
	if err != nil {
		return joined, err
	}
	if t.listed != nil && len(merged) != len(t.listed) {
		for _, b := range t.listed {
			if !slices.ContainsFunc(merged, func(p *piece) bool { return p.equal(b) }) {
				return joined, broken(t.name, "the shard %v is missing: no file has it", b)
			}
		}
	}
	if joined, err = tile(t.name, t.dtype, t.size, merged); err != nil {
		err = cmp.Or(overlap(t.name, merged), err)
	}
	return joined, err
}

// overlap returns an error that names two overlapping pieces, or nil if it finds none. It is called
// after tile has failed: overlapping pieces may leave a hole elsewhere, which tile reports, but the
// overlap explains the failure better.
func overlap(name string, pieces []*piece) error {
	const most = 1000 // number of pieces that are compared with each other
	for i, p := range pieces[:min(most, len(pieces))] {
		for _, other := range pieces[:i] {
			apart := false
			for dim := range p.begin {
				apart = apart || p.end[dim] <= other.begin[dim] || other.end[dim] <= p.begin[dim]
			}
			if !apart {
				return broken(name, "%v overlaps %v", p, other)
			}
		}
	}
	return nil
}
