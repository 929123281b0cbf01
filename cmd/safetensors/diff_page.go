package main

import (
	"io"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
)

// drawComparison writes the page of a comparison. It reads those tensors of b that differ
// again, for their norms.
func drawComparison(w io.Writer, d *comparison, a, b *source.Checkpoint) error {
	different := make(map[string]*unequal)
	var changed []safetensors.Tensor
	for i := range d.Different {
		u := &d.Different[i]
		different[u.Name] = u
		if u.squares > 0 {
			changed = append(changed, b.Tensors[u.Name])
		}
	}
	summaries, _, err := stats.Describe(changed)
	if err != nil {
		return err
	}
	text := func(src *source.Checkpoint, name string) string {
		t, ok := src.Tensors[name]
		if !ok {
			return ""
		}
		return typed{t.DType(), t.Shape()}.String()
	}
	page := report.Compared{A: source.Shown(d.A), B: source.Shown(d.B)}
	for _, name := range slices.Concat(a.Order, d.OnlyB) {
		p := report.Pair{Name: name, A: text(a, name), B: text(b, name)}
		switch u := different[name]; {
		case p.A == "" || p.B == "":
			p.MaxAbs, p.MaxRel, p.Change = math.NaN(), math.NaN(), math.NaN()
		case u != nil:
			p.Different, p.Elements, p.All, p.At = true, u.Elements, u.all, u.At
			p.MaxAbs, p.MaxRel, p.Change = float64(u.MaxAbsolute), float64(u.MaxRelative), u.squares
			if u.squares > 0 {
				p.Change = math.Sqrt(u.squares / squares(summaries[0]))
				summaries = summaries[1:]
			}
		}
		page.Pairs = append(page.Pairs, p)
	}
	for _, m := range d.Metadata {
		page.Metadata = append(page.Metadata, report.Meta(m))
	}
	return report.Comparison(w, page)
}

// squares returns the sum of the squares of the finite values.
func squares(s stats.Summary) float64 {
	n := float64(s.Count - s.NaN - s.Inf)
	return n * float64(s.Std*s.Std+s.Mean*s.Mean)
}
