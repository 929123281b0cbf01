package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkout is the root directory of this repository.
const checkout = ".."

// documents returns the texts of all Markdown files of the repository, by their names.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	require.NoError(t, fs.WalkDir(os.DirFS(checkout), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github":
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".md"):
			text, err := os.ReadFile(filepath.Join(checkout, filepath.FromSlash(name)))
			texts[name] = string(text)
			return err
		}
		return err
	}))
	require.Contains(t, texts, "README.md")
	return texts
}

// TestDocumentsNameTests: a test, a fuzz target or a benchmark that a document names exists
// under that name, or under a longer one that begins with it.
func TestDocumentsNameTests(t *testing.T) {
	var declared []string
	for _, file := range goFiles(t, checkout, parser.SkipObjectResolution, isTest) {
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil {
				declared = append(declared, f.Name.Name)
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)")
	count := 0
	for document, text := range documents(t) {
		for _, match := range named.FindAllStringSubmatch(text, -1) {
			count++
			exists := slices.ContainsFunc(declared, func(name string) bool { return strings.HasPrefix(name, match[1]) })
			require.True(t, exists, "%s names %s, which no test file declares", document, match[1])
		}
	}
	require.Greater(t, count, 20)
}

// TestMapIsComplete: the map in CONTRIBUTING.md has a line for each source file of the root package, and
// for each internal package.
func TestMapIsComplete(t *testing.T) {
	text := documents(t)["CONTRIBUTING.md"]
	for pattern, line := range map[string]string{"*.go": "\n%s ", "internal/*": "\ninternal/%s/ ", "cmd/safetensors/internal/*": "\n  internal/%s/ "} {
		names, err := filepath.Glob(filepath.Join(checkout, filepath.FromSlash(pattern)))
		require.NoError(t, err)
		require.NotEmpty(t, names, pattern)
		for _, name := range names {
			base := filepath.Base(name)
			if strings.HasSuffix(base, "_test.go") {
				continue // a test of the root package, or a test in the directory internal itself
			}
			if strings.HasPrefix(base, "mmap_") {
				base = "mmap_*.go" // one line for all systems
			}
			require.Contains(t, text, fmt.Sprintf(line, base), "the map has no line for %s", name)
		}
	}
}

// TestGuarantees: doc/testing.md has a row for each guarantee of README, with a test or a step of CI, and each step that
// it names exists.
func TestGuarantees(t *testing.T) {
	texts := documents(t)
	_, section, _ := strings.Cut(texts["README.md"], "\n## Guarantees\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var guarantees, rows []string
	for _, match := range regexp.MustCompile(`(?m)^- \*\*([^*]+?)\.?\*\*`).FindAllStringSubmatch(section, -1) {
		guarantees = append(guarantees, match[1])
	}
	require.Greater(t, len(guarantees), 8)
	_, table, _ := strings.Cut(texts["doc/testing.md"], "\n## The guarantees\n")
	table, _, _ = strings.Cut(table, "\n## ")
	_, table, _ = strings.Cut(table, "\n|---|---|---|\n")
	steps, err := os.ReadFile(filepath.Join(checkout, ".ci", "steps"))
	require.NoError(t, err)
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) != 5 {
			break
		}
		rows = append(rows, strings.TrimSpace(cells[1]))
		require.Contains(t, cells[2]+cells[3], "`", "the row %s has neither a test nor a step", cells[1])
		for _, step := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1) {
			require.Contains(t, string(steps), "\nstep "+step[1]+" ")
		}
	}
	require.Equal(t, guarantees, rows)
}

// TestExampleCommands: README, or the documentation of the example, has the command that runs each
// example. With SAFETENSORS_EXAMPLES=1, the test runs each of these commands, and so downloads the
// modules that some examples require.
func TestExampleCommands(t *testing.T) {
	line := regexp.MustCompile(`(?m)^(?://)?\s*((?:go run \./examples/|cd examples/)[^#\n]*)`)
	commands := make(map[string]bool)
	files, err := filepath.Glob(filepath.Join(checkout, "examples", "*", "*.go"))
	require.NoError(t, err)
	for _, name := range append(files, filepath.Join(checkout, "README.md")) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, match := range line.FindAllStringSubmatch(string(text), -1) {
			commands[strings.TrimSpace(match[1])] = true
		}
	}
	for _, name := range files {
		folder := "examples/" + filepath.Base(filepath.Dir(name))
		isRun := regexp.MustCompile(`^(go run \./|cd )` + regexp.QuoteMeta(folder) + `( |$)`).MatchString
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(commands)), isRun), "no document says how to run %s", folder)
	}
	if os.Getenv("SAFETENSORS_EXAMPLES") != "1" {
		return
	}
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		fmt.Println("$", command)
		shell := exec.Command("bash", "-c", command)
		shell.Dir = checkout
		out, err := shell.CombinedOutput()
		fmt.Print(string(out))
		require.NoError(t, err, command)
	}
}

// TestAdopt: a program outside of this repository, which already has testify and x/sys, adds this
// module as a requirement, with the oldest toolchain and with the current one. Its go.mod gets one
// direct requirement and one indirect one, no other line of go.mod or go.sum changes, and the
// program builds and runs. The test requests modules from the proxy, so it runs only with
// SAFETENSORS_ADOPT=1.
func TestAdopt(t *testing.T) {
	if os.Getenv("SAFETENSORS_ADOPT") != "1" {
		t.Skip("SAFETENSORS_ADOPT is not 1")
	}
	root, err := filepath.Abs(checkout)
	require.NoError(t, err)
	oldest := oldestGo(t, root)
	for _, toolchain := range []string{"go" + oldest, "local"} {
		t.Run(toolchain, func(t *testing.T) {
			program := t.TempDir()
			require.NoError(t, os.CopyFS(program, os.DirFS(filepath.Join(root, "testdata", "adopt"))))
			model, err := os.ReadFile(filepath.Join(root, "testdata", "model.safetensors"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(program, "model.safetensors"), model, 0o666))
			require.NoError(t, os.Rename(filepath.Join(program, "go.mod.txt"), filepath.Join(program, "go.mod")))
			goes := func(arguments ...string) {
				t.Helper()
				command := exec.Command("go", arguments...)
				command.Dir = program
				command.Env = append(os.Environ(), "GOTOOLCHAIN="+toolchain, "GOWORK=off")
				out, err := command.CombinedOutput()
				require.NoError(t, err, "go %v: %s", arguments, out)
			}
			goes("mod", "tidy")
			before, sums := lines(t, program, "go.mod"), lines(t, program, "go.sum")
			require.NoError(t, os.Rename(filepath.Join(program, "after.go.txt"), filepath.Join(program, "before.go")))
			replaced := repository + "=" + root
			goes("mod", "edit", "-require="+repository+"@v0.0.0", "-replace="+replaced)
			goes("mod", "tidy")
			goes("mod", "edit", "-dropreplace="+repository)

			after := lines(t, program, "go.mod")
			require.Empty(t, missing(before, after), "lines of go.mod that are gone")
			require.ElementsMatch(t, []string{
				"require golang.org/x/exp v0.0.0-20220722155223-a9213eeb770e // indirect",
				repository + " v0.0.0",
			}, missing(after, before), "lines of go.mod that are new")
			require.Empty(t, missing(sums, lines(t, program, "go.sum")), "lines of go.sum that are gone")

			goes("mod", "edit", "-replace="+replaced)
			goes("test", ".")
			goes("run", ".", "model.safetensors")
		})
	}
}

// oldestGo returns the oldest version of Go that the go.mod in a directory allows.
func oldestGo(t *testing.T, folder string) string {
	t.Helper()
	for _, line := range lines(t, folder, "go.mod") {
		if version, ok := strings.CutPrefix(line, "go "); ok {
			return version
		}
	}
	require.Fail(t, "go.mod has no line go")
	return ""
}

// lines returns the lines of a file that are not empty, without their indentation.
func lines(t *testing.T, folder, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// missing returns the lines that others does not contain.
func missing(lines, others []string) (missing []string) {
	for _, line := range lines {
		if !slices.Contains(others, line) {
			missing = append(missing, line)
		}
	}
	return missing
}
