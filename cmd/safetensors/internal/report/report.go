// Package report draws pages that show a checkpoint, or the differences between two checkpoints. A
// page is one HTML file that loads no other file. The names in it are untrusted, so all text goes
// through html/template, and the content security policy of a page allows no script except the one
// of this package.
package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// maxRows limits the rows that a page shows at once: a row takes about a kilobyte, and more rows
// make browsers slow.
const maxRows = 2000

// A Tensor is a tensor and the summary of its values. Its fields are also the JSON that stats
// prints.
type Tensor struct {
	Name  string            `json:"name"`
	DType safetensors.DType `json:"dtype"`
	Shape []int             `json:"shape"`
	Bytes int64             `json:"-"`
	stats.Summary
}

// An Origin describes where a page comes from. It is shown in the footer of the page.
type Origin struct {
	Date    time.Time
	Version string // version of the program
	Command string // the command line, without secrets
}

// Day returns the date in UTC, as the page shows it.
func (o Origin) Day() string { return o.Date.UTC().Format("2006-01-02 15:04 UTC") }

//go:embed page.html
var page string

//go:embed style.css
var style string

//go:embed script.js
var script string

// pages returns the templates of the two pages, which its first call parses.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"bytes":  term.Bytes,
		"count":  term.Count,
		"number": func(n int) string { return term.Count(int64(n)) },
		"name":   term.Name, "clean": term.Clean,
		"short":   func(s string) string { return term.Quote(s, term.ValueLimit) },
		"shape":   term.Shape,
		"exact":   exact,
		"figure":  figure,
		"percent": percent,
		"bars":    bars,
		"zeroIn":  zeroIn,
		"tallest": tallest,
		"style":   func() template.CSS { return template.CSS(style) },

		// Even if a name passes for HTML, the policy of a page lets browsers load nothing, and run only
		// the script of this package.
		"script": func() template.JS { return template.JS(script) },
		"scriptHash": func() string {
			sum := sha256.Sum256([]byte(script))
			return base64.StdEncoding.EncodeToString(sum[:])
		},
	}).Parse(page))
})

// Checkpoint writes the page of a checkpoint with these tensors. total is the summary of all
// values.
func Checkpoint(w io.Writer, origin Origin, source string, tensors []Tensor, total stats.Summary) error {
	kinds := dtypesOf(tensors, indices(tensors))
	listed := largest(tensors)
	data := struct {
		Title  string
		Origin Origin
		Total  stats.Summary
		Bytes  int64
		DTypes []dtype
		Maps   []treemap
		Layers layerMap
		Rows   []row
		Most   int64 // bytes of the largest tensor
		Rest   rest
		Omitted
	}{
		Title: source, Origin: origin, Total: total, DTypes: kinds,
		Maps:    treemaps(tensors, kinds),
		Layers:  summaryMap(tensors),
		Most:    1,
		Omitted: Omitted{Listed: len(listed), All: len(tensors)},
	}
	for i := range tensors {
		data.Bytes += tensors[i].Bytes
		data.Most = max(data.Most, tensors[i].Bytes)
	}
	for _, i := range listed {
		t := &tensors[i]
		share := int(math.Ceil(100 * float64(t.Bytes) / float64(data.Most)))
		data.Rows = append(data.Rows, row{Tensor: t, ID: i, Class: classOf(kinds, t.DType), Share: share})
	}
	slices.SortStableFunc(data.Rows, func(a, b row) int { return compareNames(a.Name, b.Name) })
	if data.Left() > 0 {
		data.Rest = restOfCheckpoint(tensors, kinds, listed)
	}
	return pages().ExecuteTemplate(w, "checkpoint", data)
}

// compareNames orders names as people do, so that layers.2 comes before layers.10.
func compareNames(a, b string) int {
	return slices.CompareFunc(strings.SplitN(a, ".", maxDepth), strings.SplitN(b, ".", maxDepth), compareParts)
}

// An Omitted counts the rows that a table lists, and all rows that there are.
type Omitted struct{ Listed, All int }

// Left returns how many rows the table leaves out.
func (o Omitted) Left() int { return o.All - o.Listed }

// indices returns the indices of all tensors.
func indices(tensors []Tensor) []int {
	all := make([]int, len(tensors))
	for i := range all {
		all[i] = i
	}
	return all
}

// largest returns the sorted indices of the tensors that the table lists. It prefers tensors with
// NaN or Inf, and then large tensors.
func largest(tensors []Tensor) []int {
	all := indices(tensors)
	slices.SortStableFunc(all, func(i, j int) int {
		a, b := &tensors[i], &tensors[j]
		return cmp.Or(cmp.Compare(min(b.NaN+b.Inf, 1), min(a.NaN+a.Inf, 1)), cmp.Compare(b.Bytes, a.Bytes))
	})
	all = all[:min(len(all), maxRows)]
	slices.Sort(all)
	return all
}

// A row is a tensor in the table.
type row struct {
	*Tensor
	ID    int    // index of the tensor, which is the ID of its row
	Class string // CSS class for the color of its dtype
	Share int    // size in percent of the largest tensor
}

// A dtype counts the tensors and the bytes of one dtype.
type dtype struct {
	DType   safetensors.DType
	Class   string // CSS class for its color
	Tensors int
	Bytes   int64
}

// colors is the number of colors for dtypes. All dtypes beyond the first six share the last one.
const colors = 7

// dtypesOf returns the dtypes of the tensors with these indices. The dtype with the most bytes
// comes first.
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

// classOf returns the class of the color of d, which is one of kinds.
func classOf(kinds []dtype, d safetensors.DType) string {
	return kinds[slices.IndexFunc(kinds, func(k dtype) bool { return k.DType == d })].Class
}
