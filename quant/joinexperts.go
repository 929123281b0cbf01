package quant

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A layerOfExperts has experts that are matrices of their own.
type layerOfExperts struct {
	start string // common start of the names of its weights
	n     int    // number of experts
}

// nameOfExpert matches the names of the matrices of an expert. Its groups are the start and the number of the expert.
var nameOfExpert = lazyregexp.New(`^(.*` + ofExperts + `)([0-9]{1,6})\.(?:gate|up|down)_proj\.weight$`)

// separated returns the layers of a dequantised Llama 4 whose experts become two tensors again: those in which a matrix was
// quantised and none is missing. A single shard of a model may have only some matrices of a layer, even all of its first
// experts, so that their number must be that of the config, if it specifies one. has reports whether there is a tensor with
// this name.
func separated(c *config, modules []*module, has func(name string) bool) (layers []layerOfExperts) {
	if !c.joined {
		return nil
	}
	least := make(map[string]int) // the least number of experts, by the start of the names
	for _, m := range modules {
		if match := nameOfExpert().FindStringSubmatch(m.result()); match != nil {
			e, _ := strconv.Atoi(match[2])
			least[match[1]] = max(least[match[1]], e+1)
		}
	}
	for _, start := range slices.Sorted(maps.Keys(least)) {
		n := 0
		for slices.ContainsFunc(expertNames(start, n), has) {
			n++
		}
		layer := layerOfExperts{start, n}
		if len(c.experts) > 0 && !slices.Contains(c.experts, n) {
			continue
		}
		if n >= least[start] && !slices.ContainsFunc(layer.names(), func(name string) bool { return !has(name) }) && !has(start+gateUp) && !has(start+downOf) {
			layers = append(layers, layer)
		}
	}
	return layers
}

// names returns the names of the matrices of all experts: three for each.
func (l layerOfExperts) names() (names []string) {
	for e := range l.n {
		names = append(names, expertNames(l.start, e)...)
	}
	return names
}

// join replaces the matrices of a layer in a map of dequantised tensors with the two tensors of the model without
// quantisation. If it returns an error, only a part of the map may have been changed.
func (l layerOfExperts) join(tensors map[string]safetensors.Tensor) (err error) {
	var both, down []string
	for e := range l.n {
		names := expertNames(l.start, e)
		both, down = append(both, names[:2]...), append(down, names[2])
	}
	if tensors[l.start+gateUp], err = stack(tensors, both, l.n); err == nil {
		tensors[l.start+downOf], err = stack(tensors, down, l.n)
	}
	return err
}

// leaveOut removes the matrices of a layer, and the tensors that join has made of them, from a map. It calls skip for the two
// tensors that the map lacks because of that.
func (l layerOfExperts) leaveOut(tensors map[string]safetensors.Tensor, skip func(name string, why error), why error) {
	for _, name := range l.names() {
		delete(tensors, name)
	}
	for _, name := range []string{l.start + gateUp, l.start + downOf} {
		delete(tensors, name)
		skip(name, why)
	}
}

// stack removes matrices of n experts from a map, and returns them as one tensor, with the shape [n, columns, rows of all
// matrices of an expert]. The tensor has a matrix for each expert: the transpose of its matrices, one below the other.
func stack(tensors map[string]safetensors.Tensor, names []string, n int) (t safetensors.Tensor, err error) {
	all := make([]safetensors.Tensor, len(names))
	for i, name := range names {
		if all[i], err = tensors[name].Convert(f32); err != nil { // it may be BF16, if it was not quantised
			return t, fmt.Errorf("tensor %s: %w", quote(name), prefix.Strip(err))
		}
		if shape, first := all[i].Shape(), all[0].Shape(); !slices.Equal(shape, first) {
			return t, fmt.Errorf("tensor %s: its shape is %s, and that of %s, with which it is joined, is %s", quote(name), shapetext.Of(shape), quote(names[0]), shapetext.Of(first))
		}
		delete(tensors, name)
	}
	if t, err = safetensors.Concat(0, all...); err == nil {
		t, err = t.Reshape(n, -1, t.Shape()[1])
	}
	if err == nil {
		t, err = t.Transpose(0, 2, 1)
	}
	return t, err
}

// joinLayouts changes layouts as join changes the tensors. The two tensors of the layer get the layout of its quantised
// matrices, the one with the most bits if there are several. So do the stored matrices, even those that are not quantised.
// The names of matrices that are not stored are removed, since they are no results any more.
func (l layerOfExperts) joinLayouts(layouts map[string]Layout, stored map[string]safetensors.Tensor) {
	names := l.names()
	var of Layout
	for _, name := range names {
		if layouts[name].Bits > of.Bits {
			of = layouts[name]
		}
	}
	for _, name := range names {
		if _, ok := stored[name]; ok {
			layouts[name] = of
		} else {
			delete(layouts, name)
		}
	}
	layouts[l.start+gateUp], layouts[l.start+downOf] = of, of
}
