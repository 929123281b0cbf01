package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/compare"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) diff() *cobra.Command {
	var f diffFlags
	cmd := c.verb("diff A B [--rtol R] [--atol A] [--meta] [--json] [--html PAGE] [flags]", "Compare names, dtypes, shapes, then values", `
Two values are equal if |a-b| <= atol + rtol*|b|; NaNs are equal. Without a tolerance
they are equal if their bits are. Tensors of different dtypes are different, but how far
their values are apart is printed. The exit code is 1 if anything is different.

--rename gives tensors of A the names that they have in B; --only goes by those.

--json prints one line:
  {"a": "...", "b": "...", "equal": false, "only_a": [names], "only_b": [names],
   "different": [{"name", "a": {"dtype", "shape"}, "b": {"dtype", "shape"}, "elements",
                  "max_abs", "max_rel" (null if one of two values is not finite), "at"}],
   "metadata": [{"key", "a", "b"}]}
A and B are each what SRC is for the other commands.
`+sources, `
safetensors diff before.safetensors after.safetensors
safetensors diff model hf://openai-community/gpt2 --rtol 1e-3 --atol 1e-5
safetensors diff model model-fp8 --dequantize
`, cobra.MatchAll(arguments(2, 2), stdinOnce), func(args []string) error {
		if !(f.tolerance.Absolute >= 0 && f.tolerance.Relative >= 0) {
			return usage("a tolerance cannot be negative")
		}
		return c.compare(args[0], args[1], f)
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&f.only, "only", nil, "compare only tensors that match `PATTERN`: *, ? and [a-z], or a name and all below it")
	flags.StringArrayVar(&f.renames, "rename", nil, "rename tensors of A with `s/REGEXP/REPLACEMENT/`, as sed does")
	flags.Float64Var(&f.tolerance.Relative, "rtol", 0, "tolerance relative to the value in B")
	flags.Float64Var(&f.tolerance.Absolute, "atol", 0, "absolute tolerance")
	flags.BoolVar(&f.metadata, "meta", false, "compare the metadata too")
	return cmd
}

type diffFlags struct {
	tolerance     compare.Tolerance
	metadata      bool
	only, renames []string
}

func rename(src *source.Checkpoint, renames []pattern.Rename) error {
	renamed, err := pattern.RenameAll(src.Order, renames)
	if err != nil {
		return fmt.Errorf("%s: %w", storage.Shown(src.Name), err)
	}
	tensors := make(map[string]safetensors.Tensor, len(src.Tensors))
	for i, name := range src.Order {
		tensors[renamed[i]] = src.Tensors[name]
	}
	src.Tensors, src.Order = tensors, renamed
	return nil
}

func (c *command) compare(nameA, nameB string, f diffFlags) error {
	only, noPattern := pattern.ParseSelection(f.only, nil)
	renames, noRename := pattern.Each(f.renames, pattern.ParseRename)
	if err := cmp.Or(noPattern, noRename); err != nil {
		return usageError{err}
	}
	a, sizeA, err := c.openValues(nameA)
	if err != nil {
		return err
	}
	defer a.Close()
	b, sizeB, err := c.openValues(nameB)
	if err != nil {
		return err
	}
	defer b.Close()
	unlike := !c.values && hasCodes(a, a.Order) != hasCodes(b, b.Order)
	if err := rename(a, renames); err != nil {
		return err
	}
	names := slices.Concat(a.Order, slices.DeleteFunc(b.Order, func(name string) bool { _, both := a.Tensors[name]; return both }))
	if names, err = only.Of(names); err != nil {
		return err
	}
	ofA, ofB := int64(0), int64(0)
	for _, name := range names {
		ofA += a.Tensors[name].Size()
		ofB += b.Tensors[name].Size()
	}
	stop := c.progress("diff", min(ofA, sizeA)+min(ofB, sizeB))
	d, err := comparisonOf(names, a, b, f.tolerance)
	stop()
	if err != nil {
		return err
	}
	if f.metadata {
		d.Metadata = compareMetadata(a.Metadata, b.Metadata)
	}
	d.Equal = len(d.OnlyA)+len(d.OnlyB)+len(d.Different)+len(d.Metadata) == 0
	if unlike && !d.Equal {
		c.opener.Note("one of the two has codes and scales of quantised tensors; --dequantize compares the numbers")
	}
	if err := c.drawPage(func(w io.Writer) error { return drawComparison(w, d, b.Tensors) }); err != nil {
		return err
	}
	err = c.print(d, func() { c.printComparison(d) })
	if err == nil && !d.Equal {
		err = errDifferent
	}
	return err
}

// comparisonOf compares the tensors with those names, each of which is in a, in b or in both.
func comparisonOf(names []string, a, b *source.Checkpoint, tolerance compare.Tolerance) (*report.Comparison, error) {
	d := &report.Comparison{A: a.Name, B: b.Name, OnlyA: []string{}, OnlyB: []string{}, Different: []*report.Pair{}, Metadata: []report.Meta{}}
	for _, name := range names {
		x, inA := a.Tensors[name]
		y, inB := b.Tensors[name]
		none := numbers.Float(math.NaN())
		p := &report.Pair{Name: name, Different: true, MaxAbs: none, MaxRel: none, Change: none}
		switch {
		case !inB:
			p.A, d.OnlyA = report.TypeOf(x), append(d.OnlyA, name)
		case !inA:
			p.B, d.OnlyB = report.TypeOf(y), append(d.OnlyB, name)
		default:
			var err error
			if p, err = comparePair(name, x, y, tolerance); err != nil {
				return nil, fmt.Errorf("tensor %q: %w", name, term.Bare(err))
			}
			if p.Different {
				d.Different = append(d.Different, p)
			}
		}
		d.Pairs = append(d.Pairs, p)
	}
	return d, nil
}

// comparePair compares two tensors. Until the page is drawn, Change is the square of the norm
// of their difference.
func comparePair(name string, x, y safetensors.Tensor, tolerance compare.Tolerance) (*report.Pair, error) {
	p := &report.Pair{Name: name, A: report.TypeOf(x), B: report.TypeOf(y)}
	if !slices.Equal(x.Shape(), y.Shape()) {
		p.Different, p.Of, p.Change = true, numbers.Count(x), numbers.Float(math.NaN())
		return p, nil
	}
	found, err := compare.Values(x, y, tolerance)
	if p.Different = found.Different > 0 || x.DType() != y.DType(); p.Different {
		p.Elements, p.Of, p.At = found.Different, numbers.Count(x), found.At
		p.MaxAbs, p.MaxRel, p.Change = numbers.Float(found.MaxAbsolute), numbers.Float(found.MaxRelative), numbers.Float(found.Squares)
	}
	return p, err
}

func compareMetadata(a, b map[string]string) []report.Meta {
	pairs := []report.Meta{}
	for _, key := range slices.Sorted(maps.Keys(withPairs(a, b))) {
		p := report.Meta{Key: key}
		if value, ok := a[key]; ok {
			p.A = &value
		}
		if value, ok := b[key]; ok {
			p.B = &value
		}
		if p.A == nil || p.B == nil || *p.A != *p.B {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// drawComparison writes the page of a comparison with b. It reads those tensors of b that
// differ again, for their norms.
func drawComparison(w io.Writer, d *report.Comparison, b map[string]safetensors.Tensor) error {
	var changed []*report.Pair
	var tensors []safetensors.Tensor
	for _, p := range d.Different {
		if p.Change > 0 {
			changed = append(changed, p)
			tensors = append(tensors, b[p.Name])
		}
	}
	summaries, _, err := stats.Describe(tensors)
	for i, s := range summaries {
		finite := numbers.Float(s.Count - s.NaN - s.Inf)
		norm := finite * (s.Std*s.Std + s.Mean*s.Mean)
		changed[i].Change = numbers.Float(math.Sqrt(float64(changed[i].Change / norm)))
	}
	if err != nil {
		return err
	}
	page := *d
	page.A, page.B = storage.Shown(d.A), storage.Shown(d.B)
	return page.Draw(w)
}

func (c *command) printComparison(d *report.Comparison) {
	for _, name := range d.OnlyA {
		fmt.Fprintf(c.out, "- %s\n", term.Name(name))
	}
	for _, name := range d.OnlyB {
		fmt.Fprintf(c.out, "+ %s\n", term.Name(name))
	}
	for _, u := range d.Different {
		var facts []string
		if u.A.DType != u.B.DType || !slices.Equal(u.A.Shape, u.B.Shape) {
			facts = append(facts, fmt.Sprintf("%v in A, %v in B", u.A, u.B))
		}
		if u.Elements > 0 {
			where := "in their bits only"
			if u.At != nil {
				where = fmt.Sprintf("largest error %s (relative %s) at %s", errorText(u.MaxAbs), errorText(u.MaxRel), term.Shape(u.At))
			}
			facts = append(facts, fmt.Sprintf("%s of %s elements, %s", term.Count(u.Elements), term.Count(u.Of), where))
		}
		fmt.Fprintf(c.out, "! %s: %s\n", term.Name(u.Name), strings.Join(facts, "; "))
	}
	for _, p := range d.Metadata {
		fmt.Fprintf(c.out, "! metadata %s: %s in A, %s in B\n", term.Name(p.Key), valueText(p.A), valueText(p.B))
	}
	if d.Equal {
		fmt.Fprintln(c.out, "equal")
	}
}

// errorText shows an error, which is NaN where only one of two values is finite.
func errorText(n numbers.Float) string {
	if n != n {
		return "infinite"
	}
	return n.String()
}

func valueText(value *string) string {
	if value == nil {
		return "absent"
	}
	return term.Quote(*value, term.ValueLimit)
}
