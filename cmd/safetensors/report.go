package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

// An output is how a verb shows what it found.
type output struct {
	json bool
	page string // a file, "" for none
}

func (o *output) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print a line of JSON")
	cmd.Flags().StringVar(&o.page, "html", "", "write a `PAGE` for browsers too")
}

// check refuses a page whose name is that of something else, a model perhaps, and one
// whose folder is missing, before hours of reading.
func (o *output) check() error {
	if o.page == "" {
		return nil
	}
	if !strings.HasSuffix(o.page, ".html") {
		return usage("--html %s: the name of the page has to end in .html", o.page)
	}
	return checkFolder("html", o.page)
}

// checkFolder returns an error if the folder of a file that a flag names is missing.
func checkFolder(flag, name string) error {
	if _, err := os.Stat(filepath.Dir(name)); err != nil {
		return fmt.Errorf("--%s %s: %w", flag, term.Name(name), err)
	}
	return nil
}

// draw writes the page, if one is asked for, completely or not at all.
func (o *output) draw(page func(io.Writer) error) error {
	if o.page == "" {
		return nil
	}
	return dest.WriteFile(o.page, page)
}

func reported(names []string, tensors []safetensors.Tensor, summaries []stats.Summary) []report.Tensor {
	all := make([]report.Tensor, len(names))
	for i, t := range tensors {
		all[i] = report.Tensor{Name: names[i], DType: t.DType(), Shape: t.Shape(), Bytes: t.Size(), Summary: summaries[i]}
	}
	return all
}

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
	return n * (s.Std*s.Std + s.Mean*s.Mean)
}
