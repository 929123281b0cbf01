package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors"
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

// A node is a part of a name, and all that is below it.
type node struct {
	label, name string
	tensors     int
	bytes       int64
	byDType     map[safetensors.DType]int64
	index       int // of the tensor, -1 for a group
	children    []*node
	byLabel     map[string]*node
}

func tree(tensors []Tensor) *node {
	root := &node{index: -1}
	for i := range tensors {
		if tensors[i].Bytes == 0 {
			continue // has no area
		}
		n := root
		n.add(&tensors[i])
		parts := strings.SplitN(tensors[i].Name, ".", maxDepth)
		for k, label := range parts {
			child := n.byLabel[label]
			if child == nil || k == len(parts)-1 || child.index >= 0 { // a.b and a.b.c are two
				child = &node{label: label, name: strings.Join(parts[:k+1], "."), index: -1}
				if n.byLabel == nil {
					n.byLabel = make(map[string]*node)
				}
				n.byLabel[label] = child
				n.children = append(n.children, child)
			}
			child.add(&tensors[i])
			n = child
		}
		n.index = i
	}
	return root
}

func (n *node) add(t *Tensor) {
	n.tensors++
	n.bytes += t.Bytes
	if n.byDType == nil {
		n.byDType = make(map[safetensors.DType]int64)
	}
	n.byDType[t.DType] += t.Bytes
}

// main returns the dtype of most bytes.
func (n *node) main() safetensors.DType {
	var best safetensors.DType
	for d, bytes := range n.byDType {
		if bytes > n.byDType[best] || bytes == n.byDType[best] && d < best {
			best = d
		}
	}
	return best
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
	root := tree(tensors)
	if root.bytes == 0 {
		return nil
	}
	d := &drawing{tensors: tensors, kinds: kinds, listed: listed}
	d.divide(root.children, rect{0, 0, mapWidth, mapHeight}, root)
	return d.boxes
}

// place draws a node, and those below it if there is room.
func (d *drawing) place(n *node, r rect) {
	label := n.label
	for n.index < 0 && len(n.children) == 1 {
		n = n.children[0]
		label += "." + n.label
	}
	b := box{X: round(r.x), Y: round(r.y), W: round(r.w), H: round(r.h), Class: classOf(d.kinds, n.main())}
	if len(n.children) == 0 || r.w*r.h < 4*minArea || min(r.w, r.h) < 14 {
		b.Title = d.title(n)
		if _, ok := slices.BinarySearch(d.listed, n.index); ok {
			b.Href = "#t" + strconv.Itoa(n.index)
		}
		if r.h >= 15 {
			b.Label = fitting(label, r.w)
		}
		d.boxes = append(d.boxes, b)
		return
	}
	b.Group, b.Title = true, d.title(n)
	inside := rect{r.x + 1.5, r.y + 1.5, r.w - 3, r.h - 3}
	if r.h >= 44 {
		b.Label = fitting(label, r.w)
	}
	if b.Label != "" {
		inside.y, inside.h = r.y+16, r.h-17.5
	}
	d.boxes = append(d.boxes, b)
	d.divide(n.children, inside, n)
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
	if n.index >= 0 {
		t := &d.tensors[n.index]
		return fmt.Sprintf("%s  %s %s, %s", term.Name(n.name), t.DType, term.Quote(shape(t.Shape), term.ValueLimit), term.Bytes(n.bytes))
	}
	name := "others"
	if n.name != "" {
		name = term.Name(n.name)
	}
	return fmt.Sprintf("%s  %s tensors, %s", name, term.Count(int64(n.tensors)), term.Bytes(n.bytes))
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
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b *node) int {
		if c := cmp.Compare(b.bytes, a.bytes); c != 0 {
			return c
		}
		return compareParts(a.label, b.label)
	})
	n := len(nodes)
	for n > 0 && float64(nodes[n-1].bytes) < least {
		n--
	}
	if len(nodes)-n < 2 {
		return nodes
	}
	others := &node{label: "…", index: -1, byDType: make(map[safetensors.DType]int64)}
	for _, small := range nodes[n:] {
		others.tensors += small.tensors
		others.bytes += small.bytes
		for d, bytes := range small.byDType {
			others.byDType[d] += bytes
		}
	}
	at := n
	for at > 0 && nodes[at-1].bytes < others.bytes {
		at--
	}
	return slices.Insert(nodes[:n:n], at, others)
}

// compareParts compares parts of names: numbers by their value.
func compareParts(a, b string) int {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(a, b)
}

func round(x float64) float64 { return math.Round(x*10) / 10 }
