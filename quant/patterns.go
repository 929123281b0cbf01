package quant

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// A choice is what a config says of modules: of those that it names, and of others that an
// expression matches, the first one in order.
type choice[T any] struct {
	names map[string]T
	rules []rule[T]
}

type rule[T any] struct {
	*expression
	says T
}

// find returns what is said of a module, zero if that is nothing. Expressions take their
// steps from those that are left.
func (c *choice[T]) find(module string, left *int64) (says T, err error) {
	if says, ok := c.names[module]; ok {
		return says, nil
	}
	for _, r := range c.rules {
		if ok, err := r.match(module, left); err != nil {
			return says, err
		} else if ok {
			return r.says, nil
		}
	}
	return says, nil
}

// maxExpression limits the bytes of an expression, and maxExpressions those of all that a config has, with
// repeats written out and 32 more for each: they take memory in proportion. Names cost
// nothing.
const (
	maxExpression  = 1 << 12
	maxExpressions = 1 << 17
)

var errPython = errors.New("an expression that only Python understands")

// foldsCase matches what makes an expression ignore case. A class then takes package
// regexp milliseconds to parse.
var foldsCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// parsePatterns compiles patterns: "re:" and a regular expression that matches from the
// start of a name on, or a name in which * stands for anything.
func (c *config) parsePatterns(list []string) (p choice[bool], err error) {
	p.names = map[string]bool{}
	for _, text := range list {
		expr, ok := strings.CutPrefix(text, "re:")
		switch {
		case !ok && !strings.Contains(text, "*"):
			p.names[text] = true
			continue
		case !ok:
			expr = strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*") + "$"
		}
		e, err := c.compile(text, expr)
		if err != nil {
			return p, err
		}
		p.rules = append(p.rules, rule[bool]{e, true})
	}
	return p, nil
}

// compile returns the expression of a pattern.
func (c *config) compile(pattern, expr string) (*expression, error) {
	switch {
	case len(expr) > maxExpression:
		return nil, fmt.Errorf("pattern %s: %d bytes exceed the limit of %d", quote(pattern), len(expr), maxExpression)
	case foldsCase.MatchString(expr):
		return nil, fmt.Errorf("pattern %s: it ignores case: %w", quote(pattern), errors.ErrUnsupported)
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	n := int64(len(expr))
	if err == nil {
		n = max(n, size(re))
	}
	if c.expressions += 32 + n; c.expressions > maxExpressions {
		return nil, fmt.Errorf("its patterns, with repeats written out, take more than %d bytes", maxExpressions)
	}
	if err != nil {
		return &expression{text: pattern}, nil
	}
	program, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	return &expression{text: pattern, program: program, listed: make([]int64, 2*len(program.Inst))}, nil
}

// size returns about how many instructions an expression is compiled to: x{1000} to a
// thousand.
func size(re *syntax.Regexp) int64 {
	n := int64(1 + len(re.Rune))
	for _, sub := range re.Sub {
		n += size(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= int64(max(1, re.Min, re.Max))
	}
	return n
}

// covers reports whether a pattern means a module, or names one that it is in: model.visual
// is what model.visual.proj is in, and so are visual and proj. It looks at the first few
// components of a path, which hostile ones have more of.
func covers(p *choice[bool], module string, left *int64) (bool, error) {
	if ok, err := p.find(module, left); ok || err != nil {
		return ok, err
	}
	const most = 32
	starts := []int{0}
	for i := 0; i <= len(module) && len(starts) <= most; i++ {
		if i < len(module) && module[i] != '.' {
			continue
		}
		for _, start := range starts {
			if p.names[module[start:i]] {
				return true, nil
			}
		}
		starts = append(starts, i+1)
	}
	return false, nil
}
