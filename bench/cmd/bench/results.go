package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchunit"
)

// Units are those of benchfmt. Each is printed with its suffix.
const (
	seconds    = "sec/op"
	throughput = "B/s"
	memory     = "peak-B"
)

var suffix = map[string]string{seconds: "s", throughput: "B/s", memory: "B"}

const ours = "ours" // the contestant that all ratios refer to

// results are the works of a file of results, in its order.
type results struct {
	about    map[string]string // configuration lines, the last of each
	commands []string          // all of them, each with its date as a comment
	versions []string          // versions of contestants and tools that the commands list, without duplicates
	works    []*work
}

// A work is a benchmark of all contestants: rows × impls.
type work struct {
	name        string
	rows, impls []string
	values      map[cell][]float64
	units       map[string]bool // that values has
}

type cell struct{ row, impl, unit string }

func readResults(name string) (*results, error) {
	res := &results{about: make(map[string]string)}
	files := benchfmt.Files{Paths: []string{name}}
	for files.Scan() {
		r, ok := files.Result().(*benchfmt.Result)
		if !ok {
			return nil, fmt.Errorf("%v", files.Result())
		}
		for _, config := range r.Config {
			res.about[config.Key] = string(config.Value)
		}
		command := res.about["command"]
		if date := res.about["date"]; date != "" {
			command += " # " + date
		}
		if !slices.Contains(res.commands, command) {
			res.commands = append(res.commands, command)
		}
		for version := range strings.SplitSeq(res.about["versions"], ", ") {
			if !slices.Contains(res.versions, version) && version != missing {
				res.versions = append(res.versions, version)
			}
		}
		work, parts := r.Name.Parts() // the others are /row, /impl=contestant and perhaps -CPUs
		if len(parts) < 2 {
			return nil, fmt.Errorf("%s: no row, or no contestant", r.Name)
		}
		res.work(string(work)).add(string(parts[0][1:]), strings.TrimPrefix(string(parts[1]), "/impl="), r.Values)
	}
	return res, files.Err()
}

func (res *results) work(name string) *work {
	i := slices.IndexFunc(res.works, func(w *work) bool { return w.name == name })
	if i < 0 {
		i = len(res.works)
		res.works = append(res.works, &work{name: name, values: make(map[cell][]float64), units: make(map[string]bool)})
	}
	return res.works[i]
}

func (w *work) add(row, impl string, values []benchfmt.Value) {
	if !slices.Contains(w.rows, row) {
		w.rows = append(w.rows, row)
	}
	if !slices.Contains(w.impls, impl) {
		w.impls = append(w.impls, impl)
	}
	for _, v := range values {
		c := cell{row, impl, v.Unit}
		w.values[c] = append(w.values[c], v.Value)
		w.units[v.Unit] = true
	}
}

func (w *work) sample(c cell) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(w.values[c]), &benchmath.DefaultThresholds)
}

// median returns the median with its 95 % confidence interval.
func (w *work) median(c cell) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(w.sample(c), 0.95)
}

// format returns a median, its confidence interval and, unless it is ours, how
// many times ours it is: "~" if the difference is not significant.
func (w *work) format(c cell) string {
	if len(w.values[c]) == 0 {
		return "–"
	}
	m := w.median(c)
	text := formatValue(m.Center, c.unit) + " ± " + m.PctRangeString()
	base := cell{c.row, ours, c.unit}
	if c == base || len(w.values[base]) == 0 {
		return text
	}
	if compared := benchmath.AssumeNothing.Compare(w.sample(c), w.sample(base)); compared.P >= compared.Alpha {
		return text + ", ~"
	}
	ratio := m.Center / w.median(base).Center
	decimals := max(0, 1-int(math.Floor(math.Log10(ratio)))) // for two significant digits
	return fmt.Sprintf("%s, **%.*f×**", text, decimals, ratio)
}

// formatValue prints a value as benchstat does, with its unit.
func formatValue(v float64, unit string) string {
	return benchunit.Scale(v, benchunit.Decimal) + suffix[unit]
}
