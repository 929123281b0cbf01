package report

import (
	"fmt"
	"io"
	"math"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A Pair is what two checkpoints have under a name.
type Pair struct {
	Name           string
	A, B           string // dtype and shape, "" where there is none
	Different      bool
	Elements, All  int64 // those that are different, of how many; 0 if shapes are different
	MaxAbs, MaxRel float64
	At             []int   // where MaxAbs is, nil if nowhere
	Change         float64 // the norm of A-B over that of B; NaN if unknown
}

// A Meta is a key of the metadata with different values, which are nil where it is absent.
type Meta struct {
	Key  string
	A, B *string
}

// Compared is what Comparison shows: all names of both, equal ones too.
type Compared struct {
	A, B     string
	Pairs    []Pair
	Metadata []Meta
}

// A change is a row of the page.
type change struct {
	Pair
	MaxAbs, MaxRel, Change figure
	Where                  string
	Sign                   string
	Share                  int
}

// Comparison writes the page of a comparison.
func Comparison(w io.Writer, c Compared) error {
	data := struct {
		frame
		Compared
		Equal, Changed, OnlyA, OnlyB int
		Layers                       layerMap
		Rows                         []change
		Omitted
	}{frame: frameOf(c.A + " → " + c.B), Compared: c, Layers: changeMap(c.Pairs)}
	var different []*Pair
	most := 0.0
	for i := range c.Pairs {
		p := &c.Pairs[i]
		switch {
		case p.A == "":
			data.OnlyB++
		case p.B == "":
			data.OnlyA++
		case p.Different:
			data.Changed++
		default:
			data.Equal++
			continue
		}
		different = append(different, p)
		if p.Change > most && !math.IsInf(p.Change, 0) {
			most = p.Change
		}
	}
	listed := largest(len(different), func(i int) (bool, float64) {
		return math.IsNaN(different[i].Change), different[i].Change
	})
	for _, i := range listed {
		data.Rows = append(data.Rows, changeOf(different[i], most))
	}
	data.Omitted = Omitted{Listed: len(listed), All: len(different)}
	data.Metadata = c.Metadata[:min(len(c.Metadata), maxRows)]
	return pages.ExecuteTemplate(w, "comparison", data)
}

func changeOf(p *Pair, most float64) change {
	c := change{Pair: *p, MaxAbs: figure(p.MaxAbs), MaxRel: figure(p.MaxRel), Change: figure(p.Change), Sign: "≠"}
	switch {
	case p.A == "":
		c.Sign = "+"
	case p.B == "":
		c.Sign = "−"
	}
	if p.At != nil {
		c.Where = term.Shape(p.At)
	}
	if p.Change > 0 && most > 0 {
		c.Share = int(math.Ceil(100 * min(p.Change/most, 1)))
	}
	return c
}

// changeMap returns the map of tensors by their change.
func changeMap(pairs []Pair) layerMap {
	names := make([]string, len(pairs))
	for i := range pairs {
		names[i] = pairs[i].Name
	}
	return layersOf(names, []string{"relative change"}, func(members []int) ([]float64, bool, string) {
		most, unknown, changed := 0.0, 0, 0
		for _, i := range members {
			p := &pairs[i]
			switch {
			case math.IsNaN(p.Change):
				unknown++
			case p.Different:
				changed++
				most = max(most, p.Change)
			}
		}
		text := "equal"
		if changed > 0 {
			text = fmt.Sprintf("relative change %v", figure(most))
		}
		if p := pairs[members[0]]; len(members) == 1 && unknown == 1 {
			text = fmt.Sprintf("%s in A, %s in B", orAbsent(p.A), orAbsent(p.B))
		} else if unknown > 0 {
			text += fmt.Sprintf(", %s not comparable", term.Count(int64(unknown)))
		}
		return []float64{most}, unknown > 0, text
	})
}

func orAbsent(s string) string {
	if s == "" {
		return "absent"
	}
	return term.Quote(s, term.ValueLimit)
}
