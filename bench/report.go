package bench

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// Report writes the results as Markdown. Charts are linked from chartDir.
func (b *Bench) Report(w io.Writer, about About, chartDir string) error {
	var md strings.Builder
	fmt.Fprintf(&md, "# Results\n\n%s", about)
	b.writeTargets(&md)
	for _, work := range Works {
		if results := b.of(work.Name); len(results) > 0 {
			writeWorkReport(&md, work, results, chartDir)
		}
	}
	_, err := io.WriteString(w, md.String())
	return err
}

// of returns the results of a work, case by case.
func (b *Bench) of(work string) (cases [][]Result) {
	for _, r := range b.Results {
		if r.Work != work {
			continue
		}
		if n := len(cases); n == 0 || cases[n-1][0].Case != r.Case {
			cases = append(cases, nil)
		}
		cases[len(cases)-1] = append(cases[len(cases)-1], r)
	}
	return cases
}

func writeWorkReport(md *strings.Builder, work Work, cases [][]Result, chartDir string) {
	fmt.Fprintf(md, "\n## %s\n\n%s\n", work.Title, work.Intro)
	if work.Chart != "" {
		fmt.Fprintf(md, "\n![%s](%s)\n", work.Chart, path.Join(chartDir, work.Name+".svg"))
	}
	for _, results := range cases {
		md.WriteByte('\n')
		writeTable(md, work, results)
	}
	writeWho(md, cases)
}

// writeWho lists what the contestants of a work do, with the cases where that
// differs between them.
func writeWho(md *strings.Builder, cases [][]Result) {
	var names []string
	texts := make(map[string][]string) // by name
	where := make(map[[2]string][]string)
	for _, results := range cases {
		for _, r := range results {
			if !slices.Contains(names, r.Contestant) {
				names = append(names, r.Contestant)
			}
			if !slices.Contains(texts[r.Contestant], r.Does) {
				texts[r.Contestant] = append(texts[r.Contestant], r.Does)
			}
			key := [2]string{r.Contestant, r.Does}
			where[key] = append(where[key], r.Case)
		}
	}
	md.WriteString("\nWho does what:\n\n")
	for _, name := range names {
		if does := texts[name]; len(does) == 1 {
			fmt.Fprintf(md, "- %s: %s\n", name, does[0])
			continue
		}
		for _, does := range texts[name] {
			fmt.Fprintf(md, "- %s (%s): %s\n", name, strings.Join(where[[2]string{name, does}], "; "), does)
		}
	}
}

// A column is one of a table; the first row of a case is this package.
type column struct {
	title string
	cell  func(r, ours Result) string
}

func writeTable(md *strings.Builder, work Work, results []Result) {
	columns := []column{
		{"median", func(r, _ Result) string { return duration(r.Median()) }},
		{"min to max", func(r, _ Result) string {
			return duration(slices.Min(r.Samples)) + " to " + duration(slices.Max(r.Samples))
		}},
		{"time / ours", func(r, ours Result) string {
			if len(ours.Samples) == 0 {
				return ""
			}
			return significant(r.Ratio(ours))
		}},
	}
	if results[0].Bytes > 0 {
		columns = append(columns, column{work.Unit, func(r, _ Result) string { return throughput(r) }})
	}
	if hasMemory(results) {
		columns = append(columns, column{"memory", func(r, _ Result) string {
			if r.Memory == 0 {
				return ""
			}
			return size(r.Memory)
		}})
	}
	fmt.Fprintf(md, "| %s |", results[0].Case)
	for _, c := range columns {
		fmt.Fprintf(md, " %s |", c.title)
	}
	md.WriteString("\n|---|" + strings.Repeat("--:|", len(columns)) + "\n")
	for _, r := range results {
		fmt.Fprintf(md, "| %s |", r.Contestant)
		if len(r.Samples) == 0 {
			fmt.Fprintf(md, " cannot: %s |\n", strings.ReplaceAll(shorten(r.Err, 60), "|", "\\|"))
			continue
		}
		for _, c := range columns {
			fmt.Fprintf(md, " %s |", c.cell(r, results[0]))
		}
		md.WriteByte('\n')
	}
}

func hasMemory(results []Result) bool {
	for _, r := range results {
		if r.Memory > 0 {
			return true
		}
	}
	return false
}

// throughput returns what a result handled per second.
func throughput(r Result) string {
	return size(int64(float64(r.Bytes)/r.Median().Seconds())) + "/s"
}

// duration prints three significant digits.
func duration(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return significant(float64(d)/1e3) + " µs"
	case d < time.Second:
		return significant(float64(d)/1e6) + " ms"
	}
	return significant(d.Seconds()) + " s"
}

// size prints three significant digits.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return significant(float64(n)/1e9) + " GB"
	case n >= 1e6:
		return significant(float64(n)/1e6) + " MB"
	case n >= 1e3:
		return significant(float64(n)/1e3) + " kB"
	}
	return fmt.Sprintf("%d B", n)
}

// roundSize prints the size of an input, a multiple of a power of 1024.
func roundSize(n int64) string {
	switch {
	case n >= tiB:
		return fmt.Sprintf("%d TiB", n/tiB)
	case n >= giB:
		return fmt.Sprintf("%d GiB", n/giB)
	}
	return fmt.Sprintf("%d MiB", n/miB)
}

func significant(x float64) string {
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func shorten(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return s
}
