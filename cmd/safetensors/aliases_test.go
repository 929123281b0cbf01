package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestAliases copies parts of a file with tied tensors, which are stored once: a copy has each of the
// selected names, either as a tensor or in its metadata, and no name of what is not there.
func TestAliases(t *testing.T) {
	t.Chdir(t.TempDir())
	one := counting(t, 2)
	aliases := map[string]string{"head": "embed", "last": "embed", "author": "somebody", "format": "pt"}
	require.NoError(t, safetensors.WriteFile("tied.safetensors", map[string]safetensors.Tensor{"embed": one, "norm": counting(t, 3), "pt": one}, aliases))
	for _, c := range []struct {
		flags    []string
		tensors  []string
		metadata map[string]string // without author and format
	}{
		{[]string{"--rename", "s/embed/wte/"}, []string{"norm", "pt", "wte"}, map[string]string{"head": "wte", "last": "wte"}},
		{[]string{"--rename", "s/^/m./"}, []string{"m.embed", "m.norm", "m.pt"}, map[string]string{"m.head": "m.embed", "m.last": "m.embed"}},
		{[]string{"--rename", "s/head/lm/"}, []string{"embed", "norm", "pt"}, map[string]string{"lm": "embed", "last": "embed"}},
		{[]string{"--except", "embed"}, []string{"head", "norm", "pt"}, map[string]string{"last": "head"}},
		{[]string{"--except", "embed", "--except", "head"}, []string{"last", "norm", "pt"}, nil},
		{[]string{"--except", "last"}, []string{"embed", "norm", "pt"}, map[string]string{"head": "embed"}},
		{[]string{"--only", "norm"}, []string{"norm"}, nil},
		{[]string{"--only", "head", "--dtype", "bf16"}, []string{"head"}, nil},
		{nil, []string{"embed", "norm", "pt"}, map[string]string{"head": "embed", "last": "embed"}},
	} {
		want := map[string]string{"author": "somebody", "format": "pt"}
		for name, to := range c.metadata {
			want[name] = to
		}
		succeeds(t, append([]string{"cp", "tied.safetensors", "copy.safetensors", "--force"}, c.flags...)...)
		f := must(safetensors.Open("copy.safetensors"))
		require.Equal(t, c.tensors, slices.Sorted(maps.Keys(maps.Collect(f.Tensors()))), c.flags)
		require.Equal(t, want, f.Metadata(), c.flags)
		require.NoError(t, f.Close())
	}

	// A NumPy archive has no metadata, but each name.
	require.Contains(t, runs(t, "cp", "tied.safetensors", "copy.npz").stderr, "the metadata of tied.safetensors is left out")
	require.Contains(t, succeeds(t, "ls", "copy.npz"), "last")

	// Other verbs read what is stored, and say where it is.
	const advice = `its metadata says that "head" is another name of "embed"`
	r := runs(t, "show", "tied.safetensors", "head")
	require.Equal(t, succeeds(t, "show", "tied.safetensors", "embed"), r.stdout)
	require.Contains(t, r.stderr, "head is another name of embed, as the metadata says")
	require.Contains(t, fails(t, exitFailed, "stats", "tied.safetensors", "he*"), advice)
	require.Contains(t, fails(t, exitFailed, "ls", "tied.safetensors", "--only", "head"), advice)
	// diff compares tensors by all of their names.
	require.Equal(t, "equal\n", succeeds(t, "diff", "tied.safetensors", "copy.npz"))
	require.Equal(t, "equal\n", succeeds(t, "diff", "copy.npz", "tied.safetensors"))
	succeeds(t, "cp", "tied.safetensors", "net.safetensors", "--rename", "s/^/net./")
	require.Equal(t, "equal\n", succeeds(t, "diff", "tied.safetensors", "net.safetensors", "--rename", "s/^/net./", "--meta"))
	require.NoError(t, safetensors.WriteFile("other.safetensors", map[string]safetensors.Tensor{"embed": one, "norm": counting(t, 3), "pt": one, "head": counting(t, 3), "last": one}, nil))
	require.Contains(t, runs(t, "diff", "tied.safetensors", "other.safetensors").stdout, "head")
	require.Contains(t, runs(t, "diff", "tied.safetensors", "copy.npz", "--rename", "s/norm/more/").stdout, "+ norm\n")
}
