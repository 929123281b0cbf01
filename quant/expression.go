package quant

import (
	"errors"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// An expression is a regular expression that matches from the start of a name on. It
// counts its steps, which package regexp does not: an honest expression takes two or three
// for a byte of a name, a hostile one as many as it has bytes.
type expression struct {
	text      string
	plain     bool         // the text is searched for
	program   *syntax.Prog // nil for one that only Python understands, which matches nothing
	now, next threads
}

// maxSteps limits the steps of all matches of a config, and so their time to some seconds. A
// model of 70,000 modules and a dozen expressions takes a twentieth of them.
const maxSteps = 1 << 29

var errSteps = errors.New("the patterns of the quantization_config take too long to match the names of this checkpoint")

func newExpression(text string, re *syntax.Regexp) (*expression, error) {
	program, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	n := len(program.Inst)
	return &expression{text: text, program: program, now: threads{in: make([]bool, n)}, next: threads{in: make([]bool, n)}}, nil
}

func stepsLeft(n int64) error {
	if n < 0 {
		return errSteps
	}
	return nil
}

// match reports whether e matches, and takes its steps from those that are left.
func (e *expression) match(name string, left *int64) (bool, error) {
	if e.plain {
		*left -= 2 + int64(len(name))/16 // a fast search
		return strings.Contains(name, e.text), stepsLeft(*left)
	}
	if e.program == nil {
		return false, nil
	}
	e.now.clear()
	e.now.add(uint32(e.program.Start))
	for before := rune(-1); len(e.now.list) > 0; {
		r, n := rune(-1), 0
		if name != "" {
			r, n = utf8.DecodeRuneInString(name)
		}
		between := syntax.EmptyOpContext(before, r)
		e.next.clear()
		for i := 0; i < len(e.now.list); i++ { // the list grows
			switch inst := &e.program.Inst[e.now.list[i]]; inst.Op {
			case syntax.InstMatch:
				return true, nil
			case syntax.InstFail:
			case syntax.InstAlt, syntax.InstAltMatch:
				e.now.add(inst.Out)
				e.now.add(inst.Arg)
			case syntax.InstCapture, syntax.InstNop:
				e.now.add(inst.Out)
			case syntax.InstEmptyWidth:
				if syntax.EmptyOp(inst.Arg)&^between == 0 {
					e.now.add(inst.Out)
				}
			default: // a rune
				if r >= 0 && inst.MatchRune(r) {
					e.next.add(inst.Out)
				}
			}
		}
		*left -= int64(len(e.now.list))
		if err := stepsLeft(*left); err != nil {
			return false, err
		}
		e.now, e.next = e.next, e.now
		name, before = name[n:], r
	}
	return false, nil
}

// threads are instructions of a program, each once.
type threads struct {
	list []uint32
	in   []bool // by instruction
}

func (t *threads) add(pc uint32) {
	if !t.in[pc] {
		t.in[pc] = true
		t.list = append(t.list, pc)
	}
}

func (t *threads) clear() {
	for _, pc := range t.list {
		t.in[pc] = false
	}
	t.list = t.list[:0]
}
