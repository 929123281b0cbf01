package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
)

// exact returns a number with all its digits, or "" if it is not finite.
func exact(f numbers.Float) string {
	x := float64(f)
	if x-x != 0 {
		return ""
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// figure returns a number with a few digits.
func figure(f numbers.Float) string { return sign(f, strconv.FormatFloat(float64(f), 'g', 4, 64)) }

// percent returns a share in percent with a few digits.
func percent(f numbers.Float) string { return sign(f, f.Percent()) }

// sign returns the text of a number with the sign for minus, or a sign for a number that is not finite.
func sign(f numbers.Float, text string) string {
	switch x := float64(f); {
	case math.IsNaN(x):
		return "–"
	case math.IsInf(x, 0):
		return "∞"
	default:
		return strings.ReplaceAll(text, "-", "−")
	}
}

// These are the width and the height of the picture of a histogram.
const barsWidth, barsHeight = 100, 24

// place returns a func that maps values to positions in the picture of a histogram. The histogram
// must have a bar.
func place(h stats.Histogram) func(value numbers.Float) float64 {
	least, most := float64(h.Edges[0]), float64(h.Last())
	if least/2 == most/2 {
		return func(numbers.Float) float64 { return barsWidth / 2 }
	}
	return func(value numbers.Float) float64 { // computed from halves, because most-least could overflow
		return barsWidth * ((float64(value)/2 - least/2) / (most/2 - least/2))
	}
}

// bars returns the SVG path of a histogram in a picture of barsWidth × barsHeight.
func bars(h stats.Histogram) string {
	if len(h.Counts) == 0 {
		return ""
	}
	x, top := place(h), slices.Max(h.Counts)
	var path []byte
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		left, right := x(h.Edges[i]), x(h.Edges[i+1])
		up := barsHeight - max(0.4, barsHeight*float64(n)/float64(top))
		path = fmt.Appendf(path, "M%v %dV%vH%vV%d", round(left), barsHeight, round(up), round(max(right, left+1)), barsHeight)
	}
	return string(path)
}

// zeroIn returns the position of 0 in the picture of a histogram, as text. It returns "" if all
// values are on one side of 0.
func zeroIn(h stats.Histogram) string {
	if len(h.Counts) == 0 || h.Edges[0] > 0 || h.Last() < 0 {
		return ""
	}
	return strconv.FormatFloat(round(place(h)(0)), 'f', -1, 64)
}

// tallest returns the number of values in the tallest bar.
func tallest(h stats.Histogram) int64 { return slices.Max(h.Counts) }

// columns is the number of columns in the short form of a histogram.
const columns = 20

// letters returns the short form of a histogram: the height of each of 20 columns with the same
// width, from a for nothing to y for the tallest bar. It returns "" for a histogram without bars.
func letters(h stats.Histogram) string {
	if len(h.Counts) == 0 {
		return ""
	}
	const heights = 'y' - 'a'
	x, top := place(h), slices.Max(h.Counts)
	text := []byte(strings.Repeat("a", columns))
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		height := 'a' + byte(max(1, math.Round(heights*float64(n)/float64(top))))
		left, right := x(h.Edges[i])*columns/barsWidth, x(h.Edges[i+1])*columns/barsWidth
		for at := range text { // a bar fills a column if it covers half of the column, or if the column contains half of the bar
			share := min(right, float64(at+1)) - max(left, float64(at))
			if share > 0.5 || 2*share > right-left || at == min(int(left), columns-1) && right == left {
				text[at] = max(text[at], height)
			}
		}
	}
	return string(text)
}

// round rounds to a tenth.
func round(x float64) float64 { return math.Round(x*10) / 10 }
