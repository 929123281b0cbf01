package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/compare"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) diff() *cobra.Command {
	var tolerance compare.Tolerance
	var metadata, values bool
	var out output
	var only, renames []string
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
		if !(tolerance.Absolute >= 0 && tolerance.Relative >= 0) {
			return usage("a tolerance cannot be negative")
		}
		s, err := parseSubset(only, renames)
		if err != nil {
			return usageError{err}
		}
		return c.compare(args[0], args[1], s, tolerance, metadata, values, out)
	})
	cmd.Flags().StringArrayVar(&only, "only", nil, "compare only tensors that match `PATTERN`: *, ? and [a-z], or a name and all below it")
	cmd.Flags().StringArrayVar(&renames, "rename", nil, "rename tensors of A with `s/REGEXP/REPLACEMENT/`, as sed does")
	dequantizeFlag(cmd, &values)
	cmd.Flags().Float64Var(&tolerance.Relative, "rtol", 0, "tolerance relative to the value in B")
	cmd.Flags().Float64Var(&tolerance.Absolute, "atol", 0, "absolute tolerance")
	cmd.Flags().BoolVar(&metadata, "meta", false, "compare the metadata too")
	out.flags(cmd)
	return cmd
}

// A comparison is what diff found. Its fields are those of the JSON form.
type comparison struct {
	A         string     `json:"a"`
	B         string     `json:"b"`
	Equal     bool       `json:"equal"`
	OnlyA     []string   `json:"only_a"`
	OnlyB     []string   `json:"only_b"`
	Different []unequal  `json:"different"`
	Metadata  []metaPair `json:"metadata"`
}

// An unequal is a tensor that is different.
type unequal struct {
	Name        string        `json:"name"`
	A           typed         `json:"a"`
	B           typed         `json:"b"`
	Elements    int64         `json:"elements"` // that are different; 0 if shapes are
	MaxAbsolute numbers.Float `json:"max_abs"`
	MaxRelative numbers.Float `json:"max_rel"`
	At          []int         `json:"at"` // where MaxAbsolute is; null if nowhere
	all         int64
	squares     float64 // NaN if they cannot be compared
}

// A metaPair is a key of metadata with different values, null where it is absent.
type metaPair struct {
	Key string  `json:"key"`
	A   *string `json:"a"`
	B   *string `json:"b"`
}

// A subset is the tensors to compare.
type subset struct {
	only    pattern.Selection
	renames []pattern.Rename
}

func parseSubset(only, renames []string) (s subset, err error) {
	if s.only, err = pattern.ParseSelection(only, nil); err != nil {
		return s, err
	}
	s.renames, err = parseRenames(renames)
	return s, err
}

// apply renames the tensors of A, and leaves out those that are not to be compared. A
// pattern may match in one of the two only.
func (s subset) apply(a, b *source.Checkpoint) error {
	if err := rename(a, s.renames); err != nil {
		return err
	}
	selected, err := s.only.Of(slices.Concat(a.Order, b.Order))
	if err != nil {
		return err
	}
	in := make(map[string]bool)
	for _, name := range selected {
		in[name] = true
	}
	for _, src := range []*source.Checkpoint{a, b} {
		src.Order = slices.DeleteFunc(src.Order, func(name string) bool { return !in[name] })
		maps.DeleteFunc(src.Tensors, func(name string, _ safetensors.Tensor) bool { return !in[name] })
	}
	return nil
}

// rename renames the tensors of a source.
func rename(src *source.Checkpoint, renames []pattern.Rename) error {
	if err := pattern.CheckRenames(src.Order, renames); err != nil {
		return err
	}
	tensors := make(map[string]safetensors.Tensor, len(src.Tensors))
	for i, name := range src.Order {
		renamed := pattern.Renamed(name, renames)
		if _, taken := tensors[renamed]; taken {
			return fmt.Errorf("two tensors of %s would be named %q", source.Shown(src.Name), renamed)
		}
		tensors[renamed] = src.Tensors[name]
		src.Order[i] = renamed
	}
	src.Tensors = tensors
	return nil
}

func (c *command) compare(nameA, nameB string, s subset, tolerance compare.Tolerance, metadata, values bool, out output) error {
	if err := out.check(); err != nil {
		return err
	}
	a, sizeA, err := c.openValues(nameA, values)
	if err != nil {
		return err
	}
	defer a.Close()
	b, sizeB, err := c.openValues(nameB, values)
	if err != nil {
		return err
	}
	defer b.Close()
	unlike := !values && hasCodes(a, a.Order) != hasCodes(b, b.Order)
	if err := s.apply(a, b); err != nil {
		return err
	}
	stop := c.progress("diff", min(a.Size(), sizeA)+min(b.Size(), sizeB))
	d, err := comparisonOf(a, b, tolerance)
	stop()
	if err != nil {
		return err
	}
	if metadata {
		d.Metadata = compareMetadata(a.Metadata, b.Metadata)
	}
	d.Equal = len(d.OnlyA)+len(d.OnlyB)+len(d.Different)+len(d.Metadata) == 0
	if unlike && !d.Equal {
		c.opener.Note("one of the two has codes and scales of quantised tensors; --dequantize compares the numbers")
	}
	if err := out.draw(func(w io.Writer) error { return drawComparison(w, d, a, b) }); err != nil {
		return err
	}
	if out.json {
		err = term.PrintJSON(c.out, d)
	} else {
		c.printComparison(d)
	}
	if err == nil && !d.Equal {
		err = errDifferent
	}
	return err
}

// comparisonOf compares the tensors of two sources.
func comparisonOf(a, b *source.Checkpoint, tolerance compare.Tolerance) (*comparison, error) {
	d := &comparison{A: a.Name, B: b.Name, OnlyA: []string{}, OnlyB: []string{}, Different: []unequal{}, Metadata: []metaPair{}}
	for _, name := range b.Order {
		if _, ok := a.Tensors[name]; !ok {
			d.OnlyB = append(d.OnlyB, name)
		}
	}
	for _, name := range a.Order {
		x := a.Tensors[name]
		y, ok := b.Tensors[name]
		if !ok {
			d.OnlyA = append(d.OnlyA, name)
			continue
		}
		u := unequal{Name: name, A: typed{x.DType(), x.Shape()}, B: typed{y.DType(), y.Shape()}, all: numbers.Count(x), squares: math.NaN()}
		if slices.Equal(x.Shape(), y.Shape()) {
			found, err := compare.Values(x, y, tolerance)
			if err != nil {
				return nil, fmt.Errorf("tensor %q: %w", name, term.Bare(err))
			}
			u.Elements, u.MaxAbsolute, u.MaxRelative, u.At = found.Different, numbers.Float(found.MaxAbsolute), numbers.Float(found.MaxRelative), found.At
			u.squares = found.Squares
			if u.Elements == 0 && u.A.DType == u.B.DType {
				continue
			}
		}
		d.Different = append(d.Different, u)
	}
	return d, nil
}

func compareMetadata(a, b map[string]string) []metaPair {
	pairs := []metaPair{}
	all := maps.Clone(a)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		p := metaPair{Key: key}
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

func (c *command) printComparison(d *comparison) {
	for _, name := range d.OnlyA {
		fmt.Fprintf(c.out, "- %s\n", term.Name(name))
	}
	for _, name := range d.OnlyB {
		fmt.Fprintf(c.out, "+ %s\n", term.Name(name))
	}
	for _, u := range d.Different {
		fmt.Fprintf(c.out, "! %s: ", term.Name(u.Name))
		if u.A.DType != u.B.DType || !slices.Equal(u.A.Shape, u.B.Shape) {
			fmt.Fprintf(c.out, "%v in A, %v in B", u.A, u.B)
			if u.Elements > 0 {
				fmt.Fprint(c.out, "; ")
			}
		}
		if u.Elements > 0 {
			fmt.Fprintf(c.out, "%s of %s elements", term.Count(u.Elements), term.Count(u.all))
			if u.At == nil {
				fmt.Fprint(c.out, ", in their bits only")
			} else {
				fmt.Fprintf(c.out, ", largest error %s (relative %s) at %s", errorText(u.MaxAbsolute), errorText(u.MaxRelative), shape(u.At))
			}
		}
		fmt.Fprintln(c.out)
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
