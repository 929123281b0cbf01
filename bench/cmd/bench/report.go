package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

const intro = `# Results

%s on %s, %s/%s:

    %s

Each cell is the median over all rounds with its 95 %% confidence interval (∞ with fewer than six), followed by how
many times ours it is, or ~ if a Mann-Whitney test finds no significant difference (p ≥ 0.05). Ours is this package.
Less is better everywhere but in the charts. Compare within a row only.

%s
Versions: %s.
`

// markdown returns the report. Its text is the documentation of the package and
// of the benchmarks in a folder.
func (res *results) markdown(folder string) ([]byte, error) {
	docs, err := markdownDocs(folder)
	if err != nil {
		return nil, err
	}
	_, fairness, _ := strings.Cut(docs["bench"], "## Fairness\n\n")
	fairness, _, _ = strings.Cut(fairness, "##")
	var md bytes.Buffer
	fmt.Fprintf(&md, intro, res.about["date"], res.about["machine"], res.about["goos"], res.about["goarch"],
		strings.Join(res.commands, "\n    "), fairness, strings.Join(res.versions, ", "))
	for _, w := range res.works {
		fmt.Fprintf(&md, "\n## %s\n\n%s", w.name, docs["Benchmark"+w.name])
		if w.units[throughput] {
			fmt.Fprintf(&md, "\n![%s](charts/%s)\n", w.chartTitle(), w.chartName())
		}
		w.writeTable(&md, "time", seconds)
		w.writeTable(&md, "peak memory", memory)
	}
	return md.Bytes(), nil
}

func (w *work) writeTable(md *bytes.Buffer, title, unit string) {
	if !w.units[unit] {
		return
	}
	fmt.Fprintf(md, "\n| %s | %s |\n|---|%s\n", title, strings.Join(w.impls, " | "), strings.Repeat("--:|", len(w.impls)))
	for _, row := range w.rows {
		fmt.Fprintf(md, "| %s |", row)
		for _, impl := range w.impls {
			fmt.Fprintf(md, " %s |", w.format(cell{row, impl, unit}))
		}
		md.WriteByte('\n')
	}
}

// markdownDocs returns the comments of the package and of the functions in a
// folder, by name.
func markdownDocs(folder string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	docs := make(map[string]string)
	markdown := func(doc *ast.CommentGroup) string {
		return string((&comment.Printer{HeadingLevel: 2, HeadingID: func(*comment.Heading) string { return "" }}).
			Markdown(new(comment.Parser).Parse(doc.Text())))
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		docs[file.Name.Name] += markdown(file.Doc)
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				docs[f.Name.Name] = markdown(f.Doc)
			}
		}
	}
	return docs, nil
}
