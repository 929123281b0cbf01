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

// These are limits of a map of layers.
const (
	maxLayers = 256    // largest number of columns in a grid
	maxCells  = 10_000 // largest number of cells in all grids
)

// A layerMap shows modules by layers. It has a cell for the tensors of a module in a layer. One of
// several figures determines the color of a cell.
type layerMap struct {
	Scales []scale
	Grids  []grid
	Omitted

	Compares         bool // whether the figure is a change between two checkpoints
	HasBad, HasEqual bool // whether some cell is Bad, or Equal
	HasZeros, HasNaN bool // whether some figure is zero, or not a number
	cells            []*cell
}

// A grid shows the layers below a name such as model.layers.
type grid struct {
	Prefix  string
	Layers  []int
	Modules []module
}

// Width returns CSS classes for a grid with many layers, which has no room for all their numbers:
// "some" on a phone, "more" in half a window, "many" in any window.
func (g grid) Width() string {
	switch n := len(g.Layers); {
	case n >= 50:
		return " some many"
	case n >= 24:
		return " some more"
	case n >= 12:
		return " some"
	default:
		return ""
	}
}

// A module is a row of a grid: a name below a layer, in which numbers are replaced by *.
type module struct {
	Name  string
	Cells []*cell // nil for a layer without such a tensor
}

// A cell shows one or several tensors of a module in a layer.
type cell struct {
	figures []float64 // one figure for each scale
	Bad     bool      // whether a tensor has NaN or Inf, or cannot be compared
	Equal   bool      // whether all tensors are equal
	Title   string
	ID      int          // index of the only tensor, or -1 if there are several
	Filter  string       // pattern that the names of several tensors match, or ""
	Style   template.CSS // colors, one for each scale
	Class   string       // CSS classes of states that have a color of their own
}

// newCell returns the cell for the members of a module in a layer. members are indices of names.
func newCell(names []string, members []int, prefix string, layer int, module string) *cell {
	if len(members) == 1 {
		return &cell{ID: members[0], Title: term.Name(names[members[0]])}
	}
	title := strings.TrimPrefix(prefix+".*."+module, ".")
	pattern := strings.TrimPrefix(prefix+"."+strconv.Itoa(layer)+"."+module, ".")
	return &cell{
		ID:     -1,
		Filter: term.Name(strings.TrimSuffix(pattern, ".")),
		Title:  fmt.Sprintf("%s, layer %d, %s tensors", term.Name(title), layer, term.Count(int64(len(members)))),
	}
}

// A scale maps figures between Low and High to colors. It is logarithmic if Log is true.
type scale struct {
	Label     string
	Log       bool
	Low, High numbers.Float
	Less      bool // whether some figures are less than Low, but not zero
}

// Middle returns the value halfway between Low and High.
func (s scale) Middle() numbers.Float {
	if s.Log {
		return numbers.Float(math.Sqrt(float64(s.Low)) * math.Sqrt(float64(s.High)))
	}
	return s.Low/2 + s.High/2
}

// share returns the position of a value between Low and High, from 0 to 1.
func (s scale) share(x float64) float64 {
	low, high := float64(s.Low), float64(s.High)
	switch {
	case !(x > low):
		return 0
	case x >= high:
		return 1
	case s.Log:
		return math.Log(x/low) / math.Log(high/low)
	default:
		return (x - low) / (high - low)
	}
}

// These are limits of a logarithmic scale.
const (
	leastSpan = 2   // least quotient of High and Low, because small differences would look large otherwise
	mostSpan  = 1e6 // largest quotient of High and Low; smaller values have the color of Low
)

// logScale returns a logarithmic scale from the least to the largest of the positive values. It
// widens the scale to leastSpan, or narrows it to mostSpan.
func logScale(label string, values []float64) scale {
	low, high := math.Inf(1), 0.0
	for _, x := range values {
		if x > 0 && !math.IsInf(x, 0) {
			low, high = min(low, x), max(high, x)
		}
	}
	s := scale{Label: label, Log: true}
	if high == 0 {
		return s
	}
	if high/low < leastSpan {
		grow := math.Sqrt(leastSpan / (high / low))
		low, high = low/grow, min(high*grow, math.MaxFloat64)
	}
	if s.Less = low < high/mostSpan; s.Less {
		low = high / mostSpan
	}
	s.Low, s.High = numbers.Float(low), numbers.Float(high)
	return s
}

// linearScale returns a linear scale from zero to the largest of the finite values.
func linearScale(label string, values []float64) scale {
	high := 0.0
	for _, x := range values {
		if !math.IsInf(x, 0) {
			high = max(high, x)
		}
	}
	return scale{Label: label, High: numbers.Float(high)}
}

// paint colors all cells by one of their figures: the first call by the first figure, and so on. It
// appends the scale that scaleOf makes for these figures to m.Scales. NaN, and zero on a logarithmic
// scale, have colors of their own.
func (m *layerMap) paint(label string, scaleOf func(label string, values []float64) scale) {
	k := len(m.Scales)
	var values []float64
	for _, c := range m.cells {
		if x := c.figures[k]; !math.IsNaN(x) {
			values = append(values, x)
		}
	}
	s := scaleOf(label, values)
	m.Scales = append(m.Scales, s)
	for _, c := range m.cells {
		x := c.figures[k]
		switch {
		case math.IsNaN(x):
			c.Class += fmt.Sprintf(" n%d", k)
			m.HasNaN = true
		case x == 0 && s.Log:
			c.Class += fmt.Sprintf(" z%d", k)
			m.HasZeros = true
		}
		c.Style += template.CSS(fmt.Sprintf("--f%d:%d%%;", k, int(math.Round(100*s.share(x))))) // the text consists of numbers only
		m.HasBad = m.HasBad || c.Bad
		m.HasEqual = m.HasEqual || c.Equal
	}
}

// layersOf returns the map of names. fill sets the figures of a cell for the members of a module in
// a layer. The cells have no color until paint is called.
func layersOf(names []string, fill func(c *cell, members []int)) layerMap {
	var m layerMap
	m.Grids, m.Omitted = grids(names, func(prefix, module string, layer int, members []int) *cell {
		c := newCell(names, members, prefix, layer, module)
		fill(c, members)
		m.cells = append(m.cells, c)
		return c
	})
	return m
}

// A rowName identifies a row in one of the grids.
type rowName struct{ prefix, module string }

// grids sorts names into grids. fill makes the cell for the names of one layer and module, whose
// indices are members. shown counts the names with a cell and the names that are in a layer.
func grids(names []string, fill func(prefix, module string, layer int, members []int) *cell) (all []grid, shown Omitted) {
	rows := make(map[rowName][]int)  // indices in names of the names that belong to each row
	layers := make(map[string][]int) // numbers of the layers of each prefix
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

// split splits a name at its first number: model.layers.3.mlp.experts.7.up is in layer 3 of
// model.layers, and its module is mlp.experts.*.up.
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

// number parses a part of a name as a number.
func number(part string) (int, bool) {
	if part == "" || part[0] < '0' || '9' < part[0] {
		return 0, false // avoids the allocation of an error
	}
	n, err := strconv.ParseUint(part, 10, 24)
	return int(n), err == nil
}

func namesOf(tensors []Tensor) []string {
	names := make([]string, len(tensors))
	for i := range tensors {
		names[i] = tensors[i].Name
	}
	return names
}

// summaryMap returns the map of tensors by the standard deviation of their values, and by the
// largest absolute value, both on logarithmic scales.
func summaryMap(tensors []Tensor) layerMap {
	m := layersOf(namesOf(tensors), func(c *cell, members []int) {
		std, absmax, bad := pool(tensors, members)
		c.figures, c.Bad = []float64{std, absmax}, bad > 0
		c.Title += fmt.Sprintf("  std %s, absmax %s", figure(numbers.Float(std)), figure(numbers.Float(absmax)))
		if bad > 0 {
			c.Title += fmt.Sprintf(", %s NaN or Inf", term.Count(bad))
		}
	})
	m.paint("std", logScale)
	m.paint("absmax", logScale)
	return m
}

// pool returns the standard deviation and the largest absolute value of the finite values in
// several tensors, or NaN if no value is finite, and the number of values that are not finite.
func pool(tensors []Tensor, members []int) (std, absmax float64, bad int64) {
	n, mean, squares := 0.0, 0.0, 0.0
	absmax = math.NaN()
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
	if len(members) == 1 {
		return float64(tensors[members[0]].Std), absmax, bad // avoids another rounding
	}
	return math.Sqrt(squares / n), absmax, bad
}

// changeMap returns the map of tensors by their change, on a linear scale from zero. A cell is filled
// only if one of its tensors has changed by a known amount. If no cell is filled, the map has no scale.
func changeMap(pairs []*Pair) layerMap {
	names := make([]string, len(pairs))
	for i, p := range pairs {
		names[i] = p.Name
	}
	filled := false
	m := layersOf(names, func(c *cell, members []int) {
		most, unknown, changed := largestChange(pairs, members)
		c.figures, c.Bad, c.Equal = []float64{most}, unknown > 0, unknown+changed == 0
		text := "equal"
		if changed > 0 {
			text = "changed by " + percent(numbers.Float(most))
			filled = true
		} else if unknown > 0 {
			c.Class = " hollow"
		}
		if p := pairs[members[0]]; len(members) == 1 && unknown == 1 {
			text = fmt.Sprintf("%s in A, %s in B", orAbsent(p.A), orAbsent(p.B))
		} else if unknown > 0 {
			text += fmt.Sprintf(", %s not comparable", term.Count(int64(unknown)))
		}
		c.Title += "  " + text
	})
	m.Compares = true
	m.paint("change", linearScale)
	if !filled {
		m.Scales = nil
	}
	return m
}

// largestChange returns the largest change of some pairs, the number of pairs whose change is
// unknown, and the number of other pairs that differ.
func largestChange(pairs []*Pair, members []int) (most float64, unknown, changed int) {
	for _, i := range members {
		switch change := float64(pairs[i].Change); {
		case math.IsNaN(change):
			unknown++
		case pairs[i].Different:
			changed++
			most = max(most, change)
		}
	}
	return most, unknown, changed
}

// orAbsent returns the text of a type, or "absent" for nil.
func orAbsent(t *Type) string {
	if t == nil {
		return "absent"
	}
	return term.Quote(t.String(), term.ValueLimit)
}
