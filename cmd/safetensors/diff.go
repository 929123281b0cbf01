package main

import (
	"cmp"
	"errors"
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
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) diff() *cobra.Command {
	var f diffFlags
	cmd := c.verb("diff A B [--rtol R] [--atol A] [--meta] [--json] [--html PAGE] [flags]", "Compare names, dtypes, shapes, then values", `
With --atol A and --rtol R, two values are equal if |a-b| <= A + R*|b|; two NaNs are
equal. With a tolerance, tensors of the same shape are equal if all their values are, even
if their dtypes differ; a note names these. Without a tolerance, or if both are 0, values
are equal if their bits are, and tensors of different dtypes are different. "changed by
5.0 %" is the norm of A-B divided by the norm of B, over all elements, also those within
the tolerance; "the most by 0.5" is of those beyond it. The exit code is 1 if anything is
different.

--rename gives tensors of A the names that they have in B; --only and --except select by
the new names. A tensor that cannot be read, such as one of complex128, is an error unless
--except leaves it out. Tensors are in the order of ls --sort name: layers.2 comes before
layers.10.

--json prints one line:
  {"a": "...", "b": "...", "equal": false, "only_a": [names], "only_b": [names],
   "different": [{"name", "a": {"dtype", "shape"}, "b": {"dtype", "shape"}, "elements",
                  "max_abs", "max_rel" (of the elements beyond the tolerance; max_rel
                  leaves out elements that are 0 in B), "at" (the place of max_abs),
                  "share" of the elements that are different,
                  "change": the norm of A-B divided by the norm of B}],
   "metadata": [{"key", "a", "b"}],
   "unread": [{"file", "name", "reason"}]}: present if tensors cannot be read; then
   nothing is compared
"max_abs", "max_rel" and "change" are null where they do not exist: other shapes, NaN or
infinity in values that differ, a B of zeros (for "max_rel", zeros in all elements that
differ), or squares that are too small or too large for a float64. "share" and "at" are
null for other shapes, and "at" also if no value differs, only bits or dtypes.

A and B can be whatever SRC can be.
`+sources, `
safetensors diff before.safetensors after.safetensors
safetensors diff model hf://openai-community/gpt2 --rtol 1e-3 --atol 1e-5
safetensors diff model model-fp8 --dequantize
`, cobra.MatchAll(arguments(2, 2), stdinOnce), func(args []string) error {
		if err := cmp.Or(checkTolerance("atol", f.tolerance.Absolute), checkTolerance("rtol", f.tolerance.Relative)); err != nil {
			return err
		}
		return c.compare(args[0], args[1], f)
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&f.only, "only", nil, "compare only tensors that match `PATTERN`: *, ? and [a-z], or a name and all below it")
	flags.StringArrayVar(&f.except, "except", nil, "leave out tensors that match `PATTERN`")
	flags.StringArrayVar(&f.renames, "rename", nil, "rename tensors of A with `s/REGEXP/REPLACEMENT/`, as in cp")
	flags.Float64Var(&f.tolerance.Relative, "rtol", 0, "tolerance `R` relative to the value in B")
	flags.Float64Var(&f.tolerance.Absolute, "atol", 0, "absolute tolerance `A`")
	flags.BoolVar(&f.metadata, "meta", false, "compare the metadata too")
	return cmd
}

type diffFlags struct {
	tolerance    compare.Tolerance
	metadata     bool
	only, except []string
	renames      []string
}

// checkTolerance returns an error unless a tolerance is a finite number that is not negative.
func checkTolerance(flag string, value float64) error {
	if !(value >= 0 && value <= math.MaxFloat64) {
		return usage("--%s: expected a finite number, 0 or more, got %g", flag, value)
	}
	return nil
}

// rename renames all entries of a source, and the other names of its tied tensors.
func rename(src *source.Checkpoint, renames []pattern.Rename) error {
	aliases := aliasesOf(src)
	names := slices.Concat(namesOf(src), slices.Sorted(maps.Keys(aliases)))
	renamed, err := pattern.RenameAll(names, renames)
	if err != nil {
		return fmt.Errorf("%s: %w", storage.Shown(src.Name), err)
	}
	tensors := make(map[string]safetensors.Tensor, len(src.Tensors))
	refused := make(map[string]error, len(src.Refused))
	for i, name := range names {
		if i < len(src.Order) {
			tensors[renamed[i]] = src.Tensors[name]
		} else if why, ok := src.Refused[name]; ok {
			refused[renamed[i]] = why
		}
	}
	src.Metadata = withAliases(src.Metadata, aliases, tieAliases(names, renamed, aliases))
	src.Tensors, src.Order, src.Refused = tensors, renamed[:len(src.Order)], refused
	return nil
}

func (c *command) compare(nameA, nameB string, f diffFlags) error {
	only, noPattern := pattern.ParseSelection(f.only, f.except)
	renames, noRename := pattern.Each(f.renames, pattern.ParseRename)
	if err := cmp.Or(noPattern, noRename); err != nil {
		return usageError{err}
	}
	c.opener.KeyOfSome = true
	a, sizeA, err := c.openAll(nameA, c.opener.OpenRead)
	if err != nil {
		return err
	}
	defer a.Close()
	b, sizeB, err := c.openAll(nameB, c.opener.OpenRead)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := c.opener.CheckKey(a, b); err != nil {
		return err
	}
	codesA, errA := hasCodes(a, a.Order)
	codesB, errB := hasCodes(b, b.Order)
	if err := cmp.Or(errA, errB); err != nil {
		return err
	}
	unlike := !c.values && codesA != codesB
	if err := rename(a, renames); err != nil {
		return err
	}
	a, b = withNamesOf(a, b.Tensors), withNamesOf(b, a.Tensors)
	names, err := c.namesToCompare(a, b, only)
	if err != nil {
		return err
	}
	if !f.metadata {
		c.noteNamesOfOne(a, b, names)
		c.noteNamesOfOne(b, a, names)
	}
	ofA, ofB := int64(0), int64(0)
	for _, name := range names {
		ofA += a.Tensors[name].Size()
		ofB += b.Tensors[name].Size()
	}
	stop := c.progress("diff", min(ofA, sizeA)+min(ofB, sizeB))
	d, err := comparisonOf(names, a, b, f.tolerance)
	stop()
	if broken := new(compare.ReadError); errors.As(err, &broken) {
		return c.opener.Named([]string{a.Name, b.Name}[broken.Of], err)
	}
	if err != nil {
		return err
	}
	if f.metadata {
		d.Metadata = compareMetadata(a.Metadata, b.Metadata)
	}
	d.Equal = len(d.OnlyA)+len(d.OnlyB)+len(d.Different)+len(d.Metadata) == 0
	c.noteDTypes(d.Pairs)
	if unlike && !d.Equal {
		c.opener.Note("one of the two has codes and scales of quantised tensors; --dequantize compares the numbers")
	}
	if err := c.drawPage(func(w io.Writer, origin report.Origin) error { return drawComparison(w, origin, d) }); err != nil {
		return err
	}
	err = c.print(d, func() { c.printComparison(d, f.tolerance) })
	if err == nil && !d.Equal {
		err = errDifferent
	}
	return err
}

// namesToCompare returns the selected names of the tensors of two sources, in the order of
// pattern.Compare. It is an error if one of these tensors cannot be read; with --json it prints
// their names.
func (c *command) namesToCompare(a, b *source.Checkpoint, selection pattern.Selection) ([]string, error) {
	seen := make(map[string]bool)
	names, err := selection.Of(slices.DeleteFunc(slices.Concat(namesOf(a), namesOf(b), commonAliases(a, b, selection)), func(name string) bool {
		twice := seen[name]
		seen[name] = true
		return twice
	}))
	names = c.compareAliases(names, a, b)
	if names, err = selected(names, err, c.values, "--dequantize compares its numbers", a, b); err != nil {
		return nil, err
	}
	slices.SortFunc(names, pattern.Compare)
	d := &report.Comparison{A: a.Name, B: b.Name, OnlyA: []string{}, OnlyB: []string{}, Different: []*report.Pair{}, Metadata: []report.Meta{}}
	unreadA, errA := unread(a, names)
	unreadB, errB := unread(b, names)
	if d.Unread = slices.Concat(unreadA, unreadB); len(d.Unread) > 0 {
		return nil, cmp.Or(c.print(d, func() {}), errors.Join(errA, errB))
	}
	return slices.DeleteFunc(names, func(name string) bool { // removes objects, which are in neither
		_, inA := a.Tensors[name]
		_, inB := b.Tensors[name]
		return !inA && !inB
	}), nil
}

// comparisonOf compares the tensors with these names. Each name is in a, in b or in both.
func comparisonOf(names []string, a, b *source.Checkpoint, tolerance compare.Tolerance) (*report.Comparison, error) {
	d := &report.Comparison{A: a.Name, B: b.Name, OnlyA: []string{}, OnlyB: []string{}, Different: []*report.Pair{}, Metadata: []report.Meta{}}
	for _, name := range names {
		x, inA := a.Tensors[name]
		y, inB := b.Tensors[name]
		none := numbers.Float(math.NaN())
		p := &report.Pair{Name: name, Different: true, MaxAbs: none, MaxRel: none, Share: none, Change: none}
		switch {
		case !inB:
			p.A, d.OnlyA = report.TypeOf(x), append(d.OnlyA, name)
		case !inA:
			p.B, d.OnlyB = report.TypeOf(y), append(d.OnlyB, name)
		default:
			var err error
			if p, err = comparePair(name, x, y, tolerance); err != nil {
				return nil, ofTensor(name, err)
			}
			if p.Different {
				d.Different = append(d.Different, p)
			}
		}
		d.Pairs = append(d.Pairs, p)
	}
	return d, nil
}

// comparePair compares two tensors.
func comparePair(name string, x, y safetensors.Tensor, tolerance compare.Tolerance) (*report.Pair, error) {
	p := &report.Pair{Name: name, A: report.TypeOf(x), B: report.TypeOf(y)}
	if !slices.Equal(x.Shape(), y.Shape()) {
		none := numbers.Float(math.NaN())
		p.Different, p.Of = true, numbers.Count(x)
		p.MaxAbs, p.MaxRel, p.Share, p.Change = none, none, none, none
		return p, nil
	}
	found, norm, err := compare.ValuesAndNorm(x, y, tolerance)
	exact := tolerance == compare.Tolerance{}
	if p.Different = found.Different > 0 || exact && x.DType() != y.DType(); p.Different {
		p.Elements, p.Of, p.At = found.Different, numbers.Count(x), found.At
		p.MaxAbs, p.MaxRel = numbers.Float(found.MaxAbsolute), numbers.Float(found.MaxRelative)
		if found.At != nil && found.MaxRelative == 0 { // b is 0 wherever a differs from it, so that there is no ratio
			p.MaxRel = numbers.Float(math.NaN())
		}
		p.Share = numbers.Float(float64(found.Different) / float64(max(p.Of, 1)))
		const least = 0x1p-900 // the least sum of squares that is exact: below, squares of the differences may have become 0
		switch {
		case found.At != nil && found.Squares < least:
			p.Change = numbers.Float(math.NaN())
		case found.Squares != 0: // true for NaN
			p.Change = numbers.Float(math.Sqrt(found.Squares / norm))
		}
	}
	return p, err
}

// noteDTypes notes the tensors that are equal within the tolerance although their dtypes differ.
func (c *command) noteDTypes(pairs []*report.Pair) {
	others := slices.DeleteFunc(slices.Clone(pairs), func(p *report.Pair) bool { return p.Different || p.SameType() })
	if len(others) == 0 {
		return
	}
	text, verb := "", "are"
	for i, p := range others[:min(len(others), 3)] {
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("%s is %v in A, %v in B", term.Name(p.Name), p.A.DType, p.B.DType)
	}
	if len(others) > 3 {
		text += "; …"
	}
	if len(others) == 1 {
		verb = "is"
	}
	c.opener.Note(fmt.Sprintf("%s of other dtypes %s equal within the tolerance: %s", term.Plural(len(others), "tensor"), verb, text))
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

// drawComparison writes the page of a comparison.
func drawComparison(w io.Writer, origin report.Origin, d *report.Comparison) error {
	page := *d
	page.A, page.B = storage.Shown(d.A), storage.Shown(d.B)
	return page.Draw(w, origin)
}

// printComparison prints a line for each difference, and the verdict. tolerance is that with which values were compared.
func (c *command) printComparison(d *report.Comparison, tolerance compare.Tolerance) {
	over, beyond := "", ""
	if tolerance != (compare.Tolerance{}) { // the percentage is of all elements, their number is of those beyond the tolerance
		over, beyond = " over all elements,", " beyond the tolerance"
	}
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
			if u.Share == 0 { // NaN if the values cannot be compared
				facts = append(facts, "the same values")
			}
		}
		if u.Elements > 0 {
			elements := fmt.Sprintf("%s of %s elements", term.Count(u.Elements), term.Count(u.Of))
			switch {
			case u.At == nil:
				facts = append(facts, fmt.Sprintf("changed in the bits of %s, not in their values", elements))
			case u.NotFinite():
				facts = append(facts, fmt.Sprintf("changed%s in %s, and not both are finite at %s", beyond, elements, term.Shape(u.At)))
			default:
				facts = append(facts, fmt.Sprintf("%s%s in %s, the most by %s at %s", changeText(u.Change, over), beyond, elements, u.MaxAbs, term.Shape(u.At)))
			}
		}
		fmt.Fprintf(c.out, "! %s: %s\n", term.Name(u.Name), strings.Join(facts, "; "))
	}
	for _, p := range d.Metadata {
		fmt.Fprintf(c.out, "! metadata %s: %s in A, %s in B\n", term.Name(p.Key), valueText(p.A), valueText(p.B))
	}
	fmt.Fprintln(c.out, d.Verdict())
}

// changeText formats a relative change, and then over, the words about its elements. It omits both if the change is NaN,
// because two values that differ are not both finite or because the squares of the differences are too small, or
// infinite, because the tensor was zero.
func changeText(change numbers.Float, over string) string {
	if math.IsNaN(float64(change)) || math.IsInf(float64(change), 1) {
		return "changed"
	}
	return "changed by " + change.Percent() + over
}

func valueText(value *string) string {
	if value == nil {
		return "absent"
	}
	return term.Quote(*value, term.ValueLimit)
}
