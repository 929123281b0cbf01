package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// switchFile is a file that the overlay adds to every package with mutants. The name of the folder
// that contains the program is the number of the mutant. An environment variable would not do: the
// tests of the command start their own program again, with an environment of their own. If the
// folder has a file named reached, the program appends to it the number of every changed function
// that is called.
const switchFile = `package %s

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

// Go initializes these variables before those whose initial values come from changed functions.
var mutantChosen, mutantRecord = mutantInit()

var mutantSeen [%d]atomic.Bool

func mutantInit() (number int, record string) {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	folder := filepath.Dir(program)
	if _, err := os.Stat(filepath.Join(folder, "reached")); err == nil {
		record = filepath.Join(folder, "reached")
	}
	number, _ = strconv.Atoi(filepath.Base(folder))
	return number, record
}

func mutantAt(function int) int {
	if mutantRecord != "" && !mutantSeen[function].Swap(true) {
		mutantReach(function)
	}
	return mutantChosen
}

func mutantReach(function int) {
	f, err := os.OpenFile(mutantRecord, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(function) + "\n")
		f.Close()
	}
	if err != nil {
		panic(err)
	}
}
`

// A switched mutant is one of several that are compiled together. Its number, from 1 on, chooses
// its case in the switch of its function.
type switched struct {
	*mutant
	number   int
	function int // the number of its function, from 0 on
	body     *ast.BlockStmt
	base     token.Pos // of the file
	written  string    // the rewritten file
	from, to int       // the lines of its case in that file
	last     int       // the last line of its function there
}

// switchable returns those mutants that change the body of a function, numbered, and the others.
// The value of a constant, or of a variable outside functions, cannot be switched.
func switchable(mutants []*mutant) (inside []*switched, outside []*mutant, err error) {
	files := make(map[string]*ast.File)
	numbers := make(map[*ast.BlockStmt]int)
	for _, m := range mutants {
		if files[m.file] == nil {
			files[m.file], err = parser.ParseFile(token.NewFileSet(), m.file, m.src, parser.SkipObjectResolution)
			if err != nil {
				return nil, nil, err
			}
		}
		base := files[m.file].FileStart
		body := bodyAround(files[m.file], base+token.Pos(m.start), base+token.Pos(m.end))
		if body == nil {
			outside = append(outside, m)
			continue
		}
		if _, ok := numbers[body]; !ok {
			numbers[body] = len(numbers)
		}
		inside = append(inside, &switched{mutant: m, number: len(inside) + 1, function: numbers[body], body: body, base: base})
	}
	return inside, outside, nil
}

// bodyAround returns the body of the function that contains a range. It returns nil if there is none,
// or if the body has labels, which a copy of it in the same function would repeat.
func bodyAround(file *ast.File, from, to token.Pos) *ast.BlockStmt {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil && f.Body.Lbrace < from && to <= f.Body.Rbrace {
			if labelled(f.Body) {
				return nil
			}
			return f.Body
		}
	}
	return nil
}

func labelled(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		_, label := n.(*ast.LabeledStmt)
		found = found || label
		return !found
	})
	return found
}

// writeSwitched writes an overlay to dir in which every function has a case for each of its mutants.
// root is the folder of the repository.
func writeSwitched(root, dir string, mutants []*switched) (overlay string, err error) {
	replace := make(map[string]string)
	put := func(file string, text []byte) (name string) {
		original := filepath.Join(root, filepath.FromSlash(file))
		if replace[original] == "" {
			replace[original] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		}
		name = replace[original]
		err = cmp.Or(err, os.WriteFile(name, text, 0o666))
		return name
	}
	byFile := make(map[string][]*switched)
	functions := 0
	for _, m := range mutants {
		byFile[m.file] = append(byFile[m.file], m)
		functions = max(functions, m.function+1)
	}
	for file, mutants := range byFile {
		name := put(file, rewrite(mutants))
		for _, m := range mutants {
			m.written = name
		}
		put(path.Join(path.Dir(file), "mutant_switch.go"), fmt.Appendf(nil, switchFile, packageOf(mutants[0].src), functions))
	}
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o666)
}

func packageOf(src []byte) string {
	return string(regexp.MustCompile(`(?m)^package (\w+)`).FindSubmatch(src)[1])
}

// rewrite returns a file with a switch in each function that has mutants, and notes the lines of
// each case. If all cases of a switch return, the function needs no return after it, so that Go's
// rules about missing returns stay in force.
func rewrite(mutants []*switched) []byte {
	slices.SortStableFunc(mutants, func(a, b *switched) int { return int(a.body.Pos() - b.body.Pos()) })
	src, base := mutants[0].src, mutants[0].base
	var out bytes.Buffer
	line := func() int { return 1 + bytes.Count(out.Bytes(), []byte("\n")) }
	done := 0
	for len(mutants) > 0 {
		f := mutants[0]
		n := slices.IndexFunc(mutants, func(m *switched) bool { return m.body != f.body })
		if n < 0 {
			n = len(mutants)
		}
		start, end := int(f.body.Lbrace-base)+1, int(f.body.Rbrace-base)
		out.Write(src[done:start])
		fmt.Fprintf(&out, " switch mutantAt(%d) {", f.function)
		for _, m := range mutants[:n] {
			fmt.Fprintf(&out, "\ncase %d:\n", m.number)
			m.from = line()
			out.Write(slices.Concat(src[start:m.start], []byte(m.text), src[m.end:end]))
			m.to = line()
		}
		out.WriteString("\ndefault:")
		out.Write(src[start:end])
		out.WriteString("\n}")
		for _, m := range mutants[:n] {
			m.last = line()
		}
		mutants, done = mutants[n:], end
	}
	out.Write(src[done:])
	return out.Bytes()
}

// compileError matches the file and the line of an error.
var compileError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: `)

// broken returns the mutants that do not compile, given the output of the compiler, which ran in
// folder. An error at the end of a function reports a missing return. It does not show which case
// lacks it, so broken returns all mutants of that function.
func broken(out []byte, folder string, mutants []*switched) (found []*switched) {
	for _, match := range compileError.FindAllStringSubmatch(string(out), -1) {
		name, line := match[1], 0
		if !filepath.IsAbs(name) {
			name = filepath.Join(folder, name)
		}
		line, _ = strconv.Atoi(match[2])
		for _, m := range mutants {
			if name == m.written && (m.from <= line && line <= m.to || line == m.last) && !slices.Contains(found, m) {
				found = append(found, m)
			}
		}
	}
	return found
}

// numbersIn reads the numbers of functions in a file named reached.
func numbersIn(name string) (map[int]bool, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	numbers := make(map[int]bool)
	for field := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		numbers[n] = true
	}
	return numbers, nil
}
