// Package term shows things in a terminal: names that strangers chose, sizes, and
// the progress of long work.
package term

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"golang.org/x/term"
)

// Quote returns s unchanged if it is printable text, and quoted otherwise: names
// from files may hold newlines, escape sequences or marks that reorder text. It
// shows at most limit characters.
func Quote(s string, limit int) string {
	more, n := "", 0
	for i := range s { // which may have a hundred million
		if n == limit {
			s, more = s[:i], "…"
			break
		}
		n++
	}
	if s == "" || strings.HasPrefix(s, `"`) || strings.ContainsFunc(s, hidden) || !utf8.ValidString(s) {
		s = strconv.Quote(s)
	}
	return s + more
}

// The limits of Quote for names and for the values of metadata.
const (
	NameLimit  = 200
	ValueLimit = 80
)

// Name quotes a name.
func Name(s string) string { return Quote(s, NameLimit) }

// Bare returns an error without the prefix that those of the library have, which the
// command puts before all errors. They wrap what is after it.
func Bare(err error) error {
	if inner := errors.Unwrap(err); inner != nil && err.Error() == "safetensors: "+inner.Error() {
		return inner
	}
	return err
}

// hidden reports whether a rune is not printed as itself: control characters,
// those of the C1 set too, and the marks of bidirectional text.
func hidden(r rune) bool { return !strconv.IsPrint(r) }

// Clean returns a message with the runes escaped that are not printable, but for
// newlines, which separate several messages.
func Clean(s string) string {
	quoted := strconv.Quote(s)
	return readable.Replace(quoted[1 : len(quoted)-1])
}

// readable undoes the escapes of strconv.Quote that a message does not need.
var readable = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// PrintJSON writes a line of JSON, with everything escaped that is not printable.
func PrintJSON(w io.Writer, v any) error {
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	var b bytes.Buffer
	for _, r := range strings.TrimSuffix(raw.String(), "\n") {
		if !hidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) { // only inside a string
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// Bytes formats a number of bytes with a decimal unit.
func Bytes(n int64) string { return humanize.Bytes(uint64(n)) }

// ParseBytes reads a size such as 5GB, 512MiB or 1000B.
func ParseBytes(s string) (int64, error) {
	if s != "" && '0' <= s[len(s)-1] && s[len(s)-1] <= '9' {
		return 0, fmt.Errorf("%q has no unit: expected a size like %[1]sGB or %[1]sB", s)
	}
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size like 5GB or 512MiB", s)
	}
	return int64(n), nil
}

// Count formats a number with commas: 1,234,567.
func Count(n int64) string { return humanize.Comma(n) }

// Shape formats a shape as in the file: [2,3]. One of a million dimensions is cut.
func Shape(dims []int) string {
	return Quote(strings.ReplaceAll(fmt.Sprint(dims), " ", ","), ValueLimit)
}

// Plural formats a number of things: 1 tensor, 2 tensors.
func Plural(n int, thing string) string { return english.Plural(n, thing, "") }

// columns returns how many characters a line of a terminal has, 80 if that is not known.
func columns(stream any) int {
	if f, ok := stream.(interface{ Fd() uintptr }); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

// Is reports whether a stream is a terminal.
func Is(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
