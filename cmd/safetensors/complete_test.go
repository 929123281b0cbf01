package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// completions returns what a shell is told of a command line, whose last word is not
// complete.
func completions(t *testing.T, args ...string) (texts []string, directive cobra.ShellCompDirective) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(succeeds(t, append([]string{"__complete"}, args...)...), "\n"), "\n")
	last := len(lines) - 1
	must(fmt.Sscanf(lines[last], ":%d", &directive))
	return lines[:last], directive
}

// TestCompleteHostile offers no name that a shell would evaluate, and none that another
// one could be taken for.
func TestCompleteHostile(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFiles(t, ".")
	names := []string{
		"$(touch pwned)", "$(touch pwned)2", "`touch pwned`", "a;touch pwned", "a&b", "a|b", "a b", "a\\b", "'a", "\"a", "a*", "a?", "a[0]", "{a,b}",
		"~root", "=ls", "a=b", "!!", "#a", "-rf", "--force", "_activeHelp_ a", "a\tb", "a\nb", "a\r", "a:1", "<a", "a>b", "$HOME", "\x1b[31m", "\u202ea", "\u00a0a", "a,b", "@a", "%a", "^a",
		strings.Repeat("long", 1000), "good.weight", "größe.重み",
	}
	tensors := map[string]safetensors.Tensor{}
	metadata := map[string]string{}
	for _, name := range names {
		tensors[name] = counting(t, 1)
		metadata[name] = ""
	}
	require.NoError(t, safetensors.WriteFile("h.safetensors", tensors, metadata))
	for _, args := range [][]string{{"show", "h.safetensors"}, {"stats", "h.safetensors"}, {"ls", "h.safetensors", "--only"}, {"cp", "h.safetensors", "--except"}, {"meta", "h.safetensors", "--delete"}} {
		texts, _ := completions(t, append(args, "")...)
		slices.Sort(texts)
		require.Equal(t, []string{"good.weight", "größe.重み"}, texts, args)
		for _, typed := range []string{"$", "$(touch pwned)", "-", "a"} {
			texts, _ := completions(t, append(args, typed)...)
			for _, text := range texts {
				require.True(t, strings.HasPrefix(text, "-") && strings.Contains(text, "\t") && typed == "-", "%q of %q", text, typed) // our own flags
			}
		}
	}

	many := map[string]safetensors.Tensor{}
	for i := range 5000 {
		many[fmt.Sprintf("x%d", i)] = counting(t, 1)
	}
	require.NoError(t, safetensors.WriteFile("many.safetensors", many, nil))
	texts, _ := completions(t, "show", "many.safetensors", "x")
	require.Len(t, texts, maxCompletions)
}

// TestLevels cuts names at a dot that stands where the typed text ends.
func TestLevels(t *testing.T) {
	require.Equal(t, []string{"a.", "ab"}, levels([]string{"a.b", "a.c", "ab"}, "a"))
}

// TestCompleteLocal opens nothing that is not on this machine, and waits for nothing: no
// server, no bucket, no pipe and no standard input.
func TestCompleteLocal(t *testing.T) {
	t.Chdir(t.TempDir())
	writeShards(t, "repo")
	url, requests := startHub(t, "repo")
	t.Setenv("AWS_ENDPOINT_URL_S3", serve(t, func(http.ResponseWriter, *http.Request) { require.Fail(t, "a request") }))
	sources := []string{"hf://owner/name", "hf://owner/name/model.safetensors", url + "/model.safetensors.index.json", "s3://bucket/repo?region=x", "-", "nonsense://x"}
	if mkfifo, err := exec.LookPath("mkfifo"); err == nil {
		require.NoError(t, exec.Command(mkfifo, "pipe").Run())
		sources = append(sources, "pipe")
	}
	for _, name := range sources {
		for _, args := range [][]string{{"show", name, ""}, {"ls", name, "--only", ""}, {"ls", name, "--key", ""}, {"meta", name, "--delete", ""}} {
			texts, directive := completions(t, args...)
			require.Empty(t, texts, args)
			require.Equal(t, cobra.ShellCompDirectiveNoFileComp, directive, args)
		}
	}
	require.Empty(t, requests(), "nothing is sent")

	// The cache of the Python tools is on this machine.
	cache := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--owner--name")
	write(t, filepath.Join(cache, "refs", "main"), commit)
	writeShards(t, filepath.Join(cache, "snapshots", commit))
	texts, _ := completions(t, "show", "hf://owner/name", "")
	require.Equal(t, []string{"x", "y", "z"}, texts)
	texts, _ = completions(t, "show", "file://"+filepath.ToSlash(must(filepath.Abs("repo"))), "")
	require.Equal(t, []string{"x", "y", "z"}, texts)
	require.Empty(t, requests())
}
