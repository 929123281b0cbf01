package quant

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// A choice holds settings of a config by module: those for its name, or else those of the first
// expression that matches the name.
type choice struct {
	names map[string]*settings
	rules []*expression
	rest  *settings // settings of all other modules; nil if there are none
}

// find returns the settings of a module, or nil if there are none. It subtracts the steps that
// expressions take from *budget. It panics with a problem if *budget becomes negative, or if Python
// might match differently.
func (c *choice) find(module string, budget *int64) *settings {
	if own := c.names[module]; own != nil {
		return own
	}
	for _, e := range c.rules {
		switch {
		case e.program == nil && !e.plain:
			panic(problem{fmt.Errorf("target %s: %w", quote(e.text), errPython)})
		case e.differsFor(module):
			panic(problem{fmt.Errorf("matching %s: %s means something else to Python: %w", quote(module), quote(e.text), errors.ErrUnsupported)})
		case e.match(module, budget):
			return e.settings
		case *budget < 0:
			panic(problem{fmt.Errorf("matching %s: %w", quote(module), errSteps)})
		}
	}
	return c.rest
}

// patternCosts counts the memory and the time that the patterns of one config take.
type patternCosts struct {
	expressions int64 // bytes of the patterns so far: see maxExpressions
	steps       int64 // number of steps that matching may still take: see maxSteps
}

// maxExpression limits the bytes of an expression. maxExpressions limits the bytes of all
// expressions in a config, with repeats written out and 32 more bytes for each expression: their
// memory is proportional to these bytes.
const (
	maxExpression  = 1 << 12
	maxExpressions = 1 << 17
)

var errPython = errors.New("an expression that only Python understands")

// foldsCase matches flags that make an expression ignore case. With such flags, package regexp
// takes milliseconds to parse a class.
var foldsCase = lazyregexp.New(`\(\?[a-zA-Z]*i`)

// add adds settings for patterns to choices. A pattern is a name, a name in which * stands for any
// text, or "re:" with a regular expression that matches from the start of a name on.
func (c *patternCosts) add(s *section, patterns []string, own *settings, to ...*choice) {
	for _, text := range patterns {
		expr, ok := strings.CutPrefix(text, "re:")
		if !ok && strings.Contains(text, "*") {
			expr, ok = strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*")+"$", true
		}
		var rules []*expression
		if ok {
			rules = append(rules, c.compile(s, text, expr, own))
		}
		for _, t := range to {
			if other := t.names[text]; other != nil && !reflect.DeepEqual(other, own) {
				s.fail("its target %s is also a target of another group", quote(text))
			}
			t.names[text], t.rules = own, append(t.rules, rules...)
		}
	}
}

// compile returns the expression for a pattern. expr is its regular expression. If only Python
// understands it, the expression has no program.
func (c *patternCosts) compile(s *section, pattern, expr string, own *settings) *expression {
	switch {
	case len(expr) > maxExpression:
		s.fail("pattern %s: %d bytes exceed the limit of %d", quote(pattern), len(expr), maxExpression)
	case foldsCase().MatchString(expr):
		s.fail("pattern %s: it ignores case: %w", quote(pattern), errors.ErrUnsupported)
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err == nil && differs(expr) {
		err = errPython
	}
	n := int64(len(expr))
	if err == nil {
		n = max(n, size(re))
	}
	if c.expressions += 32 + n; c.expressions > maxExpressions {
		s.fail("its patterns, with repeats written out, take more than %d bytes", maxExpressions)
	}
	if err != nil {
		return &expression{text: pattern, settings: own}
	}
	program, _ := syntax.Compile(re.Simplify()) // never fails after Parse
	return &expression{text: pattern, settings: own, program: program, last: make([]int64, len(program.Inst)),
		ofASCII: ofASCII().MatchString(expr), ofLines: strings.Contains(expr, "$")}
}

// counted matches a repeat count in the syntax of Python, such as {,2} or {02}. Package regexp may
// take such a count for literal text.
var counted = lazyregexp.New(`^\{(?:,[0-9]*|[0-9]+(?:,[0-9]*)?)\}`)

// ofASCII finds an escape that matches more characters in Python than in package regexp: some
// beyond ASCII, or some control characters.
var ofASCII = lazyregexp.New(`\\[dDsSwWbB]`)

// repeated matches an assertion, such as ^ for the start of a text, with a repetition behind it.
// Python refuses such a repetition.
var repeated = lazyregexp.New(`^(?:\^|\$|\\[AbB])(?:[*+?]|\{[0-9])`)

// differs reports whether an expression that package regexp understands has another meaning in
// Python, or is an error there.
func differs(expr string) bool {
	set := -1 // index of the first character of the set that contains i, or -1 outside of sets
	for i := 0; i < len(expr); i++ {
		rest := expr[i:]
		switch {
		case set < 0 && repeated().MatchString(rest):
			return true
		case rest[0] == '\\' && len(rest) > 1:
			if strings.ContainsRune("0123456789pPQEzC", rune(rest[1])) || strings.HasPrefix(rest, `\x{`) {
				return true
			}
			i++
		case set >= 0:
			if strings.HasPrefix(rest, "[:") {
				return true
			}
			if rest[0] == ']' && i > set {
				set = -1
			}
		case rest[0] == '[':
			if set = i + 1; strings.HasPrefix(rest, "[^") {
				set, i = i+2, i+1
			}
		case strings.HasPrefix(rest, "(?<"), strings.HasPrefix(rest, "(?U"):
			return true
		case rest[0] == '{':
			digits := counted().FindString(rest)
			for _, n := range strings.Split(strings.Trim(digits, "{}"), ",")[:min(len(digits), 1)] {
				if n == "" || len(n) > 1 && n[0] == '0' {
					return true
				}
			}
			if _, most, ok := strings.Cut(strings.Trim(digits, "{}"), ","); ok && len(most) > 1 && most[0] == '0' {
				return true
			}
		}
	}
	return false
}

// size estimates the number of instructions of an expression. For x{1000} it is a thousand.
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

// An expression is a regular expression that matches from the start of a name on. Unlike package
// regexp, it counts its steps. For each byte of a name, an honest expression takes two or three
// steps; a hostile one takes as many steps as the expression has bytes. An expression must not be
// used concurrently.
type expression struct {
	text    string
	plain   bool         // whether it matches each name that contains text, instead of being a regular expression
	ofASCII bool         // whether it has classes that have other characters in Python
	ofLines bool         // whether it has a $, which in Python also matches before a line feed
	program *syntax.Prog // nil if only Python understands the expression

	runes int64   // number of runes in all matches so far, counting the end of each name as one
	last  []int64 // for each instruction, the value of runes when it was last tried

	settings *settings // settings of the modules that it matches
}

// maxSteps limits the steps of all matches of a config, and so their time to some seconds. A model
// with 70,000 modules and a dozen expressions takes a twentieth of that.
const maxSteps = 1 << 29

var errSteps = errors.New("the patterns of the quantization_config take too long to match the names of this checkpoint")

// differsFor reports whether Python may disagree about whether e matches a name.
func (e *expression) differsFor(name string) bool {
	beyond := func(r rune) bool { return r < ' ' || r > '~' }
	return e.ofASCII && (name == "" || strings.ContainsFunc(name, beyond)) || e.ofLines && strings.Contains(name, "\n")
}

// match reports whether e matches a name. It subtracts its steps from *budget. If *budget does not
// suffice, it becomes negative.
func (e *expression) match(name string, budget *int64) bool {
	if e.plain {
		*budget -= 2 + int64(len(name))/16 // searching a string takes few steps
		return strings.Contains(name, e.text)
	}
	now, next := []uint32{uint32(e.program.Start)}, []uint32(nil)
	for before := rune(-1); len(now) > 0 && *budget >= 0; {
		r, size := rune(-1), 0 // the end of the name, which no instruction matches
		if name != "" {
			r, size = utf8.DecodeRuneInString(name)
		}
		e.runes++
		for i := 0; i < len(now); i++ { // now grows in the loop
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
			case inst.MatchRune(r): // false for all other instructions, which have no runes
				next = append(next, inst.Out)
			}
		}
		*budget -= int64(len(now))
		now, next = next, now[:0]
		name, before = name[size:], r
	}
	return false
}
