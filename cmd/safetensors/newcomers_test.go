package main

import (
	"os"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestNewcomers has what people write who do not know the command yet, and what it says.
func TestNewcomers(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFiles(t, ".")
	for _, c := range []struct {
		name, args string
		code       int
		want       string
	}{
		{"meta without --in-place", "meta a.safetensors k=v", 0, "safetensors: note: nothing is written; --in-place changes a.safetensors\n"},
		{"meta --delete without it", "meta a.safetensors --delete format", 0, "note: nothing is written"},
		{"--rename without a match", "cp a.safetensors x --rename s/absent/y/", 1, `no tensor matches --rename "s/absent/y/"`},
		{"--rename of what an earlier one renamed", "cp a.safetensors x.safetensors --rename s/^embed/e/ --rename s/^embed/f/", 1, `no tensor matches --rename "s/^embed/f/"`},
		{"--rename to the same name", "cp a.safetensors x.safetensors --rename s/embed/embed/", 0, ""},
		{"--rename of diff", "diff a.safetensors b.safetensors --rename s/absent/y/", 1, `no tensor matches --rename "s/absent/y/"`},
		{"a size without a unit", "cp a.safetensors x --max-shard-size 5", 2, `"5" has no unit: expected a size like 5GB or 5B`},
		{"cp without DST", "cp a.safetensors", 2, "safetensors: expected SRC... DST, not 1 argument\n"},
		{"ls without SRC", "ls", 2, "safetensors: expected SRC..., not 0 arguments\n"},
		{"show without a tensor", "show a.safetensors", 2, "expected SRC NAME, not 1 argument"},
		{"verify without anything", "verify", 2, "expected SRC MANIFEST, not 0 arguments"},
		{"sign with two models", "sign a b", 2, "expected MODEL, not 2 arguments"},
		{"a repository without hf://", "ls owner/name", 1, "on the hub it is hf://owner/name\n"},
		{"a file that is missing", "ls shards/name", 1, "name"},
		{"codes", "show fp8 mlp.weight", 0, "safetensors: note: these are codes and scales of quantised tensors; --dequantize shows the numbers\n"},
		{"statistics of scales", "stats fp8 mlp", 0, "--dequantize shows the numbers"},
		{"codes and numbers", "diff fp8 a.safetensors", 1, "safetensors: note: one of the two has codes and scales of quantised tensors; --dequantize compares the numbers\n"},
		{"numbers and codes, a few", "diff a.safetensors fp8 --only norm.weight", 1, "--dequantize compares the numbers"},
		{"weights whose sum is not 1", "merge a.safetensors a.safetensors m.safetensors --weights 1,2", 0, "safetensors: note: the sum of the weights is 3; --normalize divides by it\n"},
		{"weights whose sum is 0", "merge a.safetensors a.safetensors m.safetensors --weights 1,-1 --normalize", 2, "--weights 1,-1: their sum is 0"},
		{"--normalize of tasks", "merge a.safetensors a.safetensors m.safetensors --method task --normalize", 2, "--normalize goes with --method linear"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runs(t, strings.Fields(c.args)...)
			require.Equal(t, c.code, r.code, r.stderr)
			require.Contains(t, r.stderr, c.want)
			if c.want == "" {
				require.Empty(t, r.stderr)
			}
		})
	}
	require.NotContains(t, fails(t, 1, "ls", "shards/name"), "hf://")
	require.Empty(t, runs(t, "show", "fp8", "norm.weight").stderr, "a plain tensor")
	require.Empty(t, runs(t, "show", "fp8", "mlp.weight", "--dequantize").stderr)
	require.Empty(t, runs(t, "meta", "a.safetensors").stderr)
	for _, same := range []string{"diff fp8 fp8", "diff a.safetensors b.safetensors", "diff fp8 a.safetensors --dequantize"} {
		require.Empty(t, runs(t, strings.Fields(same)...).stderr, same)
	}
	require.NoFileExists(t, "x")

	require.NoError(t, safetensors.WriteFile("one.safetensors", map[string]safetensors.Tensor{"x": floats(t, []int{1}, 1)}, nil))
	require.NoError(t, safetensors.WriteFile("four.safetensors", map[string]safetensors.Tensor{"x": floats(t, []int{1}, 4)}, nil))
	require.Equal(t, result{"", "", 0}, runs(t, "merge", "one.safetensors", "four.safetensors", "n.safetensors", "--weights", "1,2", "--normalize"))
	require.Equal(t, "[3]\n", succeeds(t, "show", "n.safetensors", "x"))
	require.NoError(t, os.Remove("n.safetensors"))
}
