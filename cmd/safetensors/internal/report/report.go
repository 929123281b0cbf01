// Package report draws pages that show a checkpoint, or how two of them differ. A page is
// one file of HTML that loads nothing and shows only text that html/template has escaped:
// the names in it are those of strangers.
package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// maxRows limits the table of a page: a row takes about a kilobyte.
const maxRows = 2000

// A Tensor is a tensor and the summary of its values. Its fields are those of the JSON of
// stats.
type Tensor struct {
	Name  string            `json:"name"`
	DType safetensors.DType `json:"dtype"`
	Shape []int             `json:"shape"`
	Bytes int64             `json:"-"`
	stats.Summary
}

//go:embed page.html
var page string

//go:embed style.css
var style string

//go:embed script.js
var script string

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes": term.Bytes,
	"count": term.Count,
	"name":  term.Name,
	"short": func(s string) string { return term.Quote(s, term.ValueLimit) },
	"shape": term.Shape,
	"exact": exact, "figure": figure,
	"bars":  bars,
	"style": func() template.CSS { return template.CSS(style) },

	// The policy of a page lets browsers load nothing and run only the script of this package,
	// should a name ever pass for HTML.
	"script": func() template.JS { return template.JS(script) },
	"scriptHash": func() string {
		sum := sha256.Sum256([]byte(script))
		return base64.StdEncoding.EncodeToString(sum[:])
	},
}).Parse(page))

// Checkpoint writes the page of a checkpoint.
func Checkpoint(w io.Writer, source string, tensors []Tensor, total stats.Summary) error {
	kinds := dtypesOf(tensors, numbered(tensors))
	listed := largest(tensors)
	data := struct {
		Title  string
		Total  stats.Summary
		Bytes  int64
		DTypes []dtype
		Boxes  []box
		Layers layerMap
		Rows   []row
		Omitted
	}{
		Title: source, Total: total, DTypes: kinds,
		Boxes:   treemap(tensors, kinds, listed),
		Layers:  summaryMap(tensors),
		Omitted: Omitted{Listed: len(listed), All: len(tensors)},
	}
	most := int64(1)
	for _, i := range listed {
		data.Rows = append(data.Rows, row{Tensor: &tensors[i], ID: i, Class: classOf(kinds, tensors[i].DType)})
		most = max(most, tensors[i].Bytes)
	}
	for i := range data.Rows {
		data.Rows[i].Share = int(math.Ceil(100 * float64(data.Rows[i].Bytes) / float64(most)))
	}
	slices.SortStableFunc(data.Rows, func(a, b row) int { // layers.2 comes before layers.10
		return slices.CompareFunc(strings.SplitN(a.Name, ".", maxDepth), strings.SplitN(b.Name, ".", maxDepth), compareParts)
	})
	for _, t := range tensors {
		data.Bytes += t.Bytes
	}
	return pages.ExecuteTemplate(w, "checkpoint", data)
}

// Omitted says how many rows a table has of how many.
type Omitted struct{ Listed, All int }

// Left returns the number of those that are left out.
func (o Omitted) Left() int { return o.All - o.Listed }

// numbered returns the numbers of all tensors.
func numbered(tensors []Tensor) []int {
	all := make([]int, len(tensors))
	for i := range all {
		all[i] = i
	}
	return all
}

// largest returns the numbers of the tensors that the table lists, sorted: those with NaN or
// Inf, then the largest.
func largest(tensors []Tensor) []int {
	all := numbered(tensors)
	slices.SortStableFunc(all, func(i, j int) int {
		a, b := &tensors[i], &tensors[j]
		return cmp.Or(cmp.Compare(min(b.NaN+b.Inf, 1), min(a.NaN+a.Inf, 1)), cmp.Compare(b.Bytes, a.Bytes))
	})
	all = all[:min(len(all), maxRows)]
	slices.Sort(all)
	return all
}

type row struct {
	*Tensor
	ID    int
	Class string
	Share int // of the largest, in percent
}

// exact returns a number with all its digits, "" if it is not finite.
func exact(f numbers.Float) string {
	x := float64(f)
	if x-x != 0 {
		return ""
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// figure returns a number with a few digits.
func figure(f numbers.Float) string {
	switch x := float64(f); {
	case math.IsNaN(x):
		return "–"
	case math.IsInf(x, 0):
		return "∞"
	default:
		return strings.Replace(strconv.FormatFloat(x, 'g', 4, 64), "-", "−", 1)
	}
}

// A dtype is how much of a checkpoint is of a dtype.
type dtype struct {
	DType   safetensors.DType
	Class   string // of its color
	Tensors int
	Bytes   int64
}

// colors is the number of colors for dtypes; the last one is for all others.
const colors = 7

// dtypesOf returns the dtypes of the tensors with some numbers, that of most bytes first.
func dtypesOf(tensors []Tensor, members []int) []dtype {
	var kinds []dtype
	for _, member := range members {
		t := &tensors[member]
		i := slices.IndexFunc(kinds, func(k dtype) bool { return k.DType == t.DType })
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, dtype{DType: t.DType})
		}
		kinds[i].Tensors++
		kinds[i].Bytes += t.Bytes
	}
	slices.SortStableFunc(kinds, func(a, b dtype) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for i := range kinds {
		kinds[i].Class = "d" + strconv.Itoa(min(i, colors-1))
	}
	return kinds
}

func classOf(kinds []dtype, d safetensors.DType) string {
	return kinds[slices.IndexFunc(kinds, func(k dtype) bool { return k.DType == d })].Class
}

// bars returns the path of a histogram in a picture of 100 × 24.
func bars(h stats.Histogram) string {
	if len(h.Counts) == 0 {
		return ""
	}
	const width, height = 100, 24
	least, most := float64(h.Edges[0]), float64(h.Edges[len(h.Edges)-1])
	x := func(edge float64) float64 { // halves, because most-least could overflow
		return width * ((edge/2 - least/2) / (most/2 - least/2))
	}
	if least/2 == most/2 {
		x = func(float64) float64 { return width / 2 }
	}
	top := slices.Max(h.Counts)
	var path []byte
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		left, right := x(float64(h.Edges[i])), x(float64(h.Edges[i+1]))
		up := height - max(0.4, height*float64(n)/float64(top))
		path = fmt.Appendf(path, "M%v %dV%vH%vV%d", round(left), height, round(up), round(max(right, left+1)), height)
	}
	return string(path)
}
