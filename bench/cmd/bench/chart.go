package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// dwarfing is how many times longer than ours the bar of a limit may be. A longer one
// would leave nothing to see of the others.
const dwarfing = 4

// writeChart draws the throughput of a work, if it was measured: a bar for each contestant,
// below the name of its row.
func (w *work) writeChart(md *bytes.Buffer) {
	if !w.units[throughput] {
		return
	}
	type bar struct {
		label string
		value float64 // 0: the name of a row
	}
	var bars []bar
	most := 0.0
	for _, row := range w.rows {
		bars = append(bars, bar{label: row})
		for _, impl := range w.impls {
			value := w.median(cell{row, impl, throughput}).Center
			limit := dwarfing * w.median(cell{row, ours, throughput}).Center
			if !(value > 0) || strings.HasPrefix(impl, "limit-") && value > limit {
				continue
			}
			bars = append(bars, bar{"  " + impl, value})
			most = max(most, value)
		}
	}
	md.WriteString("\nThroughput, longer is better:\n\n")
	t := tabwriter.NewWriter(md, 0, 0, 1, ' ', 0)
	for _, b := range bars {
		if b.value == 0 {
			fmt.Fprintf(t, "    %s\n", b.label)
			continue
		}
		length := max(1, int(math.Round(b.value/most*60)))
		fmt.Fprintf(t, "    %s\t%s %s\n", b.label, strings.Repeat("█", length), formatValue(b.value, throughput))
	}
	t.Flush()
}
