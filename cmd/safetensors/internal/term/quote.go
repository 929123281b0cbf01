// Package term formats text for a terminal: untrusted names, sizes, and the progress of
// long work.
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

	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// Quote returns s unchanged if it is printable text, and quoted otherwise, because names from files
// may contain newlines, escape sequences or marks that reorder text. It shows at most limit
// characters.
func Quote(s string, limit int) string {
	more, n := "", 0
	for i := range s { // the loop ends after limit characters, since s may have a hundred million
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

// NameLimit and ValueLimit are the limits, in characters, for quoting names and values of metadata.
const (
	NameLimit  = 200
	ValueLimit = 80
)

// Name quotes a name, and shortens it to NameLimit characters.
func Name(s string) string { return Quote(s, NameLimit) }

// Bare returns an error without the prefix of the library's errors, since the command adds that
// prefix to every error it prints.
func Bare(err error) error {
	if inner := errors.Unwrap(err); inner != nil && err.Error() == "safetensors: "+inner.Error() {
		return inner
	}
	return err
}

// hidden reports whether a rune is not printed as itself. Such runes are the control characters,
// including those of the C1 set, and the marks of bidirectional text.
func hidden(r rune) bool { return !strconv.IsPrint(r) }

// Clean escapes the runes of a message that are not printable, except newlines, which separate
// several messages.
func Clean(s string) string {
	quoted := strconv.Quote(s)
	return readable.Replace(quoted[1 : len(quoted)-1])
}

// readable undoes the escapes of strconv.Quote that a message does not need.
var readable = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// PrintJSON writes v as a line of JSON in which every rune that is not printable is escaped.
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
		for _, unit := range utf16.AppendRune(nil, r) { // such runes occur only inside of strings
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// Bytes formats a number of bytes with a decimal unit.
func Bytes(n int64) string { return humanize.Bytes(uint64(n)) }

// ParseBytes reads a size above 0 such as 5GB, 512MiB or 1000B. A number without a unit is an error: a forgotten GB
// would make a shard of every tensor.
func ParseBytes(s string) (int64, error) {
	const units = "B, kB, MB, GB, TB (powers of 1,000), KiB, MiB, GiB and TiB (powers of 1,024)"
	if s != "" && strings.Trim(s, "0123456789.,") == "" {
		return 0, fmt.Errorf("%q has no unit: %[1]sB is that many bytes; the units are %s", s, units)
	}
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size like 5GB or 512MiB; the units are %s", s, units)
	}
	return int64(n), nil
}

// Count formats a number with commas: 1,234,567.
func Count(n int64) string { return humanize.Comma(n) }

// Shape formats a shape in the notation of the file: [2,3]. It shortens a shape with very many
// dimensions.
func Shape(dims []int) string {
	return Quote(shapetext.Of(dims), ValueLimit)
}

// Plural formats a number with its noun: 1 tensor, 2 tensors.
func Plural(n int, thing string) string { return english.Plural(n, thing, "") }

// Either returns the word for n things: one if n is 1, and otherwise several.
func Either(n int, one, several string) string { return english.PluralWord(n, one, several) }

// columns returns the number of characters in a line of a terminal, or 80 if it is unknown.
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
