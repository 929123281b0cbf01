package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A layout is the size of a treemap in pixels. The page shows the layout that suits its width. The
// position of a box is in percent of the width, and in pixels of the height, so that text keeps its
// size if the page is a little wider or narrower.
type layout struct {
	Name          string // CSS class of the treemap
	Width, Height float64
}

// layouts are for the windows of computers, tablets and phones. style.css has the widths at which
// the page changes from one layout to the next.
var layouts = []layout{{"wide", 1100, 560}, {"medium", 660, 560}, {"narrow", 360, 560}}

const (
	minArea  = 160 // smallest area of a box in square pixels, which limits the number of boxes
	maxDepth = 12  // largest number of parts of a name; the rest is one part
)

// A treemap shows tensors as boxes whose areas are proportional to their sizes.
type treemap struct {
	layout
	Boxes []box
}

// A box is a rectangle of a treemap: a tensor, a group of tensors that is divided into
// boxes, or a group that is too small for that.
type box struct {
	X, Y, W, H  float64 // in pixels
	Left, Width float64 // X and W in percent of the layout
	Group       bool    // whether the box is a group that is divided into boxes
	Class       string  // CSS class for the color of the dtype with the most bytes
	Label       string  // "" if there is no room
	Title       string
	ID          int    // index of the tensor, or -1
	Filter      string // pattern for the names in a group that is too small to be divided, or ""
}

// A node becomes a box. It is a tensor if its branch is Named, and otherwise a group. The nodes
// below it are made only if there is room for them.
type node struct {
	pattern.Branch
	label  string
	bytes  int64
	others bool   // whether it stands for several nodes that are too small to see
	within string // name of the node that contains these small nodes
}

// node returns the node of a branch.
func (d *drawing) node(b pattern.Branch) *node {
	n := &node{Branch: b, label: b.Name[b.Start:]}
	for _, i := range b.Members {
		n.bytes += d.tensors[i].Bytes
	}
	return n
}

// below returns the nodes below a node. A tensor a.b and the tensors below a.b are two nodes.
func (d *drawing) below(n *node) (all []*node) {
	if n.Named() >= 0 || n.others {
		return nil
	}
	for _, b := range n.Split() {
		if b.Named() >= 0 {
			tensor := b
			tensor.Members, b.Members = b.Members[:1], b.Members[1:]
			all = append(all, d.node(tensor))
		}
		if len(b.Members) > 0 {
			all = append(all, d.node(b))
		}
	}
	return all
}

type rect struct{ x, y, w, h float64 }

// A drawing collects the boxes of a treemap.
type drawing struct {
	layout
	tensors []Tensor
	kinds   []dtype
	boxes   []box
}

// treemaps returns a treemap of tensors for each layout, or nil if no tensor has bytes.
func treemaps(tensors []Tensor, kinds []dtype) (all []treemap) {
	tree := pattern.Tree(namesOf(tensors), maxDepth)
	tree.Members = slices.DeleteFunc(tree.Members, func(i int) bool { return tensors[i].Bytes == 0 })
	if len(tree.Members) == 0 {
		return nil
	}
	for _, l := range layouts {
		all = append(all, treemap{l, draw(tensors, kinds, tree, l)})
	}
	return all
}

// draw returns the boxes of the tensors in a tree. A box comes after the boxes that contain it.
func draw(tensors []Tensor, kinds []dtype, tree pattern.Branch, l layout) []box {
	d := &drawing{layout: l, tensors: tensors, kinds: kinds}
	root := d.node(tree)
	d.divide(d.below(root), rect{0, 0, l.Width, l.Height}, root)
	return d.boxes
}

// place draws a node, and the nodes below it if there is room.
func (d *drawing) place(n *node, r rect) {
	label, below := n.label, d.below(n)
	if n.others {
		label = fmt.Sprintf("%s tensors", term.Count(int64(len(n.Members))))
	}
	for n.Named() < 0 && len(below) == 1 {
		n = below[0]
		label += "." + n.label
		below = d.below(n)
	}
	b := box{
		X: round(r.x), Y: round(r.y), W: round(r.w), H: round(r.h),
		Left: hundredths(100 * r.x / d.Width), Width: hundredths(100 * r.w / d.Width),
		Class: classOf(d.kinds, dtypesOf(d.tensors, n.Members)[0].DType), Title: d.title(n), ID: n.Named(),
	}
	b.Group = len(below) > 0 && r.w*r.h >= 4*minArea && min(r.w, r.h) >= 14
	if r.h >= 44 || r.h >= 15 && !b.Group {
		b.Label = fitting(label, r.w)
	}
	if name := cmp.Or(n.Name, n.within); b.ID < 0 && !b.Group && name != "" {
		b.Filter = term.Name(name) + ".*"
	}
	d.boxes = append(d.boxes, b)
	if !b.Group {
		return
	}
	inside := rect{r.x + 1.5, r.y + 1.5, r.w - 3, r.h - 3}
	if b.Label != "" {
		inside.y, inside.h = r.y+16, r.h-17.5
	}
	d.divide(below, inside, n)
}

// fitting returns a label for a box of this width, or "" if the box would show too little of it.
// The page cuts a label that does not fit.
func fitting(label string, width float64) string {
	const least, letter, margin = 5, 6.2, 8
	if n := (width - margin) / letter; float64(min(least, utf8.RuneCountInString(label))) > n {
		return ""
	}
	return term.Quote(label, term.ValueLimit)
}

// title returns the text that the page shows when the pointer is on a box.
func (d *drawing) title(n *node) string {
	if i := n.Named(); i >= 0 {
		t := &d.tensors[i]
		return fmt.Sprintf("%s  %s %s, %s", term.Name(n.Name), t.DType, term.Shape(t.Shape), term.Bytes(n.bytes))
	}
	name := term.Name(n.Name)
	switch {
	case n.others && n.within == "":
		name = "others"
	case n.others:
		name = "others in " + term.Name(n.within)
	}
	return fmt.Sprintf("%s  %s tensors, %s", name, term.Count(int64(len(n.Members))), term.Bytes(n.bytes))
}

// divide lays out nodes in rows of boxes that are as square as possible (Bruls, Huizing,
// van Wijk 2000: Squarified Treemaps). Nodes that are too small to see become one box.
func (d *drawing) divide(nodes []*node, r rect, parent *node) {
	scale := r.w * r.h / float64(parent.bytes)
	nodes = visible(nodes, minArea/scale, parent.Name)
	for len(nodes) > 0 {
		side := min(r.w, r.h)
		n, area := 1, float64(nodes[0].bytes)*scale
		for n < len(nodes) {
			next := area + float64(nodes[n].bytes)*scale
			if worst(nodes[:n+1], scale, next, side) > worst(nodes[:n], scale, area, side) {
				break
			}
			n, area = n+1, next
		}
		depth, along := area/side, 0.0
		for _, child := range nodes[:n] {
			length := float64(child.bytes) * scale / depth
			if r.w >= r.h {
				d.place(child, rect{r.x, r.y + along, depth, length})
			} else {
				d.place(child, rect{r.x + along, r.y, length, depth})
			}
			along += length
		}
		if r.w >= r.h {
			r.x, r.w = r.x+depth, r.w-depth
		} else {
			r.y, r.h = r.y+depth, r.h-depth
		}
		nodes = nodes[n:]
	}
}

// worst returns the largest ratio of sides among the boxes of a row of nodes.
func worst(nodes []*node, scale, area, side float64) float64 {
	largest, smallest := float64(nodes[0].bytes)*scale, float64(nodes[len(nodes)-1].bytes)*scale
	return max(side*side*largest/(area*area), area*area/(side*side*smallest))
}

// visible returns nodes sorted by size. It replaces all nodes that are smaller than least bytes
// with a single node. within is the name of the node that contains the nodes.
func visible(nodes []*node, least float64, within string) []*node {
	bySize := func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), compareParts(a.label, b.label))
	}
	slices.SortStableFunc(nodes, bySize)
	n := slices.IndexFunc(nodes, func(small *node) bool { return float64(small.bytes) < least })
	if n < 0 || n == len(nodes)-1 {
		return nodes
	}
	rest := &node{others: true, within: within}
	for _, small := range nodes[n:] {
		rest.Members = append(rest.Members, small.Members...)
		rest.bytes += small.bytes
	}
	nodes = append(nodes[:n], rest)
	slices.SortStableFunc(nodes, bySize)
	return nodes
}

// compareParts compares parts of names. Numbers are compared by value, and come before other parts.
func compareParts(a, b string) int {
	if a == b {
		return 0
	}
	value := func(part string) int {
		if n, ok := number(part); ok {
			return n
		}
		return math.MaxInt
	}
	return cmp.Or(cmp.Compare(value(a), value(b)), cmp.Compare(a, b))
}

// hundredths rounds to two decimals.
func hundredths(x float64) float64 { return math.Round(x*100) / 100 }
