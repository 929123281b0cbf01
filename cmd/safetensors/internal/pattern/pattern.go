// Package pattern selects and renames tensors by their names, and divides names into trees.
package pattern

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// A Glob selects names. In a Glob, * stands for any characters, ? for one character, and [a-z] for
// one of several characters. A Glob without such characters also selects all names below it:
// model.layers.0 selects model.layers.0.mlp.weight, and unet selects unet/conv_in.weight in a folder
// of several models. If it ends in a dot or a slash, as the completion of a shell may leave it, it
// selects only the names below it. A Glob also selects the name that equals its text, such as x[0].y,
// which the class does not match.
type Glob struct {
	text string
	re   *regexp.Regexp
}

// globPart matches a part of a Glob: a wildcard, or plain text.
var globPart = lazyregexp.New(`[*?]|\[[^\]]+\]|[^*?[]+|\[`)

// ParseGlob parses a Glob.
func ParseGlob(text string) (Glob, error) {
	open := false
	expression := globPart().ReplaceAllStringFunc(text, func(part string) string {
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
	case strings.HasSuffix(text, "."), strings.HasSuffix(text, "/"):
		expression += ".*"
	default:
		expression += `([./].*)?`
	}
	re, err := regexp.Compile(`\A(?s:` + expression + `)\z`)
	if err != nil {
		return Glob{}, fmt.Errorf("pattern %q: %w", text, err)
	}
	return Glob{text, re}, nil
}

// Matches reports whether the Glob selects a name.
func (g Glob) Matches(name string) bool { return name == g.text || g.re.MatchString(name) }

// String returns the text of the Glob.
func (g Glob) String() string { return g.text }

// A Selection selects the names that match one of the Globs in only, or all names if only is empty.
// It does not select names that match one of the Globs in except.
type Selection struct {
	only, except []Glob
	flag         string // the flag whose values are the patterns in only, for errors; "" stands for --only
}

// ParseSelection returns the Selection with these patterns. If only is empty, it selects all names
// that except does not exclude.
func ParseSelection(only, except []string) (s Selection, err error) {
	if s.only, err = Each(only, ParseGlob); err == nil {
		s.except, err = Each(except, ParseGlob)
	}
	return s, err
}

// Excludes reports whether the selection leaves out a name because of one of the Globs in except.
func (s Selection) Excludes(name string) bool {
	return slices.ContainsFunc(s.except, func(g Glob) bool { return g.Matches(name) })
}

// IsZero reports whether the selection has no patterns, so that it selects all names.
func (s Selection) IsZero() bool { return len(s.only)+len(s.except) == 0 }

// Each calls parse for each text and returns the results.
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

// Named returns the Selection with the name of the flag whose values its patterns are, for errors.
func (s Selection) Named(flag string) Selection {
	s.flag = flag
	return s
}

// Of returns the selected names. A pattern that matches no name is an error, because it is probably
// a typing error. So is a selection without any name: no verb can tell something about it.
func (s Selection) Of(names []string) (selected []string, err error) {
	used := make(map[string]bool)
	matches := func(globs []Glob, name string) (any bool) {
		for _, g := range globs {
			if g.Matches(name) {
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
	for i, g := range slices.Concat(s.only, s.except) {
		flag := cmp.Or(s.flag, "--only")
		if i >= len(s.only) {
			flag = "--except"
		}
		if !used[g.text] {
			return nil, &NoMatch{g, names, flag}
		}
	}
	if len(selected) == 0 && len(names) > 0 {
		return nil, errors.New("no tensor is selected: --except leaves out all")
	}
	return selected, nil
}

// Among returns the Selection with only those patterns that match one of some names: the names of one of several
// sources. ok is false if it would select none of these names, because no pattern of only matches one.
func (s Selection) Among(names []string) (among Selection, ok bool) {
	unused := func(g Glob) bool { return !slices.ContainsFunc(names, g.Matches) }
	among.only = slices.DeleteFunc(slices.Clone(s.only), unused)
	among.except = slices.DeleteFunc(slices.Clone(s.except), unused)
	selected := func(name string) bool {
		return !among.Excludes(name) && (len(among.only) == 0 || slices.ContainsFunc(among.only, func(g Glob) bool { return g.Matches(name) }))
	}
	return among, (len(s.only) == 0 || len(among.only) > 0) && slices.ContainsFunc(names, selected)
}

// maxModules limits the number of modules among the suggestions. Models have fewer.
const maxModules = 1 << 17

// withModules returns names and the modules and folders that contain them: unet/model.layers,
// unet/model and unet for unet/model.layers.0. It leaves out very long names, which only hostile files have, and modules beyond
// maxModules.
func withModules(names []string) []string {
	const maxLen = 1000
	all := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return len(name) > maxLen })
	known := make(map[string]bool)
	for _, name := range all {
		for i := strings.LastIndexAny(name, "./"); i > 0 && !known[name[:i]] && len(known) < maxModules; i = strings.LastIndexAny(name[:i], "./") {
			known[name[:i]] = true
			all = append(all, name[:i])
		}
	}
	return all
}

// A Rename replaces a part of names, like the command s of sed.
type Rename struct {
	re  *regexp.Regexp
	to  string // replacement in the syntax of Expand of package regexp
	all bool

	text string
}

// ParseRename parses s/REGEXP/REPLACEMENT/ with the flags g and i, a value of --rename. Any character
// can be used instead of the slash. In the replacement, & and \0 stand for the match, and \1 to \9 for
// a group. The syntax of REGEXP is that of package regexp, not that of sed, which always takes the
// longest match.
func ParseRename(text string) (Rename, error) {
	fail := func(why string) (Rename, error) {
		return Rename{}, fmt.Errorf("--rename %s: expected s/REGEXP/REPLACEMENT/: %s", text, why)
	}
	rest, ok := strings.CutPrefix(text, "s")
	switch {
	case !ok || rest == "":
		return fail("it does not start with s/")
	case !utf8.ValidString(rest): // because names are valid UTF-8
		return fail("it is not valid UTF-8")
	}
	delimiter, n := utf8.DecodeRuneInString(rest)
	if delimiter == '\\' || delimiter == utf8.RuneError {
		return fail("its delimiter is invalid")
	}
	d := regexp.QuoteMeta(string(delimiter))
	part := `((?:[^\\` + d + `]|\\.)*)` // a backslash escapes the delimiter
	parts := regexp.MustCompile(`(?s)\A` + part + d + part + d + part + `\z`).FindStringSubmatch(rest[n:])
	if parts == nil {
		return fail(fmt.Sprintf("it does not have three parts that end with %c", delimiter))
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
	if strings.Contains(expression, `\<`) || strings.Contains(expression, `\>`) {
		return fail(`words start and end at \b, not at \< and \>`)
	}
	var err error
	if r.re, err = regexp.Compile(expression); err != nil {
		return fail(err.Error())
	}
	r.to, err = replacement(unescape.Replace(parts[2]), r.re.NumSubexp())
	if err != nil {
		return fail(err.Error() + r.groups())
	}
	return r, nil
}

// Replacing returns the text of a Rename that replaces the first match of an expression with a literal text.
func Replacing(expression, text string) string {
	literal := strings.NewReplacer(`\`, `\\`, "/", `\/`, "&", `\&`, "$", `\$`).Replace(text)
	return "s/" + strings.ReplaceAll(expression, "/", `\/`) + "/" + literal + "/"
}

// special matches text with a special meaning in a replacement of sed or of package regexp.
var special = lazyregexp.New(`(?s)\\.|\$[0-9]|\$\{[0-9]\}|[&$]`)

// replacement translates a replacement of sed to one of package regexp. groups is the number of
// groups of the expression.
func replacement(text string, groups int) (to string, err error) {
	to = special().ReplaceAllStringFunc(text, func(s string) string {
		escaped, ok := strings.CutPrefix(s, `\`)
		switch {
		case s == "&":
			return "${0}"
		case s[0] == '$' && len(s) > 1:
			err = fmt.Errorf(`a group is \%s, not %s; a dollar is \$`, strings.Trim(s, "${}"), s)
		case ok && '0' <= escaped[0] && escaped[0] <= '9':
			if int(escaped[0]-'0') > groups {
				err = fmt.Errorf(`%s: the expression has %d groups`, s, groups)
			}
			return "${" + escaped + "}"
		case ok && ('a' <= escaped[0] && escaped[0] <= 'z' || 'A' <= escaped[0] && escaped[0] <= 'Z'):
			err = fmt.Errorf(`there is no %s in a replacement`, s) // some versions of sed have \n and \U
		}
		return strings.ReplaceAll(escaped, "$", "$$")
	})
	return to, err
}

// groups returns advice for an expression with the groups of basic regular expressions.
func (r Rename) groups() string {
	if strings.Contains(r.text, `\(`) {
		return `; groups are written ( ), not \( \)`
	}
	return ""
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

// RenameAll applies several renames, one after another, and returns the new names in the order of
// names. It is an error if a rename matches no name, or if two new names are equal.
func RenameAll(names []string, renames []Rename) ([]string, error) {
	renamed := slices.Clone(names)
	for _, r := range renames {
		if !slices.ContainsFunc(renamed, r.re.MatchString) {
			return nil, fmt.Errorf("no tensor matches --rename %s%s", r.text, r.groups())
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
