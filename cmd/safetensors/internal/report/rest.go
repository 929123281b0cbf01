package report

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// maxRest limits the size in bytes of a rest in a page.
const maxRest = 7 << 20

// A rest holds the tensors that a table leaves out, in a short form. The script of the page makes
// rows from it when the filter or the order by a column asks for them. Each line after the first is
// a tensor: its ID, the number of UTF-16 units that its name shares with the name before, the rest
// of the name, and the other cells of its row, separated by tabs. A cell is a text, or text~value
// if the column is ordered by a value that differs from the text, or @i for string i in the first
// line. A line "." stands for the next row of the table itself.
type rest struct {
	Text string
	Lost int // number of tensors that were left out because of maxRest
}

// A restWriter makes a rest.
type restWriter struct {
	shared   []string // cells in the first line, to which @i refers
	index    map[string]int
	lines    strings.Builder
	previous string // last name that was added; "" before the first
	size     int    // number of bytes in the page, in which <, >, &, ' and " are escaped
	lost     int
}

// listed records that the next row of the table comes here.
func (w *restWriter) listed() {
	w.lines.WriteString(".\n")
	w.size += 2
}

// share returns the short form @i of cells that many tensors have in common.
func (w *restWriter) share(cells ...string) string {
	key := strings.Join(cells, "\t")
	i, ok := w.index[key]
	if !ok {
		if w.index == nil {
			w.index = make(map[string]int)
		}
		i = len(w.shared)
		w.index[key] = i
		w.shared = append(w.shared, strings.Join(cells, "|"))
		w.size += len(html.EscapeString(w.shared[i])) + 1
	}
	return "@" + strconv.Itoa(i)
}

// add adds a tensor, unless the page would become too large.
func (w *restWriter) add(id int, name string, cells ...string) {
	name = term.Name(name)
	same, bytes := commonPrefix(w.previous, name)
	line := fmt.Sprintf("%d\t%d\t%s\t%s\n", id, same, name[bytes:], strings.Join(cells, "\t"))
	if more := len(html.EscapeString(line)); w.size+more <= maxRest {
		w.size += more
		w.lines.WriteString(line)
		w.previous = name
	} else {
		w.lost++
	}
}

// rest returns what was written, or the zero rest if no tensor was added.
func (w *restWriter) rest() rest {
	if w.previous == "" && w.lost == 0 {
		return rest{}
	}
	return rest{strings.Join(w.shared, "\t") + "\n" + w.lines.String(), w.lost}
}

// commonPrefix returns the length of the prefix that two names have in common, in UTF-16
// units, as JavaScript counts them, and in bytes.
func commonPrefix(a, b string) (units, bytes int) {
	for i, r := range b {
		if !strings.HasPrefix(a[i:], string(r)) {
			return units, i
		}
		units += utf16.RuneLen(r)
		bytes = i + len(string(r))
	}
	return units, bytes
}

// restOfCheckpoint returns the rest of all tensors that are not listed, sorted by name like the
// table.
func restOfCheckpoint(tensors []Tensor, kinds []dtype, listed []int) rest {
	order := indices(tensors)
	parts := make([][]string, len(tensors))
	for i := range tensors {
		parts[i] = strings.SplitN(tensors[i].Name, ".", maxDepth)
	}
	slices.SortStableFunc(order, func(i, j int) int { return slices.CompareFunc(parts[i], parts[j], compareParts) })
	var w restWriter
	for _, i := range order {
		t := &tensors[i]
		if _, ok := slices.BinarySearch(listed, i); ok {
			w.listed()
			continue
		}
		kind := w.share(t.DType.String()+"~"+classOf(kinds, t.DType), term.Shape(t.Shape), fmt.Sprintf("%s~%d", term.Bytes(t.Bytes), t.Bytes))
		w.add(i, t.Name, kind, figure(t.Min), figure(t.Max), figure(t.Mean), figure(t.Std), tally(t.Zeros), tally(t.NaN), tally(t.Inf), histogramCell(t))
	}
	return w.rest()
}

// tally returns a count, or "" for 0.
func tally(n int64) string {
	if n == 0 {
		return ""
	}
	return term.Count(n)
}

// histogramCell returns the letters of the histogram of a tensor, and the position of its zero
// line.
func histogramCell(t *Tensor) string {
	text := letters(t.Histogram)
	if zero := zeroIn(t.Histogram); zero != "" {
		text += "~" + zero
	}
	return text
}

// restOfComparison returns the rest of a comparison: the pairs that differ, except the first listed
// ones in order, and then the equal pairs, so that the filter finds every tensor.
func restOfComparison(pairs []*Pair, order []int, listed int) rest {
	var w restWriter
	for _, i := range order[listed:] {
		c := changeOf(pairs[i], 0)
		w.add(i, c.Name, c.cells(&w)...)
	}
	for i, p := range pairs {
		if !p.Different {
			c := changeOf(p, 0)
			w.add(i, p.Name, c.cells(&w)...)
		}
	}
	return w.rest()
}

// cells returns the cells of a row without the name. The row of an equal pair has only its kind and
// types.
func (c change) cells(w *restWriter) []string {
	cells := []string{w.share(c.Kind(), c.TypeA(), c.TypeB())}
	if !c.Different {
		return cells
	}
	relative := func(f numbers.Float) string { return percent(f) + "~" + exact(f) }
	blank := func(text string, shown bool) string {
		if shown {
			return text
		}
		return ""
	}
	return append(cells,
		blank(relative(c.Change), c.Measured()),
		tally(c.Elements),
		blank(relative(c.Pair.Share), c.Elements > 0),
		blank(figure(c.MaxAbs), c.Elements > 0),
		c.Where)
}
