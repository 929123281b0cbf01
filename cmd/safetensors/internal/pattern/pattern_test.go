package pattern

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGlob has globs, and names that they select or do not.
func TestGlob(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.b.c", true},
		{"a.b", "a.bc", false},
		{"a.b", "xa.b", false},
		{"a.b", "axb", false},
		{"a.b.", "a.b.c", true},
		{"a.b.", "a.b", false},
		{"a.b.", "a.b.", true},
		{"a.b.", "a.bx.c", false},
		{"a", "a/b.c", true},
		{"a", "ab/c", false},
		{"a/", "a/b.c", true},
		{"a/", "a/", true},
		{"a/", "a", false},
		{"a/", "a.b", false},
		{"a.b", "a.b/c", true},
		{"*", "", true},
		{"*", "a.b/c\nd", true},
		{"a.*", "a.b.c", true},
		{"a.*", "a", false},
		{"*.weight", "x.weight.y", false},
		{"?", "ä", true},
		{"?", "ab", false},
		{"l.[0-2].w", "l.1.w", true},
		{"l.[0-2].w", "l.3.w", false},
		{"l.[!0-2]", "l.3", true},
		{`[\d]`, "3", false},
		{`[\d]`, `\`, true},
		{`[!\d]`, "d", false},
		{"[^a]", "a", false},
		{"x[a]", "xa.b", false},
		{"a+(b)", "a+(b)", true},
		{"", "", true},
		{"", ".x", true},
		{"", "x", false},
	} {
		g, err := ParseGlob(c.glob)
		require.NoError(t, err, c.glob)
		require.Equal(t, c.want, g.re.MatchString(c.name), "%q %q", c.glob, c.name)
	}
	for _, bad := range []string{"[", "[]", "a[b", "[z-a]"} {
		_, err := ParseGlob(bad)
		require.Error(t, err, bad)
	}
}

// TestRename has expressions in the manner of sed, and what they make of a name.
func TestRename(t *testing.T) {
	for _, c := range []struct{ rename, name, want string }{
		{"s/a/b/", "aa", "ba"},
		{"s/a/b/g", "aa", "bb"},
		{"s/A/b/i", "aa", "ba"},
		{"s/A/b/gI", "aa", "bb"},
		{`s/^model\.//`, "model.x.model.y", "x.model.y"},
		{`s/(\d+)\.(.*)/\2-\1/`, "layers.3.w", "layers.w-3"},
		{"s/x/[&]/", "axb", "a[x]b"},
		{`s/x/\&/`, "axb", "a&b"},
		{`s/x/\$1\$$/`, "axb", "a$1$$b"},
		{`s/x/\\/`, "axb", `a\b`},
		{`s/x/\\0/`, "axb", `a\0b`},
		{`s/x/\0\0/`, "axb", "axxb"},
		{`s/x/\ä\$/`, "axb", "aä$b"},
		{`s/x/\/\:\@/`, "axb", "a/:@b"},
		{"s/x/\\{\\[\\`/", "axb", "a{[`b"},
		{"s/x/a\nb/", "x", "a\nb"},
		{"s|a/b|c|", "a/b", "c"},
		{`s|a\|b|c|`, "b", "c"},
		{`s/\\\//c/`, `a\/`, "ac"},
		{`s/(a)(b)(c)(d)(e)(f)(g)(h)(i)/\9/`, "abcdefghi", "i"},
		{"s-a-b-", "a", "b"},
		{"s]a]b]", "a", "b"},
		{"s^a^b^", "a", "b"},
		{`s/a\/b/c/`, "a/b", "c"},
		{`s/a/b\/c/`, "a", "b/c"},
		{"s/z/y/", "abc", "abc"},
		{"sxaxbx", "a", "b"},
		{"s/x*/-/g", "abc", "-a-b-c-"},
		{`s/(a)|b/<\1>/g`, "ab", "<a><>"},
		{`s/^(a|ab)/m/`, "abc", "mbc"},
		{`s/^(.*?)\./\1-/`, "a.b.c", "a-b.c"},
	} {
		r, err := ParseRename(c.rename)
		require.NoError(t, err, c.rename)
		require.Equal(t, c.want, r.Apply(c.name), c.rename)
	}
	for _, bad := range []string{"", "s", "x/a/b/", "s/a/b", "s/a/b/x", "s/(/b/", `s/a/\1/`, "s/a/b/c/", `s\a\b\`, "s/a/\xff/", `s/a/b\/`, `s/a/b/\`, `s/a/\U&/`, `s/a/\n/`, `s/a/\z/`, `s/a/\A/`, `s/a/\a/`, `s/a/\Z/`, `s/(a)/$1/`, `s/(a)/${1}/`, `s/\<a/b/`, `s/a\>/b/`} {
		_, err := ParseRename(bad)
		require.Error(t, err, bad)
	}
}

// TestSelection: a name is selected if a pattern selects it and no exception does; a pattern
// without a name is an error, and so is a selection that excludes all names.
func TestSelection(t *testing.T) {
	names := []string{"a.x", "a.y", "b.x", "c"}
	for _, c := range []struct{ only, except, want []string }{
		{nil, nil, names},
		{[]string{"a"}, nil, []string{"a.x", "a.y"}},
		{[]string{"*.x", "c"}, []string{"b"}, []string{"a.x", "c"}},
		{nil, []string{"*.x"}, []string{"a.y", "c"}},
	} {
		s, err := ParseSelection(c.only, c.except)
		require.NoError(t, err)
		got, err := s.Of(names)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, c := range [][3][]string{
		{{"d"}, nil, {`"d"`}}, {nil, {"d"}, {`"d"`}}, {{"a", "d"}, nil, {`"d"`}},
		{{"model.layer.0"}, nil, {`"model.layer.0", did you mean "model.layers.0"?`}},
		{{"^model.*"}, nil, {`"^model.*"; patterns are those of a shell, such as *norm*`}},
		{{".*norm.*"}, nil, {`".*norm.*"; patterns are those of a shell, such as *norm*`}},
		{{"model.layers.{0,1}"}, nil, {`"model.layers.{0,1}"; patterns have *, ? and [a-z], no braces: repeat the flag, --only PATTERN --only PATTERN`}},
		{{`layers\.[0-9]{1,2}`}, nil, {`"layers\\.[0-9]{1,2}"; patterns are those of a shell, such as *norm*`}},
		{{"model.*.q"}, nil, {`"model.*.q"`}},
		{{"unte"}, nil, {`"unte", did you mean "unet"?`}},
		{{"h.1"}, nil, {`"h.1", did you mean "*.h.1.*"?`}}, // and not h.10
		{{"h.1.*"}, nil, {`"h.1.*", did you mean "*.h.1.*"?`}},
		{{"up_1"}, nil, {`"up_1", did you mean "*up_1[!0-9]*"?`}},
		{{"mlp"}, nil, {`"mlp", did you mean "*mlp*"?`}},
		{{"u?et"}, nil, {`"u?et", did you mean "u?et/*"?`}},
	} {
		s, err := ParseSelection(c[0], c[1])
		require.NoError(t, err)
		_, err = s.Of(append(names, "model.layers.0.mlp.weight", "unet/conv_in.weight", "x.h.1.mlp.w", "x.h.1.up_1_w", "x.h.10.mlp.w", "x.up_1_w", "x.up_10"))
		require.EqualError(t, err, "no tensor matches "+c[2][0])
	}
	brackets := []string{"a[b]", "m[0].w*[x]?", "plain", "u[1]/x"}
	for text, want := range map[string]string{
		"a[c]": `"a[c]", did you mean "a[b]"?`, "m[0].w": `"m[0].w", did you mean "m[[]0].*"?`, "m[0].w*[y]?": `"m[0].w*[y]?", did you mean "m[0].w*[x]?"?`,
		"m[0]": `"m[0]", did you mean "m[[]0].*"?`, "plein[1]": `"plein[1]"`,
		"u[1]": `"u[1]", did you mean "u[[]1]/*"?`,
	} {
		s, err := ParseSelection([]string{text}, nil)
		require.NoError(t, err)
		_, err = s.Of(brackets)
		require.EqualError(t, err, "no tensor matches "+want)
		if _, meant, found := strings.Cut(want, "mean "); found {
			meant, err = strconv.Unquote(strings.TrimSuffix(meant, "?"))
			require.NoError(t, err)
			s, err = ParseSelection([]string{meant}, nil)
			require.NoError(t, err)
			selected, err := s.Of(brackets)
			require.NoError(t, err)
			require.Len(t, selected, 1, "the pattern that is suggested works")
		}
	}
	for text, want := range map[string][]string{
		"x[0].y": {"x[0].y", "x0.y"}, "x[[]0].y": {"x[0].y"}, "x0.y": {"x0.y"}, "a*?": {"a*?", "ab*?"}, "b[": nil,
	} { // a pattern also selects the name that equals it
		s, err := ParseSelection([]string{text}, nil)
		if want == nil {
			require.ErrorContains(t, err, "[ without ]")
			continue
		}
		require.NoError(t, err)
		selected, err := s.Of([]string{"x[0].y", "x0.y", "x1.y", "a*?", "ab*?", "b["})
		require.NoError(t, err)
		require.Equal(t, want, selected)
	}
	for _, only := range [][]string{nil, {"a"}} {
		s, err := ParseSelection(only, []string{"a", "b", "c"})
		require.NoError(t, err)
		_, err = s.Of(names)
		require.EqualError(t, err, "no tensor is selected: --except leaves out all")
	}
	all, err := Selection{}.Of(nil)
	require.NoError(t, err, "a file without tensors")
	require.Empty(t, all)
}

// TestHostileNames: neither a name of many dots nor many names are taken apart for a suggestion.
func TestHostileNames(t *testing.T) {
	names := []string{"a/b.c", strings.Repeat("./", 1<<15)}
	require.Equal(t, []string{"a/b.c", "a/b", "a"}, withModules(names))
	require.Len(t, names[1], 1<<16)

	names = nil
	for i := range 1 << 14 {
		names = append(names, fmt.Sprint(i, strings.Repeat(".a", 19)))
	}
	require.Len(t, withModules(names), len(names)+maxModules)
}

// TestReplacing makes a Rename of an expression and a literal text, in which sed would take characters for others.
func TestReplacing(t *testing.T) {
	for _, text := range []string{"a.b", `a/b&c\1$1${2}`, ""} {
		r, err := ParseRename(Replacing(`^x/.*`, text))
		require.NoError(t, err)
		require.Equal(t, text+"\n", r.Apply("x/y\n"))
	}
}
