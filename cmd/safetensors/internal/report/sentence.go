package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// Verdict returns the result of a comparison in a line: "equal", or how many tensors differ.
func (c *Comparison) Verdict() string {
	if c.Equal {
		return "equal"
	}
	if c.both() == 0 {
		return "no name in common: " + strings.Join(c.elsewhere(), ", ")
	}
	return strings.Join(append([]string{c.differ()}, c.elsewhere()...), ", ")
}

// Sentence returns the result of a comparison as the first sentence of its page. It contains how many tensors differ, what
// their names have in common, how much they have changed, and in how many of them values that are not finite differ.
func (c *Comparison) Sentence() string {
	both, text := c.both(), c.differ()
	switch {
	case both == 0:
		text = "A and B have no tensor in common"
	case len(c.Different) == 0:
		text = fmt.Sprintf("All %s tensors in both are equal", term.Count(int64(both)))
		if both == 1 {
			text = "The only tensor in both is equal"
		}
	default:
		if which := c.which(); which != "" {
			text += ", " + which
		}
		if by := c.by(); by != "" {
			text += "; changed by " + by
		}
		if n := c.notFinite(); n > 0 {
			text += fmt.Sprintf("; %s with NaN or infinity", term.Count(int64(n)))
		}
	}
	if elsewhere := c.elsewhere(); len(elsewhere) > 0 {
		text += "; " + strings.Join(elsewhere, ", ")
	}
	return text + "."
}

// both returns the number of tensors that are in A and in B.
func (c *Comparison) both() int { return len(c.Pairs) - len(c.OnlyA) - len(c.OnlyB) }

// differ returns a text with the number of tensors that are in both and differ.
func (c *Comparison) differ() string {
	thing, verb := "tensors", "differ"
	if c.both() == 1 {
		thing = "tensor"
	}
	if len(c.Different) == 1 || c.both() == 1 {
		verb = "differs"
	}
	return fmt.Sprintf("%s of %s %s %s", term.Count(int64(len(c.Different))), term.Count(int64(c.both())), thing, verb)
}

// elsewhere returns texts with the numbers of all other differences.
func (c *Comparison) elsewhere() (texts []string) {
	for _, only := range []struct {
		n     int
		where string
	}{{len(c.OnlyA), "only in A"}, {len(c.OnlyB), "only in B"}, {len(c.Metadata), "different in the metadata"}} {
		if only.n > 0 {
			texts = append(texts, fmt.Sprintf("%s %s", term.Count(int64(only.n)), only.where))
		}
	}
	return texts
}

// notFinite returns the number of tensors whose change is unknown because of values that are not finite.
func (c *Comparison) notFinite() (n int) {
	for _, p := range c.Different {
		if p.NotFinite() {
			n++
		}
	}
	return n
}

// by returns the least and the largest known change, such as "0.1 % to 5.0 %", or one of them if
// both look alike, or "" if no change is known.
func (c *Comparison) by() string {
	least, most := math.Inf(1), math.Inf(-1)
	for _, p := range c.Different {
		if x := float64(p.Change); x > 0 {
			least, most = min(least, x), max(most, x)
		}
	}
	if most < 0 {
		return ""
	}
	from, to := percent(numbers.Float(least)), percent(numbers.Float(most))
	if from == to {
		return to
	}
	return from + " to " + to
}

// which describes what the names of the different tensors have in common, and other names do not:
// the name of a single tensor, "all q_proj", "all q_proj or v_proj", "all in model.layers.3", or
// "".
func (c *Comparison) which() string {
	var names, all []string
	for _, p := range c.Pairs {
		if p.A != nil && p.B != nil {
			all = append(all, p.Name)
		}
	}
	for _, p := range c.Different {
		names = append(names, p.Name)
	}
	switch len(names) {
	case len(all):
		return ""
	case 1:
		return term.Quote(names[0], term.ValueLimit)
	}
	labels, labeled := commonLabels(names, all)
	if prefix, within := commonBranch(names, all); within > 0 && (labeled == 0 || within < labeled) {
		return "all in " + term.Quote(prefix, term.ValueLimit)
	}
	for i := range labels {
		labels[i] = term.Quote(labels[i], term.ValueLimit)
	}
	switch n := len(labels); n {
	case 0:
		return ""
	case 1:
		return "all " + labels[0]
	default:
		return "all " + strings.Join(labels[:n-1], ", ") + " or " + labels[n-1]
	}
}

// maxLabels limits the labels in a sentence.
const maxLabels = 3

// commonLabels returns a few parts of names, such that each of names has at least one of them; rare
// parts are preferred. labeled is the number of names in all that have one of them. It returns nil
// if there would be more than maxLabels parts, or if all names in all have one.
func commonLabels(names, all []string) (labels []string, labeled int) {
	count := make(map[string]int) // number of names that have a part
	for _, name := range all {
		for _, part := range labelsOf(name) {
			count[part]++
		}
	}
	for _, name := range names {
		parts := labelsOf(name)
		if len(parts) == 0 {
			return nil, 0
		}
		slices.Reverse(parts) // if parts are equally rare, the last one is preferred
		rarest := slices.MinFunc(parts, func(a, b string) int { return cmp.Compare(count[a], count[b]) })
		if at, found := slices.BinarySearch(labels, rarest); !found {
			labels = slices.Insert(labels, at, rarest)
		}
		if len(labels) > maxLabels {
			return nil, 0
		}
	}
	for _, name := range all {
		if slices.ContainsFunc(labelsOf(name), func(part string) bool { return slices.Contains(labels, part) }) {
			labeled++
		}
	}
	if labeled == len(all) {
		return nil, 0
	}
	return labels, labeled
}

// labelsOf returns the different parts of a name that are not numbers.
func labelsOf(name string) (labels []string) {
	for _, part := range strings.SplitN(name, ".", maxDepth) {
		if _, isNumber := number(part); !isNumber && part != "" && !slices.Contains(labels, part) {
			labels = append(labels, part)
		}
	}
	return labels
}

// commonBranch returns the longest prefix of whole parts that names have in common, and how many of
// all names have it. The number is 0 if there is no such prefix, or if all names have it.
func commonBranch(names, all []string) (prefix string, within int) {
	parts := strings.SplitN(names[0], ".", maxDepth)
	parts = parts[:len(parts)-1]
	for _, name := range names[1:] {
		other := strings.SplitN(name, ".", maxDepth)
		n := 0
		for n < min(len(parts), len(other)) && parts[n] == other[n] {
			n++
		}
		parts = parts[:n]
	}
	if len(parts) == 0 {
		return "", 0
	}
	prefix = strings.Join(parts, ".")
	for _, name := range all {
		if strings.HasPrefix(name, prefix+".") {
			within++
		}
	}
	if within == len(all) {
		return "", 0
	}
	return prefix, within
}
