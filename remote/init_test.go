package remote

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoExpressions: a program that imports this package and package hub compiles no regular
// expressions when it starts.
func TestNoExpressions(t *testing.T) {
	for _, pattern := range []string{"*.go", "../hub/*.go", "../internal/transport/*.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, imported := range file.Imports {
				require.NotEqual(t, `"regexp"`, imported.Path.Value, name)
			}
		}
	}
}

// TestRateLimitReset: rateLimitReset finds the parameter t among others, and not a parameter whose
// name only ends in t.
func TestRateLimitReset(t *testing.T) {
	for header, want := range map[string]string{
		`"resolvers";r=0;t=55`: "55", `"resolvers";r=0; t=5`: "5", `"r";t=12;w=3`: "12", `"r";t=7, "s";t=9`: "7",
		"": "", "t=5": "", `"r";t=`: "", `"r";t=x`: "", `"r";rt=5`: "", `"r";t=x;t=3`: "3",
	} {
		require.Equal(t, want, rateLimitReset(header), header)
	}
}
