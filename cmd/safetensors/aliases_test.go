package main

import (
	"maps"
	"os"
	"slices"
	"strings"
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
	const note = "safetensors: note: head is another name of embed, as the metadata says\n"
	r := runs(t, "show", "tied.safetensors", "head")
	require.Equal(t, succeeds(t, "show", "tied.safetensors", "embed"), r.stdout)
	require.Equal(t, note, r.stderr)
	for _, verb := range []string{"ls", "stats", "hash --tensors", "diff tied.safetensors", "verify tied.sums"} {
		t.Run(verb, func(t *testing.T) { testSelectedByAlias(t, strings.Fields(verb), note) })
	}
	// diff compares tensors by all of their names.
	require.Equal(t, "equal\n", succeeds(t, "diff", "tied.safetensors", "copy.npz"))
	require.Equal(t, "equal\n", succeeds(t, "diff", "copy.npz", "tied.safetensors"))
	succeeds(t, "cp", "tied.safetensors", "net.safetensors", "--rename", "s/^/net./")
	require.Equal(t, "equal\n", succeeds(t, "diff", "tied.safetensors", "net.safetensors", "--rename", "s/^/net./", "--meta"))
	require.NoError(t, safetensors.WriteFile("other.safetensors", map[string]safetensors.Tensor{"embed": one, "norm": counting(t, 3), "pt": one, "head": counting(t, 3), "last": one}, nil))
	require.Contains(t, runs(t, "diff", "tied.safetensors", "other.safetensors").stdout, "head")
	require.Contains(t, runs(t, "diff", "tied.safetensors", "copy.npz", "--rename", "s/norm/more/").stdout, "+ norm\n")
}

// TestAliasesOfDifferentTensors: two files that give the name of an alias to different tensors are compared, merged and joined
// by what that name stands for in each of them.
func TestAliasesOfDifferentTensors(t *testing.T) {
	t.Chdir(t.TempDir())
	two := map[string]safetensors.Tensor{"e": counting(t, 2), "p": counting(t, 3)}
	same := map[string]safetensors.Tensor{"e": counting(t, 2), "p": counting(t, 2)}
	for name, content := range map[string]map[string]safetensors.Tensor{"a": two, "b": two, "c": same, "d": same} {
		of := map[bool]string{true: "e", false: "p"}[name == "a" || name == "c"]
		require.NoError(t, safetensors.WriteFile(name+".safetensors", content, map[string]string{"h": of}))
	}
	require.Contains(t, runs(t, "diff", "a.safetensors", "b.safetensors").stdout, "! h: ")
	require.Contains(t, runs(t, "diff", "a.safetensors", "b.safetensors", "--only", "h", "--only", "e").stdout, "! h: ")
	require.Equal(t, "equal\n", succeeds(t, "diff", "c.safetensors", "d.safetensors"))

	require.Contains(t, fails(t, 1, "merge", "a.safetensors", "b.safetensors", "merged.safetensors"), `tensor "h" is in model 2 and not in the first, where "e" stands for it`)
	succeeds(t, "merge", "c.safetensors", "d.safetensors", "merged.safetensors")
	require.Equal(t, "equal\n", succeeds(t, "diff", "merged.safetensors", "c.safetensors"))

	require.NoError(t, safetensors.WriteFile("j.safetensors", map[string]safetensors.Tensor{"z": counting(t, 2)}, map[string]string{"h": "z"}))
	require.NoError(t, safetensors.WriteFile("k.safetensors", map[string]safetensors.Tensor{"e": counting(t, 2)}, map[string]string{"h": "e"}))
	require.Contains(t, fails(t, 1, "cp", "k.safetensors", "j.safetensors", "joined.safetensors"), `"h" is another name of "e" in k.safetensors, and of "z" in j.safetensors`)

	succeeds(t, "cp", "a.safetensors", "without.safetensors", "--without-meta")
	r := runs(t, "diff", "a.safetensors", "without.safetensors")
	require.Equal(t, "equal\n", r.stdout)
	require.Equal(t, "safetensors: note: only the metadata of a.safetensors has h, as another name of a tensor: --meta compares metadata\n", r.stderr)
}

// TestAliasesOfTwo compares two files by a name that stands for tensors of different names, and lists a file by many
// aliases, of which only the first few are noted.
func TestAliasesOfTwo(t *testing.T) {
	t.Chdir(t.TempDir())
	tied := func(file, stored string, aliases ...string) {
		metadata := make(map[string]string)
		for _, alias := range aliases {
			metadata[alias] = stored
		}
		require.NoError(t, safetensors.WriteFile(file, map[string]safetensors.Tensor{stored: counting(t, 2)}, metadata))
	}
	tied("a.safetensors", "embed", "head", "h0", "h1", "h2", "h3", "h4", "h5")
	tied("b.safetensors", "wte", "head")
	require.Equal(t, result{stdout: "equal\n", stderr: `safetensors: note: head is another name of embed, as the metadata says
safetensors: note: head is another name of wte, as the metadata says
`}, runs(t, "diff", "a.safetensors", "b.safetensors", "--only", "head"))
	require.Contains(t, runs(t, "diff", "a.safetensors", "b.safetensors").stdout, "- embed\n+ wte\n")
	require.Contains(t, runs(t, "diff", "a.safetensors", "b.safetensors", "--only", "h1").stderr, `"h1" is another name of "embed"`)

	notes := strings.Split(runs(t, "ls", "a.safetensors", "--only", "h*").stderr, "\n")
	require.Len(t, notes, 7)
	require.Equal(t, "safetensors: note: h4 is another name of embed, as the metadata says", notes[4])
	require.Equal(t, "safetensors: note: 2 more names are other names of tensors", notes[5])
}

// testSelectedByAlias selects tensors of tied.safetensors by the alias head of embed, and expects what
// the verb prints for embed, and a note.
func testSelectedByAlias(t *testing.T, verb []string, note string) {
	if verb[0] == "verify" {
		require.NoError(t, os.WriteFile(verb[1], []byte(succeeds(t, "hash", "--tensors", "tied.safetensors")), 0o666))
		verb = []string{"verify", "tied.safetensors", verb[1], "--tensors"}
	} else {
		verb = append(slices.Clone(verb), "tied.safetensors")
	}
	prints := func(flags ...string) result { return runs(t, slices.Concat(verb, flags)...) }
	embed := prints("--only", "embed")
	require.Zero(t, embed.code)
	require.Empty(t, embed.stderr)
	for _, selection := range []string{"--only=head", "--only=he*", "--only=head --except=norm", "--only=head --only=last --except=last"} {
		byAlias := prints(strings.Fields(selection)...)
		require.Equal(t, embed.stdout, byAlias.stdout, selection)
		require.Contains(t, byAlias.stderr, note, selection)
	}
	require.Equal(t, embed, prints("--only", "head", "--only", "embed"), "the name itself is selected")
	require.Equal(t, prints("--only", "norm", "--only", "pt"), prints("--except", "embed"), "--except leaves out the tensor, whatever its other names are")
	require.Contains(t, prints("--only", "head", "--except", "embed").stderr, `its metadata says that "head" is another name of "embed"`)
}
