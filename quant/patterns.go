package quant

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// Patterns select modules, by names and by expressions.
type patterns struct {
	names map[string]bool
	exprs []*regexp.Regexp
}

// maxExpressions limits the bytes of the expressions of a config, with repeats written out
// and 32 more for each: a match takes time in proportion to them, and to each name. Names
// cost nothing.
const maxExpressions = 1 << 17

// parsePatterns compiles lists of patterns: "re:" and a regular expression that matches
// from the start of a name on, or a name in which * stands for anything. An expression
// that only Python understands matches nothing.
func (c *config) parsePatterns(lists ...[]string) (p patterns, err error) {
	p.names = map[string]bool{}
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
			expr = "^(?:" + expr + ")"
			if c.expressions += 32 + length(expr); c.expressions > maxExpressions {
				return p, fmt.Errorf("its patterns, with repeats written out, take more than %d bytes", maxExpressions)
			}
			if re, err := regexp.Compile(expr); err == nil {
				p.exprs = append(p.exprs, re)
			}
		}
	}
	return p, nil
}

// length returns the length of an expression with repeats written out.
func length(expr string) int64 {
	n := int64(len(expr))
	if n > maxExpressions {
		return n
	}
	if re, err := syntax.Parse(expr, syntax.Perl); err == nil {
		n = max(n, steps(re))
	}
	return n
}

// steps returns about how many steps an expression is compiled to: x{1000} to a thousand.
func steps(re *syntax.Regexp) int64 {
	n := int64(1 + len(re.Rune))
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= int64(max(1, re.Min, re.Max))
	}
	return n
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
