package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

func printJSON(w io.Writer, l *listing) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(l)
}

// The text form truncates names and metadata to this many runes; the JSON form does
// not.
const maxName, maxValue = 200, 80

func printText(stdout io.Writer, l *listing) error {
	w := bufio.NewWriter(stdout) // Flush returns the first error
	fmt.Fprintln(w, printable(l.File, maxName))

	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(columns, "\nNAME\tDTYPE\tSHAPE\t%10s\n", "BYTES")
	for _, t := range l.Tensors {
		fmt.Fprintf(columns, "%s\t%v\t%s\t%10s\n", printable(t.Name, maxName), t.DType, shape(t.Shape), humanSize(t.Bytes))
	}
	columns.Flush()

	fmt.Fprintf(columns, "\nDTYPE\t%7s\t%17s\t%10s\n", "TENSORS", "PARAMETERS", "BYTES")
	row := func(name string, t total) {
		fmt.Fprintf(columns, "%s\t%7d\t%17s\t%10s\n", name, t.Tensors, thousands(t.Parameters), humanSize(t.Bytes))
	}
	for _, t := range l.DTypes {
		row(t.DType.String(), t)
	}
	row("total", l.Total)
	columns.Flush()

	if len(l.Metadata) > 0 {
		fmt.Fprintf(columns, "\nMETADATA\n")
		for _, key := range slices.Sorted(maps.Keys(l.Metadata)) {
			fmt.Fprintf(columns, "%s\t%s\n", printable(key, maxName), printable(l.Metadata[key], maxValue))
		}
	}
	columns.Flush()
	return w.Flush()
}

// printable returns s unchanged if it is printable text, and quoted otherwise: names
// come from strangers and may hold newlines or escape sequences.
func printable(s string, limit int) string {
	more := ""
	if n := utf8.RuneCountInString(s); n > limit {
		s, more = string([]rune(s)[:limit]), "…"
	}
	hidden := func(r rune) bool { return !strconv.IsPrint(r) }
	if s == "" || strings.HasPrefix(s, `"`) || strings.ContainsFunc(s, hidden) || !utf8.ValidString(s) {
		s = strconv.Quote(s)
	}
	return s + more
}

// shape formats a shape as in the file: [2,3].
func shape(dims []int) string {
	return strings.ReplaceAll(fmt.Sprint(dims), " ", ",")
}

// humanSize formats a number of bytes with three digits and a decimal unit.
func humanSize(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n), -1
	for ; value >= 999.5; unit++ {
		value /= 1000
	}
	digits := 2
	if value >= 9.995 {
		digits--
	}
	if value >= 99.95 {
		digits--
	}
	return fmt.Sprintf("%.*f %cB", digits, value, "kMGTPE"[unit])
}

// thousands formats a number with commas: 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
