package quant

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// An expression is a regular expression that matches from the start of a name on. It
// counts its steps, which package regexp does not: an honest expression takes two or three
// for a byte of a name, a hostile one as many as it has bytes.
type expression struct {
	text    string
	plain   bool         // the text is searched for
	program *syntax.Prog // nil for one that only Python understands

	runes  int64   // of all matches so far, with one between two names
	listed []int64 // two for each instruction: the last even and odd rune that it was listed for
}

// maxSteps limits the steps of all matches of a config, and so their time to some seconds. A
// model of 70,000 modules and a dozen expressions takes a twentieth of them.
const maxSteps = 1 << 29

var errSteps = errors.New("the patterns of the quantization_config take too long to match the names of this checkpoint")

// match reports whether e matches, and takes its steps from those that are left.
func (e *expression) match(name string, left *int64) (bool, error) {
	if e.plain {
		*left -= 2 + int64(len(name))/16 // a fast search
		if *left < 0 {
			return false, errSteps
		}
		return strings.Contains(name, e.text), nil
	}
	if e.program == nil {
		return false, fmt.Errorf("target %s: %w", quote(e.text), errPython)
	}
	e.runes++ // whatever was listed for another name is old
	now, next := e.add(nil, uint32(e.program.Start), 1), []uint32(nil)
	for before := rune(-1); len(now) > 0; {
		e.runes++
		r, size := rune(-1), 0
		if name != "" {
			r, size = utf8.DecodeRuneInString(name)
		}
		between := syntax.EmptyOpContext(before, r)
		for i := 0; i < len(now); i++ { // the list grows
			switch inst := &e.program.Inst[now[i]]; inst.Op {
			case syntax.InstMatch:
				return true, nil
			case syntax.InstFail:
			case syntax.InstAlt, syntax.InstAltMatch:
				now = e.add(now, inst.Out, 0)
				now = e.add(now, inst.Arg, 0)
			case syntax.InstCapture, syntax.InstNop:
				now = e.add(now, inst.Out, 0)
			case syntax.InstEmptyWidth:
				if syntax.EmptyOp(inst.Arg)&^between == 0 {
					now = e.add(now, inst.Out, 0)
				}
			default: // a rune
				if r >= 0 && inst.MatchRune(r) {
					next = e.add(next, inst.Out, 1)
				}
			}
		}
		*left -= int64(len(now))
		if *left < 0 {
			return false, errSteps
		}
		now, next = next, now[:0]
		name, before = name[size:], r
	}
	return false, nil
}

// add adds an instruction to a list, those of this rune or of the next one, once.
func (e *expression) add(list []uint32, pc uint32, next int64) []uint32 {
	at := e.runes + next
	if last := &e.listed[2*int64(pc)+at%2]; *last < at {
		*last = at
		list = append(list, pc)
	}
	return list
}
