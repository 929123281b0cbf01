package quant

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// A choice is what a config says of modules: of those that it names, and of others that an
// expression matches, the first one in order.
type choice struct {
	names map[string]*settings
	rules []*expression
	rest  *settings // of all others; nil if there are none
}

// find returns what is said of a module, nil if that is nothing. Expressions take their
// steps from those that are left. It panics with a problem.
func (c *choice) find(module string, left *int64) *settings {
	if own := c.names[module]; own != nil {
		return own
	}
	for _, e := range c.rules {
		switch {
		case e.program == nil && !e.plain:
			panic(problem{fmt.Errorf("target %s: %w", quote(e.text), errPython)})
		case e.match(module, left):
			return e.says
		case *left < 0:
			panic(problem{fmt.Errorf("matching %s: %w", quote(module), errSteps)})
		}
	}
	return c.rest
}

// maxExpression limits the bytes of an expression, and maxExpressions those of all that a config has, with
// repeats written out and 32 more for each: they take memory in proportion, names none.
const (
	maxExpression  = 1 << 12
	maxExpressions = 1 << 17
)

var errPython = errors.New("an expression that only Python understands")

// foldsCase matches what makes an expression ignore case. A class then takes package
// regexp milliseconds to parse.
var foldsCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// add puts what is said of patterns into choices: of "re:" and a regular expression that
// matches from the start of a name on, or of a name in which * stands for anything.
func (c *config) add(s *section, patterns []string, says *settings, to ...*choice) {
	for _, text := range patterns {
		expr, ok := strings.CutPrefix(text, "re:")
		if !ok && strings.Contains(text, "*") {
			expr, ok = strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*")+"$", true
		}
		var rules []*expression
		if ok {
			rules = append(rules, c.compile(s, text, expr, says))
		}
		for _, t := range to {
			if other := t.names[text]; other != nil && !reflect.DeepEqual(other, says) {
				s.fail("its target %s is that of another group, too", quote(text))
			}
			t.names[text], t.rules = says, append(t.rules, rules...)
		}
	}
}

// compile returns the expression of a pattern.
func (c *config) compile(s *section, pattern, expr string, says *settings) *expression {
	switch {
	case len(expr) > maxExpression:
		s.fail("pattern %s: %d bytes exceed the limit of %d", quote(pattern), len(expr), maxExpression)
	case foldsCase.MatchString(expr):
		s.fail("pattern %s: it ignores case: %w", quote(pattern), errors.ErrUnsupported)
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	n := int64(len(expr))
	if err == nil {
		n = max(n, size(re))
	}
	if c.expressions += 32 + n; c.expressions > maxExpressions {
		s.fail("its patterns, with repeats written out, take more than %d bytes", maxExpressions)
	}
	if err != nil {
		return &expression{text: pattern, says: says}
	}
	program, _ := syntax.Compile(re.Simplify()) // what was parsed: it cannot fail
	return &expression{text: pattern, says: says, program: program, last: make([]int64, len(program.Inst))}
}

// size returns about how many instructions an expression becomes: x{1000} a thousand.
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

// An expression is a regular expression that matches from the start of a name on. It
// counts its steps, which package regexp does not: an honest expression takes two or three
// for a byte of a name, a hostile one as many as it has bytes.
type expression struct {
	text    string
	plain   bool         // the text is searched for
	program *syntax.Prog // nil for one that only Python understands

	runes int64   // of all matches so far, with the end of each name
	last  []int64 // for each instruction, the last rune that it was taken for

	says *settings // of the modules that it matches
}

// maxSteps limits the steps of all matches of a config, and so their time to some seconds. A
// model of 70,000 modules and a dozen expressions takes a twentieth of them.
const maxSteps = 1 << 29

var errSteps = errors.New("the patterns of the quantization_config take too long to match the names of this checkpoint")

// match reports whether e matches, and takes its steps from those that are left.
func (e *expression) match(name string, left *int64) bool {
	if e.plain {
		*left -= 2 + int64(len(name))/16 // a fast search
		return strings.Contains(name, e.text)
	}
	now, next := []uint32{uint32(e.program.Start)}, []uint32(nil)
	for before := rune(-1); len(now) > 0 && *left >= 0; {
		r, size := rune(-1), 0 // the end, which no instruction matches
		if name != "" {
			r, size = utf8.DecodeRuneInString(name)
		}
		e.runes++
		for i := 0; i < len(now); i++ { // the list grows
			if e.last[now[i]] == e.runes {
				continue
			}
			e.last[now[i]] = e.runes
			switch inst := &e.program.Inst[now[i]]; {
			case inst.Op == syntax.InstMatch:
				return true
			case inst.Op == syntax.InstAlt:
				now = append(now, inst.Out, inst.Arg)
			case inst.Op == syntax.InstCapture, inst.Op == syntax.InstNop, inst.Op == syntax.InstEmptyWidth && inst.MatchEmptyWidth(before, r):
				now = append(now, inst.Out)
			case inst.MatchRune(r): // no other instruction has runes
				next = append(next, inst.Out)
			}
		}
		*left -= int64(len(now))
		now, next = next, now[:0]
		name, before = name[size:], r
	}
	return false
}

// ignores reports whether a pattern means the module of a tensor, or names one that it is in:
// model.visual is what model.visual.proj is in, and so are visual and proj. It looks at the
// first few components of a path, which hostile ones have more of.
func (c *config) ignores(module string) bool {
	if c.ignored.find(module, &c.steps) != nil {
		return true
	}
	const most = 32
	starts := []int{0}
	for i := 0; i <= len(module) && len(starts) <= most; i++ {
		if i < len(module) && module[i] != '.' {
			continue
		}
		for _, start := range starts {
			if c.ignored.names[module[start:i]] != nil { // a copy of each would be 500 of a name as long as a header
				return true
			}
		}
		starts = append(starts, i+1)
	}
	return false
}
