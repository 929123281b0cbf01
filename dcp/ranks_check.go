package dcp

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// checkNames checks that there is a file for each rank, if the names contain the number of ranks.
func (j *rankJob) checkNames() error {
	j.world = j.ranks[0].World
	for i, r := range j.ranks {
		if j.world > 0 && r.Number != i {
			return j.missing(i) // the ranks are sorted by number
		}
	}
	if n := len(j.ranks); n < j.world {
		return j.missing(n)
	}
	return nil
}

// check checks that there is exactly one file for each rank.
func (j *rankJob) check() error {
	byNumber := make(map[int]int)
	for i, r := range j.ranks {
		if k, twice := byNumber[r.number()]; twice {
			return broken("", "%s and %s are both of rank %d", quote(j.ranks[k].File), quote(r.File), r.number())
		}
		byNumber[r.number()] = i
	}
	if err := j.checkWorld(byNumber); err != nil {
		return err
	}
	groups := newGroups(j.ranks)
	for _, name := range slices.Sorted(maps.Keys(j.tensors)) {
		t := j.tensors[name]
		if err := j.checkMeshes(t, byNumber, groups); err != nil {
			return broken(name, "%v", err)
		}
	}
	if err := j.checkJob(byNumber); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(j.tensors)) {
		if err := j.checkPlain(j.tensors[name], groups); err != nil {
			return broken(name, "%v", err)
		}
	}
	return nil
}

// checkWorld checks that there is a file for each rank, if the number of ranks is known. If no
// tensor is divided between ranks, the highest number of a rank determines how many there are.
func (j *rankJob) checkWorld(byNumber map[int]int) error {
	divided := false
	for _, t := range j.tensors {
		divided = divided || t.kind != plainTensor
	}
	switch {
	case j.world > 0:
	case !divided && !j.ranks[0].Sure:
		return fmt.Errorf("%s: no tensor in it is divided between ranks: %w", quote(j.ranks[0].File), fs.ErrNotExist)
	case divided:
		return nil // checkMeshes and checkJob know the ranks
	default:
		for n := range byNumber {
			j.world = max(j.world, n+1)
		}
	}
	for n := range j.world {
		if _, ok := byNumber[n]; !ok {
			return j.missing(n)
		}
	}
	for n := range byNumber {
		if n >= j.world {
			return j.missing(n)
		}
	}
	return nil
}

// checkJob checks that there is a file for each rank of the mesh from which the meshes of the tensors
// were cut: the ranks of a pipeline's other stages have tensors of their own. PyTorch before 2.10
// does not save that mesh.
func (j *rankJob) checkJob(byNumber map[int]int) error {
	for _, n := range j.job {
		if _, ok := byNumber[int(n)]; !ok {
			return j.missingOf(int(n), len(j.job))
		}
	}
	return nil
}

// checkMeshes checks that a tensor is in the files of all ranks between which it is divided. Ranks
// in different slices of a mesh divide it independently: each slice has a whole copy.
func (j *rankJob) checkMeshes(t *divided, byNumber map[int]int, groups *groups) error {
	at := make(map[int]*mesh)
	for _, h := range t.holdings {
		if h.mesh != nil {
			at[h.rank] = h.mesh
		}
	}
	checked := make(map[*mesh]bool)
	for _, h := range t.holdings {
		if h.mesh == nil || checked[h.mesh] {
			continue
		}
		checked[h.mesh] = true
		for _, n := range h.mesh.ranks {
			i, ok := byNumber[int(n)]
			switch {
			case !ok:
				return fmt.Errorf("the file of rank %d is missing, which is in the mesh of %s in %v", n, shapetext.Of(h.mesh.shape), j.ranks[h.rank])
			case at[i] == nil:
				return fmt.Errorf("%v lacks it, which is in the mesh of %s in %v", j.ranks[i], shapetext.Of(h.mesh.shape), j.ranks[h.rank])
			case at[i] != h.mesh:
				return fmt.Errorf("%v and %v have different meshes of the same ranks", j.ranks[h.rank], j.ranks[i])
			}
			groups.join(h.rank, i)
		}
	}
	if t.world > 0 && len(t.holdings) < len(j.ranks) {
		i := 0
		for i < len(t.holdings) && t.holdings[i].rank == i {
			i++
		}
		return fmt.Errorf("%v lacks it, a ShardedTensor of %d ranks", j.ranks[i], t.world)
	}
	return nil
}

// checkPlain checks that a plain tensor is in the files of all ranks that work together, such as
// the ranks of one stage of a pipeline. Such ranks share a mesh.
func (j *rankJob) checkPlain(t *divided, groups *groups) error {
	present := make(map[int]bool)
	inGroup := make(map[int]int) // maps a group to a rank that has the tensor
	for _, h := range t.holdings {
		present[h.rank] = true
		inGroup[groups.root(h.rank)] = h.rank
	}
	if t.kind != plainTensor || len(present) == len(j.ranks) {
		return nil
	}
	for i := range j.ranks {
		if other, ok := inGroup[groups.root(i)]; ok && !present[i] {
			return fmt.Errorf("%v lacks it, which %v has", j.ranks[i], j.ranks[other])
		}
	}
	return nil
}

// A groups consists of disjoint sets of ranks. It is a union-find structure.
type groups struct{ parent []int }

// newGroups returns groups in which each rank is a set of its own.
func newGroups(ranks []rank) *groups {
	g := &groups{make([]int, len(ranks))}
	for i := range g.parent {
		g.parent[i] = i
	}
	return g
}

// root returns the rank that represents the set of rank i.
func (g *groups) root(i int) int {
	for g.parent[i] != i {
		g.parent[i] = g.parent[g.parent[i]]
		i = g.parent[i]
	}
	return i
}

// join unites the sets of two ranks.
func (g *groups) join(a, b int) { g.parent[g.root(a)] = g.root(b) }
