package pattern

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// A NoMatch is the error for a Glob that matches none of the names.
type NoMatch struct {
	Glob  Glob
	names []string
	flag  string // the flag that takes such patterns: --only, --except or --targets
}

func (e *NoMatch) Error() string {
	text := fmt.Sprintf("no tensor matches %q", e.Glob.text)
	if e.Glob.text == "" {
		return text + ": the pattern is empty"
	}
	if parts := e.parts(); len(parts) > 0 {
		return text + "; a comma does not separate patterns: repeat the flag, " + e.flag + " " + strings.Join(parts, " "+e.flag+" ")
	}
	if expression().MatchString(e.Glob.text) {
		return text + "; patterns are those of a shell, such as *norm*"
	}
	if strings.Contains(e.Glob.text, "{") {
		return text + "; patterns have *, ? and [a-z], no braces: repeat the flag, " + e.flag + " PATTERN " + e.flag + " PATTERN"
	}
	for _, rest := range []string{".*", "/*"} {
		if below, err := ParseGlob(e.Glob.text + rest); err == nil && strings.ContainsAny(e.Glob.text, "*?[") && slices.ContainsFunc(e.names, below.Matches) {
			return fmt.Sprintf("%s, did you mean %q?", text, below.text)
		}
	}
	if inside := e.inside(); inside != "" {
		return fmt.Sprintf("%s, did you mean %q?", text, inside)
	}
	name := Nearest(e.Glob.text, withModules(e.names))
	if strings.Contains(name, "[") && !slices.Contains(e.names, name) { // a Glob with classes does not select the names below a module or a folder
		below := ".*"
		if slices.ContainsFunc(e.names, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
			below = "/*"
		}
		name = strings.NewReplacer("[", "[[]", "*", "[*]", "?", "[?]").Replace(name) + below
	}
	return text + question(name)
}

// inside returns the Glob of a shell for names that contain the text of the Glob, or "" if there are not several. A number
// at the end of the text must be a whole one: h.1 stands for transformer.h.1 and not for transformer.h.10.
func (e *NoMatch) inside() string {
	text := e.Glob.text
	candidates := []string{"*" + text + "*"}
	switch last := text[len(text)-1]; {
	case strings.HasPrefix(text, "*"):
		return ""
	case strings.ContainsAny(text, "*?["):
		candidates = []string{"*." + text}
	case last >= '0' && last <= '9':
		candidates = []string{"*." + text + ".*", "*" + text + "[!0-9]*"}
	}
	for _, candidate := range candidates {
		if e.several(candidate) {
			return candidate
		}
	}
	return ""
}

// several reports whether a pattern matches more than one of the names.
func (e *NoMatch) several(pattern string) bool {
	g, err := ParseGlob(pattern)
	first := slices.IndexFunc(e.names, g.Matches)
	return err == nil && first >= 0 && slices.ContainsFunc(e.names[first+1:], g.Matches)
}

// SuggestTensor is like Suggest, but also suggests the modules and folders that contain the tensors with these names.
func SuggestTensor(name string, names []string) string { return Suggest(name, withModules(names)) }

// expression matches text that is a regular expression rather than a Glob.
var expression = lazyregexp.New(`^\^|^\.\*|[$\\|]`)

// parts returns the patterns that commas separate in the Glob, quoted, if one of them matches a name.
func (e *NoMatch) parts() (quoted []string) {
	parts := strings.Split(e.Glob.text, ",")
	if len(parts) < 2 {
		return nil
	}
	matches := false
	for _, part := range parts {
		part = strings.TrimSpace(part)
		g, err := ParseGlob(part)
		if err != nil || part == "" {
			return nil
		}
		matches = matches || slices.ContainsFunc(e.names, g.Matches)
		quoted = append(quoted, fmt.Sprintf("%q", part))
	}
	if !matches {
		return nil
	}
	return quoted
}
