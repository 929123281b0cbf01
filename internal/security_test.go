package internal_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// limits lists the numbers in SECURITY.md that a constant determines: the name of the constant in
// the document, the directory of its package, and its value in the document.
var limits = []struct{ name, folder, value string }{
	{"maxHeaderLength", ".", "100,000,000 bytes"},
	{"jsonscan.MaxDepth", "internal/jsonscan", "127"},
	{"firstRead", ".", "64 KiB"},
	{"maxIndexLength", ".", "64 MiB"},
	{"maxDownload", "remote", "64 MiB"},
	{"maxConfig", "quant", "4 MiB"},
	{"maxState", "quant", "64 KiB"},
	{"maxExpression", "quant", "4 KiB"},
	{"maxExpressions", "quant", "128 KiB"},
	{"maxSteps", "quant", "2²⁹"},
	{"checkpoint.maxConfig", "checkpoint", "4 MiB"},
	{"checkpoint.maxWeights", "checkpoint", "10,000"},
	{"maxDirs", "checkpoint", "10,000"},
	{"maxShards", ".", "10,000"},
	{"dcp.maxFiles", "dcp", "10,000"},
	{"maxRank", "dcp", "64"},
	{"maxDepth", "dcp", "64"},
	{"maxPieces", "dcp", "524,288"},
	{"maxIdle", "dcp", "32"},
	{"shardsAtOnce", ".", "20"},
	{"transport.InFlight", "internal/transport", "20"},
	{"maxFailures", ".", "10"},
	{"maxRedirects", "remote", "10"},
	{"readers", ".", "16"},
	{"mostInFlight", ".", "64 MiB"},
	{"remote.firstRead", "remote", "100,008 bytes"},
	{"maxSpan", "remote", "8 MiB"},
	{"maxGap", "remote", "256 KiB"},
	{"maxParts", "remote", "65,536"},
	{"maxTries", "remote", "8"},
	{"leastTry", "remote", "1 KiB"},
	{"maxDials", "remote", "3"},
	{"firstPause", "remote", "0.25 s"},
	{"longestPause", "remote", "10 s"},
	{"longestAsked", "remote", "60 s"},
	{"stallTimeout", "remote", "30 s"},
	{"maxQuote", "remote", "200 characters"},
	{"maxURL", "remote", "1,000"},
	{"smallPickle", "torch", "1 MiB"},
	{"maxText", "torch", "100 MB"},
	{"maxLooks", "torch", "2²⁵"},
	{"usualSteps", "internal/pickle", "4 million opcodes"}, // an opcode counts as two steps
	{"maxDirectory", "internal/zipfile", "16 MiB"},
	{"maxHeldBytes", "internal/zipfile", "256 MiB"},
	{"modelsig.MaxSize", "cmd/safetensors/internal/modelsig", "64 MiB"},
	{"maxLine", "cmd/safetensors/internal/manifest", "1 MiB"},
	{"mostPrinted", "cmd/safetensors/internal/numpy", "2²¹"},
}

// units are the factors of the units in SECURITY.md. Times are in nanoseconds.
var units = map[string]float64{
	"": 1, "bytes": 1, "characters": 1, "KiB": 1 << 10, "MiB": 1 << 20, "MB": 1e6, "s": 1e9, "million opcodes": 2 << 20,
}

// number returns the number that a value in SECURITY.md stands for.
func number(t *testing.T, value string) float64 {
	t.Helper()
	digits, unit, _ := strings.Cut(value, " ")
	factor, ok := units[unit]
	require.True(t, ok, value)
	if exponent, power := strings.CutPrefix(strings.NewReplacer("²⁹", "^29", "²⁵", "^25", "²¹", "^21").Replace(digits), "2^"); power {
		n, err := strconv.Atoi(exponent)
		require.NoError(t, err, value)
		return factor * float64(int64(1)<<n)
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(digits, ",", ""), 64)
	require.NoError(t, err, value)
	return factor * n
}

// TestSecurityNumbers: the limits in SECURITY.md are the constants that it names, each next to its value, and the
// funcs and types that it names exist.
func TestSecurityNumbers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout, "SECURITY.md"))
	require.NoError(t, err)
	declared, values := declaredNames(t)
	// This joins each list item, row of a table and paragraph into one line.
	items := strings.Split(regexp.MustCompile(`\n(\n|[-|] )`).ReplaceAllString(string(text), "\x00$1"), "\x00")
	for i, item := range items {
		items[i] = strings.Join(strings.Fields(item), " ")
	}
	for _, l := range limits {
		n, ok := values[l.folder+"/"+l.name[strings.LastIndex(l.name, ".")+1:]]
		require.True(t, ok, "%s has no constant %s", l.folder, l.name)
		require.Equal(t, number(t, l.value), n, "%s in %s", l.name, l.folder)
		valueIn := regexp.MustCompile(`(^|[^\w,.])` + regexp.QuoteMeta(l.value) + `($|[^\w,.²]|[,.] )`).MatchString
		require.True(t, slices.ContainsFunc(items, func(item string) bool {
			return strings.Contains(item, "`"+l.name+"`") && valueIn(item)
		}), "no item of SECURITY.md has `%s` and %s", l.name, l.value)
	}
	count := 0
	for _, match := range regexp.MustCompile("`((?:[a-z]+\\.)?[a-z]+[A-Z]\\w*|(?:[a-z]+\\.)[A-Z]\\w*)`").FindAllStringSubmatch(string(text), -1) {
		name := match[1]
		pkg, short, qualified := strings.Cut(name, ".")
		switch {
		case !qualified:
			short = name
		case slices.Contains([]string{"fs", "io", "os", "http", "runtime", "syscall"}, pkg):
			continue
		}
		count++
		require.True(t, declared[short], "SECURITY.md names %s, which no file declares", name)
		isLimit := slices.ContainsFunc(limits, func(l struct{ name, folder, value string }) bool { return l.name == name })
		_, isConstant := values[short]
		require.True(t, isLimit || !isConstant, "the constant %s of SECURITY.md is not among the limits of this test", name)
	}
	require.Greater(t, count, 40)
}

// declaredNames returns the names of all declarations in files other than tests, and the numbers
// that constants and variables among them have. Each number has two keys: the name, and the
// directory of the package joined with the name.
func declaredNames(t *testing.T) (declared map[string]bool, values map[string]float64) {
	declared, values = make(map[string]bool), make(map[string]float64)
	times := strings.NewReplacer("time.Second", "1000000000", "time.Minute", "60000000000")
	for file, parsed := range goFiles(t, checkout, parser.SkipObjectResolution, func(name string) bool { return !isTest(name) }) {
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				declared[n.Name.Name] = true
			case *ast.TypeSpec:
				declared[n.Name.Name] = true
			case *ast.ValueSpec:
				for i, name := range n.Names {
					declared[name.Name] = true
					if i >= len(n.Values) {
						continue
					}
					v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, times.Replace(types.ExprString(n.Values[i])))
					if err != nil || v.Value == nil || v.Value.Kind() != constant.Int && v.Value.Kind() != constant.Float {
						continue
					}
					x, _ := constant.Float64Val(v.Value)
					values[name.Name], values[path.Dir(file)+"/"+name.Name] = x, x
				}
			}
			return true
		})
	}
	return declared, values
}
