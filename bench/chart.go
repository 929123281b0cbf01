package bench

import (
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Charts draws one SVG into dir for every work that has one: a bar for the
// throughput of every contestant, grouped by case.
func (b *Bench) Charts(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, work := range Works {
		cases := b.of(work.Name)
		if work.Chart == "" || len(cases) == 0 {
			continue
		}
		if err := drawChart(work.Chart, chartRows(cases), filepath.Join(dir, work.Name+".svg")); err != nil {
			return err
		}
	}
	return nil
}

// A chartRow is one line of a chart: a bar, or the heading of a case.
type chartRow struct {
	label string
	value float64 // bytes per second
	kind  rowKind
	note  string // at the end of the bar
}

type rowKind int

const (
	heading rowKind = iota
	ours
	peer
	limit
)

var rowColors = map[rowKind]color.Color{
	ours:  color.RGBA{R: 0x00, G: 0x7d, B: 0x9c, A: 0xff},
	peer:  color.RGBA{R: 0x9a, G: 0xa5, B: 0xb1, A: 0xff},
	limit: color.RGBA{R: 0xdf, G: 0xe3, B: 0xe8, A: 0xff},
}

// dwarfing is how many times longer than ours the bar of a limit may be; a
// longer one would leave nothing to see of the others.
const dwarfing = 4

func chartRows(cases [][]Result) (rows []chartRow) {
	for _, results := range cases {
		rows = append(rows, chartRow{label: results[0].Case})
		first := float64(results[0].Bytes) / results[0].Median().Seconds()
		for _, r := range results {
			if len(r.Samples) == 0 {
				continue
			}
			row := chartRow{label: r.Contestant, kind: peer, note: throughput(r)}
			row.value = float64(r.Bytes) / r.Median().Seconds()
			if bold, ok := strings.CutPrefix(r.Contestant, "**"); ok {
				row.label, row.kind = strings.TrimSuffix(bold, "**"), ours
			}
			if strings.HasPrefix(r.Contestant, "limit") {
				row.kind = limit
			}
			if strings.HasPrefix(row.label, "this package") {
				row.kind = ours
			}
			if row.kind != limit || row.value < dwarfing*first {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func drawChart(title string, rows []chartRow, path string) error {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Millimeter
	p.Y.Label.Text = " "            // a margin
	p.BackgroundColor = color.White // also where the page is dark
	p.X.Min = 0
	p.HideX()

	ticks := make(plot.ConstantTicks, len(rows))
	notes := plotter.XYLabels{}
	for i, row := range rows {
		y := float64(len(rows) - 1 - i)
		ticks[i] = plot.Tick{Value: y, Label: row.label}
		if row.kind == heading {
			continue
		}
		notes.XYs = append(notes.XYs, plotter.XY{X: row.value, Y: y})
		notes.Labels = append(notes.Labels, " "+row.note)
		p.X.Max = max(p.X.Max, 1.2*row.value) // leaves room for the note
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length = 0
	p.Y.Width = 0

	for _, kind := range []rowKind{ours, peer, limit} {
		bars, err := barsOf(kind, rows)
		if err != nil {
			return err
		}
		p.Add(bars)
	}
	labels, err := plotter.NewLabels(notes)
	if err != nil {
		return err
	}
	labels.Offset.Y = -vg.Points(4)
	p.Add(labels)
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.Y.Tick.Label.Font} {
		f.Variant = "Sans"
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Variant = "Sans"
	}
	return p.Save(20*vg.Centimeter, vg.Centimeter+vg.Points(16)*vg.Length(len(rows)), path)
}

// barsOf returns the bars of one kind, with none in the rows of the others.
func barsOf(kind rowKind, rows []chartRow) (*plotter.BarChart, error) {
	values := make(plotter.Values, len(rows))
	for i, row := range rows {
		if row.kind == kind {
			values[len(rows)-1-i] = row.value
		}
	}
	bars, err := plotter.NewBarChart(values, vg.Points(11))
	if err != nil {
		return nil, err
	}
	bars.Horizontal = true
	bars.Color = rowColors[kind]
	bars.LineStyle.Width = 0
	return bars, nil
}
