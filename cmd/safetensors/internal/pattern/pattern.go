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

// globPart is what stands for other characters in a Glob, or what stands for itself.
var globPart = regexp.MustCompile(`[*?]|\[[^\]]+\]|[^*?[]+|\[`)

// ParseGlob returns the Glob with that text.
func ParseGlob(text string) (Glob, error) {
	open := false
	expression := globPart.ReplaceAllStringFunc(text, func(part string) string {
		switch {
		case part == "*":
			return ".*"
		case part == "?":
			return "."
		case part == "[":
			open = true
		case part[0] == '[':
			class := strings.ReplaceAll(part[1:], `\`, `\\`)
			if rest, not := strings.CutPrefix(class, "!"); not {
				class = "^" + rest
			}
			return "[" + class
		}
		return regexp.QuoteMeta(part)
	})
	switch {
	case open:
		return Glob{}, fmt.Errorf("pattern %q: [ without ]", text)
	case strings.ContainsAny(text, "*?["):
	case strings.HasSuffix(text, "."):
		expression += ".*"
	default:
		expression += `(\..*)?`
	}
	re, err := regexp.Compile(`\A(?s:` + expression + `)\z`)
	if err != nil {
		return Glob{}, fmt.Errorf("pattern %q: %w", text, err)
	}
	return Glob{text, re}, nil
}

// A Selection is the names that one of some Globs selects and none of some others.
type Selection struct{ only, except []Glob }

// ParseSelection returns the selection of these patterns. Without any in only, it
// starts from all names.
func ParseSelection(only, except []string) (s Selection, err error) {
	if s.only, err = Each(only, ParseGlob); err == nil {
		s.except, err = Each(except, ParseGlob)
	}
	return s, err
}

// Each parses several texts.
func Each[T any](texts []string, parse func(text string) (T, error)) (all []T, err error) {
	for _, text := range texts {
		x, err := parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}

// Of returns the names that are selected. A pattern that no name matches is an
// error: it is a typing error more often than not.
func (s Selection) Of(names []string) (selected []string, err error) {
	used := make(map[string]bool)
	matches := func(globs []Glob, name string) (any bool) {
		for _, g := range globs {
			if g.re.MatchString(name) {
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
	for _, g := range slices.Concat(s.only, s.except) {
		if !used[g.text] {
			return nil, fmt.Errorf("no tensor matches %q%s", g.text, Suggest(g.text, withModules(names)))
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
	d := regexp.QuoteMeta(string(delimiter))
	part := `((?:[^\\` + d + `]|\\.)*)` // a backslash escapes the delimiter
	parts := regexp.MustCompile(`(?s)\A` + part + d + part + d + part + `\z`).FindStringSubmatch(rest[n:])
	if parts == nil {
		return fail(fmt.Sprintf("it has not three parts, which end with %c", delimiter))
	}
	unescape := strings.NewReplacer(`\\`, `\\`, `\`+string(delimiter), string(delimiter))
	r := Rename{text: text}
	expression := unescape.Replace(parts[1])
	for _, flag := range parts[3] {
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
	r.to, err = replacement(unescape.Replace(parts[2]), r.re.NumSubexp())
	if err != nil {
		return fail(err.Error())
	}
	return r, nil
}

// special is what stands for something else in a replacement of sed or of package regexp.
var special = regexp.MustCompile(`(?s)\\.|[&$]`)

// replacement translates a replacement of sed to one of package regexp.
func replacement(text string, groups int) (to string, err error) {
	to = special.ReplaceAllStringFunc(text, func(s string) string {
		escaped, ok := strings.CutPrefix(s, `\`)
		switch {
		case s == "&":
			return "${0}"
		case ok && '0' <= escaped[0] && escaped[0] <= '9':
			if int(escaped[0]-'0') > groups {
				err = fmt.Errorf(`%s: the expression has %d groups`, s, groups)
			}
			return "${" + escaped + "}"
		case ok && ('a' <= escaped[0] && escaped[0] <= 'z' || 'A' <= escaped[0] && escaped[0] <= 'Z'):
			err = fmt.Errorf(`there is no %s in a replacement`, s) // some seds have \n and \U
		}
		return strings.ReplaceAll(escaped, "$", "$$")
	})
	return to, err
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

// RenameAll returns the new names after several renames, one after another. Each has to match one
// of the names, and the new ones have to differ.
func RenameAll(names []string, renames []Rename) ([]string, error) {
	renamed := slices.Clone(names)
	for _, r := range renames {
		if !slices.ContainsFunc(renamed, r.re.MatchString) {
			return nil, fmt.Errorf("no tensor matches --rename %q", r.text)
		}
		for i, name := range renamed {
			renamed[i] = r.Apply(name)
		}
	}
	from := make(map[string]string, len(names))
	for i, name := range renamed {
		if other, taken := from[name]; taken {
			return nil, fmt.Errorf("tensors %q and %q would both be named %q", other, names[i], name)
		}
		from[name] = names[i]
	}
	return renamed, nil
}
