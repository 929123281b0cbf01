package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one change of one file.
type mutant struct {
	file       string // its path in the module, with slashes
	function   string // f, T.method, or the first name of a declaration
	nth        int    // of those of the function with the same change, from 1
	line       int
	src        []byte // the file as it is
	start, end int    // the bytes of it that are replaced,
	text       string // and what replaces them
	before     string // the lines with the change, without and with it,
	after      string // their white space reduced to single spaces
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d\n%s\n", m.file, m.line, m.key())
}

// key tells mutants apart, also after lines before them have changed. It is a
// paragraph of equivalent.txt, without the reason.
func (m *mutant) key() string {
	head := m.file + " " + m.function
	if m.nth > 1 {
		head += fmt.Sprintf(" %d", m.nth)
	}
	return strings.TrimRight(head+"\n- "+m.before+"\n+ "+m.after, " ")
}

// mutantsOf returns the mutants of the files in root that match one of the patterns, but
// for tests and files that this system does not compile.
func mutantsOf(root string, patterns []string) ([]*mutant, error) {
	var all []*mutant
	for _, pattern := range patterns {
		files, err := fs.Glob(os.DirFS(root), pattern)
		files = slices.DeleteFunc(files, func(file string) bool {
			compiled, _ := build.Default.MatchFile(filepath.Join(root, path.Dir(file)), path.Base(file))
			return !compiled || strings.HasSuffix(file, "_test.go")
		})
		if err == nil && len(files) == 0 {
			err = errors.New("no file matches")
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", pattern, err)
		}
		for _, file := range files {
			mutants, err := mutate(root, file)
			if err != nil {
				return nil, err
			}
			all = append(all, mutants...)
		}
	}
	return all, nil
}

// mutate returns the mutants of a file in root.
func mutate(root, file string) ([]*mutant, error) {
	src, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	tree, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &mutator{file: file, src: src, base: tree.FileStart, same: make(map[string]int)}
	for _, decl := range tree.Decls {
		s.function = s.declared(decl)
		ast.PreorderStack(decl, nil, s.visit)
	}
	return s.mutants, nil
}

// declared names a declaration.
func (s *mutator) declared(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		receiver, _, _ := strings.Cut(strings.TrimPrefix(s.source(d.Recv.List[0].Type), "*"), "[")
		return receiver + "." + d.Name.Name
	case *ast.GenDecl:
		switch spec := d.Specs[0].(type) {
		case *ast.ValueSpec:
			return spec.Names[0].Name
		case *ast.TypeSpec:
			return spec.Name.Name
		}
	}
	return "?"
}

// A mutator collects the mutants of a file.
type mutator struct {
	file     string
	src      []byte
	base     token.Pos
	function string
	stack    []ast.Node // those around the one that is visited
	same     map[string]int
	mutants  []*mutant
}

func (s *mutator) source(n ast.Node) string {
	return string(s.src[n.Pos()-s.base : n.End()-s.base])
}

// replace adds a mutant in which text replaces the source between two positions.
func (s *mutator) replace(from, to token.Pos, text string) {
	start, end := int(from-s.base), int(to-s.base)
	first := strings.LastIndexByte(string(s.src[:start]), '\n') + 1
	rest, _, _ := strings.Cut(string(s.src[end:]), "\n") // of the line
	m := &mutant{
		file: s.file, function: s.function, nth: 1, src: s.src, start: start, end: end, text: text,
		line:   1 + strings.Count(string(s.src[:start]), "\n"),
		before: spaced(string(s.src[first:end]) + rest),
		after:  spaced(string(s.src[first:start]) + text + rest),
	}
	s.same[m.key()]++
	m.nth = s.same[m.key()]
	s.mutants = append(s.mutants, m)
}

func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }

func (s *mutator) drop(n ast.Node) { s.replace(n.Pos(), n.End(), "") }

// exchanged lists what replaces a word or an operator. Bounds move by one, and
// comparisons are negated.
var exchanged = map[string]string{
	"==": "!=", "!=": "==", "<": "<= >=", "<=": "< >", ">": ">= <=", ">=": "> <",
	"&&": "||", "||": "&&",
	"+": "-", "-": "+", "*": "/", "/": "*", "%": "*",
	"<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|", "&^": "&",
	"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "<<=": ">>=", ">>=": "<<=",
	"++": "--", "--": "++",
	"break": "continue", "continue": "break",
	"true": "false", "false": "true", "min": "max", "max": "min",
}

func (s *mutator) exchange(at token.Pos, word string) {
	for other := range strings.FieldsSeq(exchanged[word]) {
		s.replace(at, at+token.Pos(len(word)), other)
	}
}

func (s *mutator) visit(n ast.Node, stack []ast.Node) bool {
	s.stack = stack
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.InterfaceType: // whose | is no operator
		return false
	case *ast.BinaryExpr:
		if !isString(n.X) && !isString(n.Y) {
			s.exchange(n.OpPos, n.Op.String())
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT || n.Op == token.SUB {
			s.replace(n.OpPos, n.OpPos+1, "")
		}
	case *ast.BasicLit:
		s.literal(n)
	case *ast.Ident:
		s.exchange(n.Pos(), n.Name)
	case *ast.IfStmt:
		s.condition(n.Cond)
		if n.Else == nil {
			s.replace(n.Cond.Pos(), n.Cond.End(), "false && ("+s.source(n.Cond)+")")
		}
	case *ast.ForStmt:
		if n.Cond != nil {
			s.condition(n.Cond)
		}
	case *ast.ReturnStmt:
		s.returned(n)
	case *ast.BranchStmt:
		if n.Label == nil {
			s.statement(n, n.Pos(), n.Tok)
		}
	case *ast.ExprStmt, *ast.DeferStmt, *ast.SendStmt:
		s.drop(n)
	case *ast.AssignStmt:
		s.statement(n, n.TokPos, n.Tok)
	case *ast.IncDecStmt:
		s.statement(n, n.TokPos, n.Tok)
	}
	return true
}

// isString reports whether an operand is certainly a string: + has no opposite then.
func isString(x ast.Expr) bool {
	lit, ok := x.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING
}

// statement exchanges the word at a position of a statement, and drops the statement. It
// leaves the last part of a for clause, without which loops rarely end.
func (s *mutator) statement(n ast.Stmt, at token.Pos, word token.Token) {
	loop, ok := s.stack[len(s.stack)-1].(*ast.ForStmt)
	if ok && loop.Post == n || word == token.DEFINE || word == token.FALLTHROUGH {
		return
	}
	s.exchange(at, word.String())
	s.drop(n)
}

// condition negates a condition that no other operator negates.
func (s *mutator) condition(cond ast.Expr) {
	_, binary := cond.(*ast.BinaryExpr)
	if unary, ok := cond.(*ast.UnaryExpr); !binary && !(ok && unary.Op == token.NOT) {
		s.replace(cond.Pos(), cond.Pos(), "!")
	}
}

// literal raises and lowers a number or a character by one.
func (s *mutator) literal(n *ast.BasicLit) {
	switch n.Kind {
	case token.INT:
		v, err := strconv.ParseInt(n.Value, 0, 64)
		if err != nil {
			return // beyond an int64
		}
		s.replace(n.Pos(), n.End(), strconv.FormatInt(v+1, 10))
		if v > 0 {
			s.replace(n.Pos(), n.End(), strconv.FormatInt(v-1, 10))
		}
	case token.CHAR:
		if _, ok := s.stack[len(s.stack)-1].(*ast.BinaryExpr); ok {
			s.replace(n.Pos(), n.End(), "("+n.Value+"+1)")
			s.replace(n.Pos(), n.End(), "("+n.Value+"-1)")
		}
	}
}

// returned replaces an error, the last result of a function, by nil.
func (s *mutator) returned(n *ast.ReturnStmt) {
	var results *ast.FieldList
	for _, around := range s.stack {
		switch f := around.(type) {
		case *ast.FuncDecl:
			results = f.Type.Results
		case *ast.FuncLit:
			results = f.Type.Results
		}
	}
	if results == nil || len(n.Results) != results.NumFields() {
		return // the results of one call
	}
	if id, ok := results.List[len(results.List)-1].Type.(*ast.Ident); !ok || id.Name != "error" {
		return
	}
	last := n.Results[len(n.Results)-1]
	if s.source(last) != "nil" {
		s.replace(last.Pos(), last.End(), "nil")
	}
}
