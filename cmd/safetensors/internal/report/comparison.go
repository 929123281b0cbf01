package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A Type is that of a tensor.
type Type struct {
	DType safetensors.DType `json:"dtype"`
	Shape []int             `json:"shape"`
}

// TypeOf returns the type of a tensor.
func TypeOf(t safetensors.Tensor) *Type { return &Type{t.DType(), t.Shape()} }

// String returns dtype and shape as in the file, BF16 [2,3]. That of nil is "".
func (t *Type) String() string {
	if t == nil {
		return ""
	}
	return t.DType.String() + " " + term.Shape(t.Shape)
}

// A Pair is what two checkpoints have under a name.
type Pair struct {
	Name     string        `json:"name"`
	A        *Type         `json:"a"` // nil where there is none
	B        *Type         `json:"b"`
	Elements int64         `json:"elements"` // that are different; 0 if shapes are
	MaxAbs   numbers.Float `json:"max_abs"`
	MaxRel   numbers.Float `json:"max_rel"`
	At       []int         `json:"at"` // where MaxAbs is; nil if nowhere

	Different bool          `json:"-"` // or in one of the two only
	Of        int64         `json:"-"` // elements
	Change    numbers.Float `json:"-"` // the norm of A-B over that of B; NaN if unknown
}

// SameType reports whether both have the dtype and the shape.
func (p *Pair) SameType() bool {
	return p.A != nil && p.B != nil && p.A.DType == p.B.DType && slices.Equal(p.A.Shape, p.B.Shape)
}

// A Meta is a key of the metadata with different values, which are nil where it is absent.
type Meta struct {
	Key string  `json:"key"`
	A   *string `json:"a"`
	B   *string `json:"b"`
}

// A Comparison is how two checkpoints differ. Its fields are those of the JSON of diff.
type Comparison struct {
	A         string   `json:"a"`
	B         string   `json:"b"`
	Equal     bool     `json:"equal"`
	OnlyA     []string `json:"only_a"`
	OnlyB     []string `json:"only_b"`
	Different []*Pair  `json:"different"` // of those in both
	Metadata  []Meta   `json:"metadata"`

	Pairs []*Pair `json:"-"` // all of them, equal ones too
}

type change struct {
	*Pair
	Where string
	Share int
}

// Draw writes the page of a comparison.
func (c *Comparison) Draw(w io.Writer) error {
	data := struct {
		Title string
		Comparison
		Unchanged int
		Layers    layerMap
		Rows      []change
		Omitted
	}{Title: c.A + " → " + c.B, Comparison: *c, Layers: changeMap(c.Pairs)}
	var different []*Pair
	most := 0.0
	for _, p := range c.Pairs {
		if !p.Different {
			data.Unchanged++
			continue
		}
		different = append(different, p)
		if x := float64(p.Change); x > most && !math.IsInf(x, 0) {
			most = x
		}
	}
	slices.SortStableFunc(different, func(a, b *Pair) int { return cmp.Compare(-a.Change, -b.Change) }) // NaN first
	for _, p := range different[:min(len(different), maxRows)] {
		row := change{Pair: p}
		if p.At != nil {
			row.Where = term.Shape(p.At)
		}
		if p.Change > 0 && most > 0 {
			row.Share = int(math.Ceil(100 * min(float64(p.Change)/most, 1)))
		}
		data.Rows = append(data.Rows, row)
	}
	data.Omitted = Omitted{Listed: len(data.Rows), All: len(different)}
	data.Metadata = c.Metadata[:min(len(c.Metadata), maxRows)]
	return pages.ExecuteTemplate(w, "comparison", data)
}

// changeMap returns the map of tensors by their change.
func changeMap(pairs []*Pair) layerMap {
	names := make([]string, len(pairs))
	for i, p := range pairs {
		names[i] = p.Name
	}
	return layersOf(names, []string{"relative change"}, func(members []int) ([]float64, bool, string) {
		most, unknown, changed := 0.0, 0, 0
		for _, i := range members {
			p := pairs[i]
			switch change := float64(p.Change); {
			case math.IsNaN(change):
				unknown++
			case p.Different:
				changed++
				most = max(most, change)
			}
		}
		text := "equal"
		if changed > 0 {
			text = fmt.Sprintf("relative change %s", figure(numbers.Float(most)))
		}
		if p := pairs[members[0]]; len(members) == 1 && unknown == 1 {
			text = fmt.Sprintf("%s in A, %s in B", orAbsent(p.A), orAbsent(p.B))
		} else if unknown > 0 {
			text += fmt.Sprintf(", %s not comparable", term.Count(int64(unknown)))
		}
		return []float64{most}, unknown > 0, text
	})
}

func orAbsent(t *Type) string {
	if t == nil {
		return "absent"
	}
	return term.Quote(t.String(), term.ValueLimit)
}
