package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) stats() *cobra.Command {
	var only, except []string
	cmd := c.verb("stats SRC [PATTERN...] [--json] [--html PAGE] [--dequantize]", "Describe values: range, mean, deviation, zeros, NaN, Inf, histogram", `
Min, max, mean and std are computed in float64 from the finite values. PATTERN selects
tensors: with *, ? and [a-z], or by a name, which includes all names below it. The other
names that the metadata lists for tied tensors select them, too. Tensors are in the order
of ls --sort name: layers.2 comes before layers.10.

The histogram below the table shows the floats, without the smallest and the largest
thousandth. Integers are shown only if there are no floats. The histograms of --json have
all finite values.

--json prints one line:
  {"file": "...", "tensors": [{"name", "dtype", "shape", SUMMARY}, ...],
   "total": {SUMMARY}}
where SUMMARY is "count", "min", "max", "mean", "std" (null if no value is finite),
"zeros", "nan", "inf" and "histogram": {"edges": [...], "counts": [...]}.
`+sources, `
safetensors stats model.safetensors
safetensors stats hf://openai-community/gpt2 --html gpt2.html
safetensors stats model.safetensors 'model.layers.*.mlp.*'
safetensors stats --json model.safetensors | jq '.tensors[] | select(.nan > 0) | .name'
`, arguments(1, -1), func(args []string) error {
		err := c.describe(args[0], slices.Concat(args[1:], only), except)
		var none *pattern.NoMatch
		if errors.As(err, &none) && slices.Contains(args[1:], none.Glob.String()) {
			return cmp.Or(otherSource("stats", none.Glob.String()), err)
		}
		return err
	})
	cmd.Flags().StringArrayVar(&only, "only", nil, "describe only tensors that match `PATTERN`, as if it were an argument")
	cmd.Flags().StringArrayVar(&except, "except", nil, "leave out tensors that match `PATTERN`")
	return cmd
}

func (c *command) describe(name string, only, except []string) error {
	selection, err := pattern.ParseSelection(only, except)
	if err != nil {
		return usageError{err}
	}
	src, stored, err := c.openAll(name, c.opener.Open)
	if err != nil {
		return err
	}
	defer src.Close()
	names, err := c.selectRead(src, selection)
	if names, err = selected(names, err, c.values, showsNumbers, src); err != nil {
		return err
	}
	slices.SortFunc(names, pattern.Compare)
	if err := c.noteCodes(src, names...); err != nil {
		return err
	}
	var tensors []safetensors.Tensor
	size := int64(0)
	for _, name := range names {
		tensors = append(tensors, src.Tensors[name])
		size += src.Tensors[name].Size()
	}
	stop := c.progress("stats", min(size, stored))
	summaries, all, err := stats.Describe(tensors)
	stop()
	if err != nil {
		return c.opener.Named(name, err)
	}
	rows := make([]report.Tensor, len(names))
	for i, t := range tensors {
		rows[i] = report.Tensor{Name: names[i], DType: t.DType(), Shape: t.Shape(), Bytes: t.Size(), Summary: summaries[i]}
	}
	err = c.drawPage(func(w io.Writer, origin report.Origin) error {
		return report.Checkpoint(w, origin, storage.Shown(name), rows, all)
	})
	if err != nil {
		return err
	}
	return c.print(struct {
		File    string          `json:"file"`
		Tensors []report.Tensor `json:"tensors"`
		Total   stats.Summary   `json:"total"`
	}{name, rows, all}, func() { c.printStats(rows, all) })
}

func (c *command) printStats(rows []report.Tensor, total stats.Summary) {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	const layout = "%s\t%s\t%10s\t%10s\t%10s\t%10s\t%12s\t%8s\t%8s\n"
	fmt.Fprintf(w, layout, "NAME", "DTYPE", "MIN", "MAX", "MEAN", "STD", "ZEROS", "NAN", "INF")
	row := func(name, dtype string, s stats.Summary) {
		fmt.Fprintf(w, layout, name, dtype, s.Min, s.Max, s.Mean, s.Std, term.Count(s.Zeros), term.Count(s.NaN), term.Count(s.Inf))
	}
	for _, r := range rows {
		row(term.Name(r.Name), r.DType.String(), r.Summary)
	}
	row("total", "", total)
	w.Flush()
	if len(total.Typical.Counts) > 0 { // the same histogram as on the page
		c.printHistogram("VALUES of floats, without the 0.1 % at each end", total.Typical)
	} else {
		c.printHistogram("VALUES", total.Histogram)
	}
}

func (c *command) printHistogram(title string, h stats.Histogram) {
	const width = 50
	most := slices.Max(append([]int64{0}, h.Counts...))
	if most == 0 {
		return
	}
	fmt.Fprintf(c.out, "\n%s\n", title)
	for i, n := range h.Counts {
		eighths := int(math.Ceil(float64(n) / float64(most) * width * 8))
		bar := strings.Repeat("█", eighths/8)
		if rest := eighths % 8; rest > 0 {
			bar += string([]rune("▏▎▍▌▋▊▉")[rest-1])
		}
		fmt.Fprintf(c.out, "%10s %s %s\n", h.Edges[i], bar, term.Count(n))
	}
	fmt.Fprintf(c.out, "%10s\n", h.Last())
}
