package quant

import (
	"fmt"
	"regexp"
	"strings"
)

// Patterns select modules, by names and by expressions.
type patterns struct {
	names map[string]bool
	exprs []*regexp.Regexp
}

// maxExpressions limits the bytes of the expressions of a config, with 32 more for each: a
// match takes time in proportion to them, and to each name. Names cost nothing.
const maxExpressions = 1 << 17

// parsePatterns compiles lists of patterns: "re:" and a regular expression that matches
// from the start of a name on, or a name in which * stands for anything. An expression
// that only Python understands matches nothing.
func parsePatterns(lists ...[]string) (p patterns, err error) {
	p.names = map[string]bool{}
	size := 0
	for _, list := range lists {
		for _, text := range list {
			expr, ok := strings.CutPrefix(text, "re:")
			switch {
			case !ok && !strings.Contains(text, "*"):
				p.names[text] = true
				continue
			case !ok:
				expr = strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*") + "$"
			}
			if size += 32 + len(expr); size > maxExpressions {
				return p, fmt.Errorf("its patterns take more than %d bytes", maxExpressions)
			}
			if re, err := regexp.Compile("^(?:" + expr + ")"); err == nil {
				p.exprs = append(p.exprs, re)
			}
		}
	}
	return p, nil
}

// match reports whether a pattern means a module.
func (p patterns) match(module string) bool {
	if p.names[module] {
		return true
	}
	for _, re := range p.exprs {
		if re.MatchString(module) {
			return true
		}
	}
	return false
}

// cover reports whether a pattern means a module, or names one that it is in: model.visual
// is what model.visual.proj is in, and so are visual and proj. It looks at the first few
// components of a path, which hostile ones have more of.
func (p patterns) cover(module string) bool {
	if p.match(module) {
		return true
	}
	const most = 32
	var ends [most]int
	n := 0
	for i := 0; i <= len(module) && n < most; i++ {
		if i == len(module) || module[i] == '.' {
			ends[n] = i
			n++
		}
	}
	start := 0
	for i, end := range ends[:n] {
		for _, stop := range ends[i:n] {
			if p.names[module[start:stop]] {
				return true
			}
		}
		start = end + 1
	}
	return false
}
