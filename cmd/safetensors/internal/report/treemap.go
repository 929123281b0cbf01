package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// The picture of the sizes, in its own units, about pixels of a wide window. Nothing in
// it is smaller than minArea, so that there are at most some thousand boxes, whatever the
// checkpoint has.
const (
	mapWidth, mapHeight = 1200, 560
	minArea             = 160
	maxDepth            = 12 // of names, in parts; the rest is one part
)

// A box is a rectangle of the picture: a tensor, a group of tensors that is divided into
// boxes, or one that is too small for that.
type box struct {
	X, Y, W, H  float64
	Group       bool
	Class       string
	Label       string // "" where there is no room
	Title, Href string
}

// A node is what becomes a box: a tensor, if it is Named, or a group. Those below it are made when
// there is room for them.
type node struct {
	pattern.Branch
	label string
	bytes int64
}

const others = "…" // the label of nodes that are too small to see

func (d *drawing) node(b pattern.Branch) *node {
	n := &node{Branch: b, label: b.Name[b.Start:]}
	for _, i := range b.Members {
		n.bytes += d.tensors[i].Bytes
	}
	return n
}

// below returns the nodes below a node: of a tensor a.b, and of others below a.b, two.
func (d *drawing) below(n *node) (all []*node) {
	if n.Named() >= 0 || n.label == others && n.Name == "" {
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

// A drawing is a treemap in the making.
type drawing struct {
	tensors []Tensor
	kinds   []dtype
	listed  []int
	boxes   []box
}

// treemap returns the boxes of tensors, each after those that it lies in.
func treemap(tensors []Tensor, kinds []dtype, listed []int) []box {
	d := &drawing{tensors: tensors, kinds: kinds, listed: listed}
	all := pattern.Tree(namesOf(tensors), maxDepth)
	all.Members = slices.DeleteFunc(all.Members, func(i int) bool { return tensors[i].Bytes == 0 })
	root := d.node(all)
	if root.bytes == 0 {
		return nil
	}
	d.divide(d.below(root), rect{0, 0, mapWidth, mapHeight}, root)
	return d.boxes
}

// place draws a node, and those below it if there is room.
func (d *drawing) place(n *node, r rect) {
	label, below := n.label, d.below(n)
	for n.Named() < 0 && len(below) == 1 {
		n = below[0]
		label += "." + n.label
		below = d.below(n)
	}
	b := box{X: round(r.x), Y: round(r.y), W: round(r.w), H: round(r.h), Class: classOf(d.kinds, dtypesOf(d.tensors, n.Members)[0].DType), Title: d.title(n)}
	b.Group = len(below) > 0 && r.w*r.h >= 4*minArea && min(r.w, r.h) >= 14
	if r.h >= 44 || r.h >= 15 && !b.Group {
		b.Label = fitting(label, r.w)
	}
	if _, ok := slices.BinarySearch(d.listed, n.Named()); ok {
		b.Href = "#t" + strconv.Itoa(n.Named())
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

// fitting returns what a box of a width can show of a label, "" if that says nothing.
func fitting(label string, width float64) string {
	n := int((width - 8) / 6.2) // characters
	if utf8.RuneCountInString(label) <= n {
		return term.Name(label)
	}
	if n < 5 {
		return ""
	}
	return term.Quote(label, n-1)
}

func (d *drawing) title(n *node) string {
	if i := n.Named(); i >= 0 {
		t := &d.tensors[i]
		return fmt.Sprintf("%s  %s %s, %s", term.Name(n.Name), t.DType, term.Shape(t.Shape), term.Bytes(n.bytes))
	}
	return fmt.Sprintf("%s  %s tensors, %s", term.Name(cmp.Or(n.Name, "others")), term.Count(int64(len(n.Members))), term.Bytes(n.bytes))
}

// divide lays nodes out in rows of boxes that are as square as can be (Bruls, Huizing,
// van Wijk 2000: Squarified Treemaps). Those too small to see become one.
func (d *drawing) divide(nodes []*node, r rect, parent *node) {
	scale := r.w * r.h / float64(parent.bytes)
	nodes = visible(nodes, minArea/scale)
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

// worst returns the largest ratio of sides in a row of nodes.
func worst(nodes []*node, scale, area, side float64) float64 {
	largest, smallest := float64(nodes[0].bytes)*scale, float64(nodes[len(nodes)-1].bytes)*scale
	return max(side*side*largest/(area*area), area*area/(side*side*smallest))
}

// visible returns nodes by size, those of fewer bytes than least as one.
func visible(nodes []*node, least float64) []*node {
	bySize := func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), compareParts(a.label, b.label))
	}
	slices.SortStableFunc(nodes, bySize)
	n := slices.IndexFunc(nodes, func(small *node) bool { return float64(small.bytes) < least })
	if n < 0 || n == len(nodes)-1 {
		return nodes
	}
	rest := &node{label: others}
	for _, small := range nodes[n:] {
		rest.Members = append(rest.Members, small.Members...)
		rest.bytes += small.bytes
	}
	nodes = append(nodes[:n], rest)
	slices.SortStableFunc(nodes, bySize)
	return nodes
}

// compareParts compares parts of names: numbers by their value, and before all else.
func compareParts(a, b string) int {
	value := func(part string) int {
		if n, ok := number(part); ok {
			return n
		}
		return math.MaxInt
	}
	return cmp.Or(cmp.Compare(value(a), value(b)), cmp.Compare(a, b))
}

func round(x float64) float64 { return math.Round(x*10) / 10 }
