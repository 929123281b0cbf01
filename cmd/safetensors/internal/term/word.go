package term

import (
	"runtime"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// Word returns s as a word of a command line, which a user may copy into a shell. It quotes s only if a shell needs that:
// for POSIX with single quotes, or as $'a\n' if s is not printable text; on Windows with double quotes.
func Word(s string) string { return word(s, runtime.GOOS == "windows") }

// FileWord is Word for the name of a file or a URL. A name that begins with a dash would be taken for a flag, so that
// FileWord puts ./ before it.
func FileWord(name string) string {
	if strings.HasPrefix(name, "-") && name != "-" {
		name = "./" + name
	}
	return Word(name)
}

// beforeQuote matches a double quote with the backslashes before it.
var beforeQuote = lazyregexp.New(`(\\*)"`)

// word is Word for Windows or for POSIX.
func word(s string, windows bool) string {
	plain := "-_./:=,@%+"
	if windows {
		plain += `\`
	}
	special := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(plain, r)
	}
	switch printable := utf8.ValidString(s) && !strings.ContainsFunc(s, hidden); {
	case windows && !printable:
		return strconv.Quote(s)
	case !printable:
		quoted := strconv.Quote(s)
		return "$'" + strings.ReplaceAll(quoted[1:len(quoted)-1], "'", `\'`) + "'"
	case s != "" && !strings.ContainsFunc(s, special):
		return s
	case windows:
		s = beforeQuote().ReplaceAllString(s, `$1$1\"`)
		return `"` + s + s[len(strings.TrimRight(s, `\`)):] + `"` // programs take \" for a quote, and \\ before it for a backslash
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
