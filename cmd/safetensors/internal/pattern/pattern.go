// Package pattern selects and renames tensors by their names, and divides names into trees.
package pattern

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Glob selects names. In it * stands for any characters, ? for one and [a-z] for
// one of several. A Glob without these also selects all names below it: model.layers.0
// selects model.layers.0.mlp.weight. With a dot at its end, as a shell may complete it,
// only those below it.
type Glob struct {
	text string
	re   *regexp.Regexp
}

// ParseGlob returns the Glob with that text.
func ParseGlob(text string) (Glob, error) {
	var b strings.Builder
	b.WriteString(`\A(?s:`)
	plain := true
	for rest := text; rest != ""; {
		r, n := utf8.DecodeRuneInString(rest)
		switch r {
		case '*':
			b.WriteString(".*")
			plain = false
		case '?':
			b.WriteString(".")
			plain = false
		case '[':
			end := strings.IndexByte(rest, ']')
			if end < 2 {
				return Glob{}, fmt.Errorf("pattern %q: [ without ]", text)
			}
			class := rest[1:end]
			if class[0] == '!' {
				class = "^" + class[1:]
			}
			b.WriteString("[" + strings.ReplaceAll(class, `\`, `\\`) + "]")
			n = end + 1
			plain = false
		default:
			b.WriteString(regexp.QuoteMeta(rest[:n]))
		}
		rest = rest[n:]
	}
	switch {
	case plain && strings.HasSuffix(text, "."):
		b.WriteString(".*")
	case plain:
		b.WriteString(`(\..*)?`)
	}
	b.WriteString(`)\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		return Glob{}, fmt.Errorf("pattern %q: %w", text, err)
	}
	return Glob{text, re}, nil
}

// Match reports whether the Glob selects a name.
func (g Glob) Match(name string) bool { return g.re.MatchString(name) }

// A Selection is the names that one of some Globs selects and none of some others.
type Selection struct{ only, except []Glob }

// ParseSelection returns the selection of these patterns. Without any in only, it
// starts from all names.
func ParseSelection(only, except []string) (s Selection, err error) {
	if s.only, err = parseGlobs(only); err == nil {
		s.except, err = parseGlobs(except)
	}
	return s, err
}

func parseGlobs(texts []string) (globs []Glob, err error) {
	for _, text := range texts {
		g, err := ParseGlob(text)
		if err != nil {
			return nil, err
		}
		globs = append(globs, g)
	}
	return globs, nil
}

// Of returns the names that are selected. A pattern that no name matches is an
// error: it is a typing error more often than not.
func (s Selection) Of(names []string) (selected []string, err error) {
	used := make(map[string]bool)
	matches := func(globs []Glob, name string) (any bool) {
		for _, g := range globs {
			if g.Match(name) {
				used[g.text] = true
				any = true
			}
		}
		return any
	}
	for _, name := range names {
		in, out := matches(s.only, name), matches(s.except, name)
		if (in || len(s.only) == 0) && !out {
			selected = append(selected, name)
		}
	}
	for _, globs := range [][]Glob{s.only, s.except} {
		for _, g := range globs {
			if !used[g.text] {
				return nil, fmt.Errorf("no tensor matches %q%s", g.text, Suggest(g.text, withModules(names)))
			}
		}
	}
	return selected, nil
}

// maxModules is more modules than models have.
const maxModules = 1 << 17

// withModules returns names and what they are below: model.layers of
// model.layers.0.weight. Long names, of strangers, are left out, and modules beyond
// maxModules.
func withModules(names []string) []string {
	const maxLen = 1000
	all := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return len(name) > maxLen })
	known := make(map[string]bool)
	for _, name := range all {
		for i := strings.LastIndexByte(name, '.'); i > 0 && !known[name[:i]] && len(known) < maxModules; i = strings.LastIndexByte(name[:i], '.') {
			known[name[:i]] = true
			all = append(all, name[:i])
		}
	}
	return all
}

// A Rename replaces a part of names, as the command s of sed does.
type Rename struct {
	re  *regexp.Regexp
	to  string // as Expand of package regexp takes it
	all bool

	text string
}

// ParseRename parses s/REGEXP/REPLACEMENT/ with the flags g and i. Any character can
// take the place of the slash. In the replacement, & and \0 stand for the match and
// \1 to \9 for a group.
func ParseRename(text string) (Rename, error) {
	fail := func(why string) (Rename, error) {
		return Rename{}, fmt.Errorf("%q is not s/REGEXP/REPLACEMENT/: %s", text, why)
	}
	rest, ok := strings.CutPrefix(text, "s")
	switch {
	case !ok || rest == "":
		return fail("it does not start with s/")
	case !utf8.ValidString(rest): // as names are
		return fail("it is not valid UTF-8")
	}
	delimiter, n := utf8.DecodeRuneInString(rest)
	if delimiter == '\\' || delimiter == utf8.RuneError {
		return fail("that is no delimiter")
	}
	parts := split(rest[n:], delimiter)
	if len(parts) != 3 {
		return fail(fmt.Sprintf("it has %d parts", len(parts)))
	}
	r := Rename{text: text}
	expression := parts[0]
	for _, flag := range parts[2] {
		switch flag {
		case 'g':
			r.all = true
		case 'i', 'I':
			expression = "(?i)" + expression
		default:
			return fail(fmt.Sprintf("there is no flag %q", flag))
		}
	}
	var err error
	if r.re, err = regexp.Compile(expression); err != nil {
		return fail(err.Error())
	}
	r.to, err = replacement(parts[1], r.re.NumSubexp())
	if err != nil {
		return fail(err.Error())
	}
	return r, nil
}

// split splits text at a delimiter, which a backslash before it escapes.
func split(text string, delimiter rune) []string {
	parts := []string{""}
	last := &parts[0]
	escaped := false
	for _, r := range text {
		switch {
		case escaped:
			if r != delimiter {
				*last += `\`
			}
			*last += string(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == delimiter:
			parts = append(parts, "")
			last = &parts[len(parts)-1]
		default:
			*last += string(r)
		}
	}
	if escaped {
		*last += `\`
	}
	return parts
}

// replacement translates a replacement of sed to one of package regexp.
func replacement(text string, groups int) (string, error) {
	var b strings.Builder
	escaped := false
	for _, r := range text {
		switch {
		case escaped && '0' <= r && r <= '9':
			if int(r-'0') > groups {
				return "", fmt.Errorf(`\%c: the expression has %d groups`, r, groups)
			}
			fmt.Fprintf(&b, "${%c}", r)
			escaped = false
		case escaped:
			b.WriteString(strings.ReplaceAll(string(r), "$", "$$"))
			escaped = false
		case r == '\\':
			escaped = true
		case r == '&':
			b.WriteString("${0}")
		case r == '$':
			b.WriteString("$$")
		default:
			b.WriteRune(r)
		}
	}
	return b.String(), nil
}

// Apply returns the new name.
func (r Rename) Apply(name string) string {
	if r.all {
		return r.re.ReplaceAllString(name, r.to)
	}
	m := r.re.FindStringSubmatchIndex(name)
	if m == nil {
		return name
	}
	return string(r.re.ExpandString([]byte(name[:m[0]]), r.to, name, m)) + name[m[1]:]
}

// CheckRenames returns an error if one of several renames, one after another, matches none of
// the names.
func CheckRenames(names []string, renames []Rename) error {
	for i, r := range renames {
		matches := func(name string) bool { return r.re.MatchString(Renamed(name, renames[:i])) }
		if !slices.ContainsFunc(names, matches) {
			return fmt.Errorf("no tensor matches --rename %q", r.text)
		}
	}
	return nil
}

// Renamed returns the new name after several renames, one after another.
func Renamed(name string, renames []Rename) string {
	for _, r := range renames {
		name = r.Apply(name)
	}
	return name
}
