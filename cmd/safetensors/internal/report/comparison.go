package report

import (
	"cmp"
	"io"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A Type is the dtype and the shape of a tensor.
type Type struct {
	DType safetensors.DType `json:"dtype"`
	Shape []int             `json:"shape"`
}

// TypeOf returns the type of a tensor.
func TypeOf(t safetensors.Tensor) *Type { return &Type{t.DType(), t.Shape()} }

// String returns dtype and shape in the notation of the file: BF16 [2,3]. It returns "" for nil.
func (t *Type) String() string {
	if t == nil {
		return ""
	}
	return t.DType.String() + " " + term.Shape(t.Shape)
}

// A Pair holds the types of the tensors with one name in two checkpoints, and measures their
// difference.
type Pair struct {
	Name     string        `json:"name"`
	A        *Type         `json:"a"` // nil if A does not have the tensor
	B        *Type         `json:"b"`
	Elements int64         `json:"elements"` // number of different elements; 0 if the shapes differ
	MaxAbs   numbers.Float `json:"max_abs"`  // NaN if unknown, as if the shapes differ
	MaxRel   numbers.Float `json:"max_rel"`  // NaN if unknown, or if B is 0 in all elements that differ
	At       []int         `json:"at"`       // index of the element with MaxAbs, or nil
	Share    numbers.Float `json:"share"`    // share of elements that differ; NaN if the shapes differ
	Change   numbers.Float `json:"change"`   // norm of A-B divided by the norm of B; NaN if unknown

	Different bool  `json:"-"` // whether the tensors differ; also true for a tensor in only one checkpoint
	Of        int64 `json:"-"` // number of elements
}

// SameType reports whether the tensor is in both checkpoints, with the same dtype and shape.
func (p *Pair) SameType() bool {
	return p.A != nil && p.B != nil && p.A.DType == p.B.DType && slices.Equal(p.A.Shape, p.B.Shape)
}

// NotFinite reports whether two elements that differ are not both finite, so that the change is unknown.
func (p *Pair) NotFinite() bool { return p.Elements > 0 && p.At != nil && p.MaxAbs != p.MaxAbs }

// A Meta is a key of the metadata whose values differ. A value is nil if the checkpoint does not
// have the key.
type Meta struct {
	Key string  `json:"key"`
	A   *string `json:"a"`
	B   *string `json:"b"`
}

// An Unread is a tensor that cannot be read, and the reason.
type Unread struct {
	File   string `json:"file"` // name of the checkpoint on the command line
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// A Comparison lists the differences between two checkpoints. Its fields are also the JSON that
// diff prints.
type Comparison struct {
	A         string   `json:"a"`
	B         string   `json:"b"`
	Equal     bool     `json:"equal"`
	OnlyA     []string `json:"only_a"`
	OnlyB     []string `json:"only_b"`
	Different []*Pair  `json:"different"` // tensors in both that differ
	Metadata  []Meta   `json:"metadata"`
	Unread    []Unread `json:"unread,omitempty"` // if not empty, nothing was compared

	Pairs []*Pair `json:"-"` // all pairs, including equal ones
}

// A change is a row of the table: a pair, with texts for its cells.
type change struct {
	*Pair
	ID    int // index of the pair, which is the ID of its row
	Where string
	Bar   int // change in percent of the largest change
}

// changeOf returns the row of a pair.
func changeOf(p *Pair, id int) change {
	c := change{Pair: p, ID: id}
	if p.At != nil {
		c.Where = term.Shape(p.At)
	}
	return c
}

// Kind returns the kind of a pair as a sign: − or + if the tensor is only in A or only in B,
// otherwise ≠ or =.
func (c change) Kind() string {
	switch {
	case c.A == nil:
		return "+"
	case c.B == nil:
		return "−"
	case c.Different:
		return "≠"
	default:
		return "="
	}
}

// TypeA returns dtype and shape in A, or "" if the tensor is absent.
func (c change) TypeA() string {
	if c.A == nil {
		return ""
	}
	return term.Quote(c.A.String(), term.ValueLimit)
}

// TypeB returns dtype and shape in B, "" if the tensor is absent, or "same" if A has the same.
func (c change) TypeB() string {
	switch {
	case c.B == nil:
		return ""
	case c.SameType():
		return "same"
	}
	return term.Quote(c.B.String(), term.ValueLimit)
}

// Measured reports whether the row has a change, because values were compared. The change is NaN
// if two values that differ are not both finite.
func (c change) Measured() bool { return c.Elements > 0 || c.Change == 0 }

// Draw writes the page of a comparison.
func (c *Comparison) Draw(w io.Writer, origin Origin) error {
	order, most := c.byChange()
	data := struct {
		Title string
		*Comparison
		Origin    Origin
		Unchanged int
		Layers    layerMap
		Rows      []change
		Most      float64
		Rest      rest
		Omitted
	}{
		Title: c.A + " → " + c.B, Comparison: c, Origin: origin, Layers: changeMap(c.Pairs), Most: most,
		Unchanged: len(c.Pairs) - len(order),
		Omitted:   Omitted{Listed: min(len(order), maxRows), All: len(order)},
	}
	for _, i := range order[:data.Listed] {
		row := changeOf(c.Pairs[i], i)
		if row.Change > 0 && most > 0 {
			row.Bar = int(math.Ceil(100 * min(float64(row.Change)/most, 1)))
		}
		data.Rows = append(data.Rows, row)
	}
	data.Rest = restOfComparison(c.Pairs, order, data.Listed)
	shown := *c
	shown.Metadata = c.Metadata[:min(len(c.Metadata), maxRows)]
	data.Comparison = &shown
	return pages().ExecuteTemplate(w, "comparison", data)
}

// byChange returns the indices of the pairs that differ, sorted by their change in descending
// order. Pairs that cannot be compared come first. most is the largest finite change.
func (c *Comparison) byChange() (order []int, most float64) {
	for i, p := range c.Pairs {
		if !p.Different {
			continue
		}
		order = append(order, i)
		if x := float64(p.Change); x > most && !math.IsInf(x, 0) {
			most = x
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(-c.Pairs[i].Change, -c.Pairs[j].Change) // NaN is less than any number
	})
	return order, most
}
