package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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

const (
	noFiles = cobra.ShellCompDirectiveNoFileComp
	goesOn  = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
)

func TestComplete(t *testing.T) {
	testdata := must(filepath.Abs("../../torch/testdata"))
	t.Chdir(t.TempDir())
	writeFiles(t, ".")
	for _, c := range []struct {
		line      string // the last word is what is typed
		want      string
		directive cobra.ShellCompDirective
	}{
		{"show a.safetensors ", "embed.weight empty experts. layers. mask rotary step", goesOn},
		{"show a.safetensors e", "embed.weight empty experts.", goesOn},
		{"show a.safetensors la", "layers.0. layers.1.mlp.weight layers.10.mlp.weight", goesOn},
		{"show a.safetensors layers.1", "layers.1.mlp.weight layers.10.mlp.weight", noFiles},
		{"show a.safetensors layers.1.", "layers.1.mlp.weight", noFiles},
		{"show a.safetensors layers.0.attn.", "layers.0.attn.k.codes layers.0.attn.q.bias", noFiles},
		{"show a.safetensors step", "step", noFiles},
		{"show a.safetensors absent", "", noFiles},
		{"show a.safetensors step ", "", noFiles},
		{"show ", "", cobra.ShellCompDirectiveDefault},
		{"show shards ", "x y z", noFiles},
		{"show shards/model.safetensors.index.json x", "x", noFiles},
		{"show absent.safetensors ", "", noFiles},
		{"show bad/truncated.safetensors ", "", noFiles},
		{"stats a.safetensors mask em", "embed.weight empty", noFiles},
		{"ls a.safetensors shards --only ", "embed.weight empty experts. layers. mask rotary step x y z", goesOn},
		{"ls a.safetensors --only=st", "step", noFiles},
		{"ls --only ", "", noFiles},
		{"ls --sort ", "size name", noFiles},
		{"ls ", "", cobra.ShellCompDirectiveDefault},
		{"cp a.safetensors new --only step --except exp", "experts.blocks experts.scales", noFiles},
		{"cp a.safetensors new --dtype b", "bf16", noFiles},
		{"cp a.safetensors new --dtype f8_e4m3=bf16,f32=f1", "f8_e4m3=bf16,f32=f16", noFiles},
		{"cp a.safetensors new --rename ", "", noFiles},
		{"diff a.safetensors b.safetensors --only n", "new", noFiles},
		{"merge a b c --method ", "linear slerp task", noFiles},
		{"meta adapter.safetensors --delete ", "format rank", noFiles},
		{"meta adapter.safetensors k", "", noFiles},
		{"ls " + testdata + "/checkpoint.pt --key ", "model.state_dict model.ema.0 optimizer.state optimizer.state.0", noFiles},
		{"ls " + testdata + "/checkpoint.pt --key o", "optimizer.state optimizer.state.0", noFiles},
		{"show " + testdata + "/checkpoint.pt --key model.state_dict ", "0. 1.", goesOn},
		{"ls a.safetensors --key ", "", noFiles},
		{"sign shards --key ", "", cobra.ShellCompDirectiveDefault},
	} {
		texts, directive := completions(t, strings.Split(c.line, " ")...)
		require.Equal(t, c.want, strings.Join(texts, " "), c.line)
		require.Equal(t, c.directive, directive, c.line)
	}
	// A module as it is completed selects what is below it.
	require.Contains(t, succeeds(t, "ls", "a.safetensors", "--only", "layers.1."), "layers.1.mlp.weight")
	require.NotContains(t, succeeds(t, "ls", "a.safetensors", "--only", "layers.1."), "layers.10.")
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

// TestCompleteLocal opens nothing that is not on this machine, and waits for nothing: no
// server, no bucket, no pipe and no standard input.
func TestCompleteLocal(t *testing.T) {
	t.Chdir(t.TempDir())
	writeShards(t, "repo")
	url, requests := startHub(t, "repo")
	bucketServer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { require.Fail(t, "a request") }))
	t.Cleanup(bucketServer.Close)
	t.Setenv("AWS_ENDPOINT_URL_S3", bucketServer.URL)
	sources := []string{"hf://owner/name", "hf://owner/name/model.safetensors", url + "/model.safetensors.index.json", "s3://bucket/repo?region=x", "-", "nonsense://x"}
	if mkfifo, err := exec.LookPath("mkfifo"); err == nil {
		require.NoError(t, exec.Command(mkfifo, "pipe").Run())
		sources = append(sources, "pipe")
	}
	for _, name := range sources {
		for _, args := range [][]string{{"show", name, ""}, {"ls", name, "--only", ""}, {"ls", name, "--key", ""}, {"meta", name, "--delete", ""}} {
			texts, directive := completions(t, args...)
			require.Empty(t, texts, args)
			require.Equal(t, noFiles, directive, args)
		}
	}
	require.Empty(t, requests(), "nothing is sent")

	// The cache of the Python tools is on this machine.
	cache := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--owner--name")
	write(t, filepath.Join(cache, "refs", "main"), commit)
	writeShards(t, filepath.Join(cache, "snapshots", commit))
	texts, _ := completions(t, "show", "hf://owner/name", "")
	require.Equal(t, []string{"x", "y", "z"}, texts)
	abs := must(filepath.Abs("repo"))
	texts, _ = completions(t, "show", "file://"+filepath.ToSlash(abs), "")
	require.Equal(t, []string{"x", "y", "z"}, texts)
	require.Empty(t, requests())
}
