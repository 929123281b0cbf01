package report

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// The limits of a map: of the layers next to each other, and of the cells of all maps.
const (
	maxLayers = 256
	maxCells  = 10_000
)

// A layerMap is modules by layers, a cell for the tensors of a module in a layer, colored
// by one of several figures.
type layerMap struct {
	Figures []scale
	Grids   []grid
	Omitted
}

// A grid is the layers below a name such as model.layers.
type grid struct {
	Prefix  string
	Layers  []int
	Modules []module
}

// A module is a row of a grid: a name below a layer, where numbers are *.
type module struct {
	Name  string
	Cells []*cell // nil where there is no tensor
}

// A cell is the figures of some tensors.
type cell struct {
	figures []float64
	Bad     bool         // has NaN or Inf, or cannot be compared
	Equal   bool         // without any change
	Style   template.CSS // the color of each figure
	Title   string
}

// A scale is the colors of a figure between two values: logarithmic, but linear from 0.
type scale struct {
	Label     string
	Low, High numbers.Float
}

// share returns where a value is between Low and High.
func (s scale) share(x float64) float64 {
	low, high := float64(s.Low), float64(s.High)
	switch {
	case !(x > low):
		return 0
	case x >= high:
		return 1
	case low == 0:
		return x / high
	}
	return math.Log(x/low) / math.Log(high/low)
}

// grids sorts names into grids. fill makes a cell of some of them. grids returns how many of the
// names that have a layer have a cell.
func grids(names []string, fill func(prefix, module string, layer int, members []int) *cell) (all []grid, shown Omitted) {
	type rowName struct{ prefix, module string }
	rows := make(map[rowName][]int)  // the names
	layers := make(map[string][]int) // of a prefix
	layerOf := make([]int, len(names))
	for i, name := range names {
		if prefix, layer, module, ok := split(name); ok {
			r := rowName{prefix, module}
			rows[r] = append(rows[r], i)
			layers[prefix] = append(layers[prefix], layer)
			layerOf[i] = layer
		}
	}
	for prefix, all := range layers {
		slices.Sort(all)
		layers[prefix] = slices.Compact(all)
	}
	left := maxCells
	for _, r := range slices.SortedFunc(maps.Keys(rows), func(a, b rowName) int {
		return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.module, b.module))
	}) {
		if len(layers[r.prefix]) < 2 {
			continue
		}
		shown.All += len(rows[r])
		columns := min(len(layers[r.prefix]), maxLayers)
		if left -= columns; left < 0 {
			continue
		}
		if len(all) == 0 || all[len(all)-1].Prefix != r.prefix {
			all = append(all, grid{Prefix: r.prefix, Layers: layers[r.prefix][:columns]})
		}
		g := &all[len(all)-1]
		members := make([][]int, columns)
		for _, i := range rows[r] {
			if at, ok := slices.BinarySearch(g.Layers, layerOf[i]); ok {
				members[at] = append(members[at], i)
				shown.Listed++
			}
		}
		m := module{Name: r.module, Cells: make([]*cell, columns)}
		for at, some := range members {
			if some != nil {
				m.Cells[at] = fill(r.prefix, r.module, g.Layers[at], some)
			}
		}
		g.Modules = append(g.Modules, m)
	}
	return all, shown
}

// split splits a name at its first number: model.layers.3.mlp.experts.7.up is in layer 3
// of model.layers, module mlp.experts.*.up.
func split(name string) (prefix string, layer int, rest string, ok bool) {
	parts := strings.SplitN(name, ".", maxDepth)
	for i, part := range parts {
		if layer, ok = number(part); !ok {
			continue
		}
		below := slices.Clone(parts[i+1:])
		for k := range below {
			if _, isNumber := number(below[k]); isNumber {
				below[k] = "*"
			}
		}
		return strings.Join(parts[:i], "."), layer, strings.Join(below, "."), true
	}
	return "", 0, "", false
}

// number returns the number that a part of a name is.
func number(part string) (int, bool) {
	n, err := strconv.ParseUint(part, 10, 24)
	return int(n), err == nil
}

// layersOf returns the map of names. look returns the figures of some of them, by their
// numbers, as in labels, whether they have NaN or Inf, and a text.
func layersOf(names, labels []string, look func(members []int) (figures []float64, bad bool, text string)) layerMap {
	m, compared := layerMap{}, len(labels) == 1 // not described
	var cells []*cell
	m.Grids, m.Omitted = grids(names, func(prefix, module string, layer int, members []int) *cell {
		c, text := new(cell), ""
		c.figures, c.Bad, text = look(members)
		title := names[members[0]]
		if n := len(members); n > 1 {
			title = fmt.Sprintf("%s, layer %d, %s tensors", strings.TrimPrefix(prefix+".*."+module, "."), layer, term.Count(int64(n)))
		}
		c.Title = term.Name(title) + "  " + text
		cells = append(cells, c)
		return c
	})
	for k, label := range labels {
		low, high := math.Inf(1), 0.0
		for _, c := range cells {
			if x := c.figures[k]; x > 0 && !math.IsInf(x, 0) {
				low, high = min(low, x), max(high, x)
			}
		}
		low = max(min(low, high), high/1e6) // what is smaller looks like zero
		if compared {
			low = 0
		}
		m.Figures = append(m.Figures, scale{label, numbers.Float(low), numbers.Float(high)})
	}
	for _, c := range cells {
		c.Equal = compared && c.figures[0] == 0 && !c.Bad
		for k, x := range c.figures {
			c.Style += template.CSS(fmt.Sprintf("--f%d:%d%%;", k, int(math.Round(100*m.Figures[k].share(x))))) // numbers only
		}
	}
	return m
}

func namesOf(tensors []Tensor) []string {
	names := make([]string, len(tensors))
	for i := range tensors {
		names[i] = tensors[i].Name
	}
	return names
}

// summaryMap returns the map of tensors by the deviation of their values, and by the
// largest absolute one.
func summaryMap(tensors []Tensor) layerMap {
	return layersOf(namesOf(tensors), []string{"std", "absmax"}, func(members []int) ([]float64, bool, string) {
		n, mean, squares, absmax, bad := 0.0, 0.0, 0.0, math.NaN(), int64(0)
		for _, i := range members {
			t := &tensors[i]
			bad += t.NaN + t.Inf
			more := float64(t.Count - t.NaN - t.Inf)
			if more == 0 {
				continue
			}
			delta, std := float64(t.Mean)-mean, float64(t.Std)
			squares += std*std*more + delta*delta*n*more/(n+more)
			n += more
			mean += delta * more / n
			if most := max(math.Abs(float64(t.Min)), math.Abs(float64(t.Max))); !(most <= absmax) {
				absmax = most
			}
		}
		std := math.Sqrt(squares / n)
		if len(members) == 1 {
			std = float64(tensors[members[0]].Std) // without another rounding
		}
		text := fmt.Sprintf("std %s, absmax %s", figure(numbers.Float(std)), figure(numbers.Float(absmax)))
		if bad > 0 {
			text += fmt.Sprintf(", %s NaN or Inf", term.Count(bad))
		}
		return []float64{std, absmax}, bad > 0, text
	})
}
