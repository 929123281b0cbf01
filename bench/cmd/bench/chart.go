package main

import (
	"errors"
	"image/color"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

var (
	oursColor  = color.RGBA{R: 0x00, G: 0x7d, B: 0x9c, A: 0xff}
	peerColor  = color.RGBA{R: 0x9a, G: 0xa5, B: 0xb1, A: 0xff}
	limitColor = color.RGBA{R: 0xdf, G: 0xe3, B: 0xe8, A: 0xff}
)

// dwarfing is how many times longer than ours the bar of a limit may be. A
// longer one would leave nothing to see of the others.
const dwarfing = 4

func (w *work) chartName() string  { return strings.ToLower(w.name) + ".svg" }
func (w *work) chartTitle() string { return w.name + ": throughput (longer is better)" }

// chart draws the throughput of a work, if it was measured: a bar for each
// contestant, below the name of its row.
func (w *work) chart(folder string) error {
	if !w.units[throughput] {
		return nil
	}
	p := plot.New()
	p.Title.Text = w.chartTitle()
	p.Title.Padding = vg.Millimeter
	p.Title.TextStyle.Font.Variant = "Sans"
	p.Y.Label.Text = " "            // a margin
	p.BackgroundColor = color.White // also where the page is dark
	p.HideX()
	var labels plot.ConstantTicks
	var err error
	for _, row := range w.rows {
		labels = append(labels, plot.Tick{Value: -float64(len(labels)), Label: row})
		most := dwarfing * w.median(cell{row, ours, throughput}).Center
		for _, impl := range w.impls {
			value := w.median(cell{row, impl, throughput}).Center
			limit := strings.HasPrefix(impl, "limit-")
			if !(value > 0) || limit && value > most {
				continue
			}
			fill := peerColor
			if limit {
				fill = limitColor
			} else if strings.HasPrefix(impl, ours) {
				fill = oursColor
			}
			err = errors.Join(err, addBar(p, -float64(len(labels)), value, fill))
			labels = append(labels, plot.Tick{Value: -float64(len(labels)), Label: impl})
		}
	}
	p.X.Min = 0
	p.Y.Min, p.Y.Max = 0.5-float64(len(labels)), 0.5
	p.X.Max *= 1.2 // leaves room for the values
	p.Y.Tick.Marker = labels
	p.Y.Tick.Label.Font.Variant = "Sans"
	p.Y.Tick.Length = 0
	p.Y.Width = 0
	p.Y.Padding = vg.Points(3)
	return errors.Join(err, p.Save(20*vg.Centimeter, vg.Centimeter+vg.Points(16)*vg.Length(len(labels)), filepath.Join(folder, w.chartName())))
}

// addBar adds a bar with its value at the end.
func addBar(p *plot.Plot, y, value float64, fill color.Color) error {
	bar, err := plotter.NewBarChart(plotter.Values{value}, vg.Points(11))
	if err != nil {
		return err
	}
	bar.XMin = y
	bar.Horizontal = true
	bar.LineStyle.Width = 0
	bar.Color = fill
	note, err := plotter.NewLabels(plotter.XYLabels{
		XYs: plotter.XYs{{X: value, Y: y}}, Labels: []string{" " + formatValue(value, throughput)},
	})
	if err != nil {
		return err
	}
	note.Offset.Y = -vg.Points(4)
	note.TextStyle[0].Font.Variant = "Sans"
	p.Add(bar, note)
	return nil
}
