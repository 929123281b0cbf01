package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pythontest"
	"github.com/stretchr/testify/require"
)

// TestForeignFiles copies each file that another program made, and compares the copy
// with the safetensors file that the same program made of the same tensors: names,
// dtypes, shapes, values and metadata.
func TestForeignFiles(t *testing.T) {
	found := 0
	for _, pattern := range []string{"../../torch/testdata/*.pt", "internal/npz/testdata/*.np[yz]", "internal/bintensors/testdata/*/*.bt"} {
		names := must(filepath.Glob(pattern))
		require.NotEmpty(t, names, pattern)
		for _, name := range names {
			stem := strings.TrimSuffix(name, filepath.Ext(name))
			var flags []string
			if key, err := os.ReadFile(stem + ".key"); err == nil {
				flags = []string{"--key", strings.TrimSpace(string(key))}
			}
			to := filepath.Join(t.TempDir(), "copy.safetensors")
			if refused, err := os.ReadFile(stem + ".refused"); err == nil {
				for entry := range strings.Lines(string(refused)) {
					flags = append(flags, "--except", strings.TrimSpace(entry))
				}
			}
			succeeds(t, append([]string{"cp", name, to}, flags...)...)
			succeeds(t, "diff", to, stem+".safetensors")
			found++
		}
	}
	require.Greater(t, found, 20)
}

// TestForeignFilesThereAndBack: what another program wrote comes back from a
// safetensors file as the same bytes, in the formats that the command writes.
func TestForeignFilesThereAndBack(t *testing.T) {
	for _, name := range []string{
		"internal/bintensors/testdata/0.2/dtypes.bt", "internal/bintensors/testdata/0.2/shapes.bt",
		"internal/bintensors/testdata/0.2/nothing.bt", "internal/bintensors/testdata/0.2/no_metadata.bt",
		"internal/npz/testdata/stored.npz",
	} {
		dir := t.TempDir()
		middle := filepath.Join(dir, "middle.safetensors")
		back := filepath.Join(dir, "back"+filepath.Ext(name))
		succeeds(t, "cp", name, middle)
		succeeds(t, "cp", middle, back)
		want := must(os.ReadFile(name))
		got := must(os.ReadFile(back))
		if filepath.Ext(name) == ".npz" { // the times and the order of the members differ
			succeeds(t, "diff", name, back)
			continue
		}
		require.Equal(t, want, got, name)
	}
}

// TestDistributed joins the checkpoint that four ranks of PyTorch have saved.
func TestDistributed(t *testing.T) {
	ranks := filepath.Join(repository, "dcp", "testdata", "mesh")
	to := filepath.Join(t.TempDir(), "whole.safetensors")
	succeeds(t, "cp", ranks, to)
	succeeds(t, "diff", to, filepath.Join(repository, "dcp", "testdata", "whole.safetensors"))
	require.Contains(t, succeeds(t, "check", ranks), "ok")
}

// TestTorchFolders copies folders and indexes of files of PyTorch, and files on a web server.
// Next to safetensors, those win.
func TestTorchFolders(t *testing.T) {
	folders := filepath.Join("..", "..", "torch", "testdata", "folders")
	server := httptest.NewServer(http.FileServer(http.Dir(folders)))
	defer server.Close()
	to := filepath.Join(t.TempDir(), "to.safetensors")
	for name, want := range map[string]string{
		"one": "one", "adapter": "adapter", "adapter/adapter_model.bin": "adapter",
		"shards": "shards", "shards/pytorch_model.bin.index.json": "shards",
	} {
		name := filepath.Join(folders, filepath.FromSlash(name))
		args := []string{"cp", "-q", "--force", name, to}
		if want == "shards" {
			args = append(args, "--except", "complex")
		}
		succeeds(t, args...)
		succeeds(t, "diff", to, filepath.Join(folders, want+".safetensors"))
	}
	require.Contains(t, fails(t, exitFailed, "cp", "-q", "--force", filepath.Join(folders, "shards"), to), `"complex" of `)
	succeeds(t, "cp", "-q", "--force", server.URL+"/one/pytorch_model.bin", to)
	succeeds(t, "diff", to, filepath.Join(folders, "one.safetensors"))

	both := t.TempDir()
	require.NoError(t, os.CopyFS(both, os.DirFS(filepath.Join(folders, "one"))))
	require.NoError(t, os.CopyFS(both, os.DirFS(filepath.Join(folders, "adapter"))))
	data := must(os.ReadFile(filepath.Join(folders, "shards.safetensors")))
	require.NoError(t, os.WriteFile(filepath.Join(both, "model.safetensors"), data, 0o666))
	succeeds(t, "diff", both, filepath.Join(folders, "shards.safetensors"))
}

// TestDistcp joins checkpoints that torch.distributed.checkpoint has saved by default, and
// deals one out again for other ranks.
func TestDistcp(t *testing.T) {
	golden := filepath.Join("..", "..", "dcp", "testdata", "distcp")
	for _, name := range []string{"one", "ranks", "mesh"} {
		from, to := filepath.Join(golden, name), filepath.Join(t.TempDir(), "whole.safetensors")
		r := runs(t, "cp", "-q", from, to)
		require.Equal(t, exitOK, r.code, r.stderr)
		require.Contains(t, r.stderr, "entries that are no tensors are left out: ")
		succeeds(t, "diff", to, from+".safetensors")
		require.Contains(t, succeeds(t, "hash", from), ".metadata\n")
	}
	mesh := filepath.Join(golden, "mesh")
	one := filepath.Join(t.TempDir(), "one.safetensors")
	succeeds(t, "cp", mesh, one, "--only", "optimizer")
	require.Contains(t, succeeds(t, "ls", one), "optimizer.state.0.exp_avg")

	for _, ranks := range []string{"1", "3", "8"} {
		to := filepath.Join(t.TempDir(), "ranks")
		require.NoError(t, os.Mkdir(to, 0o777))
		succeeds(t, "cp", mesh, to, "--ranks", ranks)
		entries := must(os.ReadDir(to))
		require.Equal(t, ranks, fmt.Sprint(len(entries)))
		succeeds(t, "diff", to, mesh+".safetensors")
		require.Contains(t, fails(t, exitFailed, "cp", mesh, to, "--ranks", "2"), "exists; --force replaces it")
		require.Contains(t, fails(t, exitFailed, "cp", mesh, to, "--ranks", "2", "--force"), "is not empty, and the files of ranks need a folder of their own")
		left := must(os.ReadDir(filepath.Dir(to)))
		require.Len(t, left, 1)
	}
	to := filepath.Join(t.TempDir(), "ranks")
	for _, flags := range [][]string{{"--ranks", "0x"}, {"--ranks", "-1"}, {"--ranks", "2", "--max-shard-size", "1MB"}} {
		fails(t, exitUsage, append([]string{"cp", mesh, to}, flags...)...)
	}
	fails(t, exitUsage, "cp", mesh, to+".safetensors", "--ranks", "2")
	fails(t, exitUsage, "cp", mesh, "s3://bucket/x", "--ranks", "2")
	require.NoDirExists(t, to)
	require.Contains(t, fails(t, exitFailed, "cp", mesh, filepath.Join(one, "x"), "--ranks", "2"), "one.safetensors")
}

// TestTorchRanks has PyTorch load what cp --ranks writes.
func TestTorchRanks(t *testing.T) {
	mesh := filepath.Join("..", "..", "dcp", "testdata", "distcp", "mesh")
	var folders []string
	for _, ranks := range []string{"1", "3", "8"} {
		folders = append(folders, filepath.Join(t.TempDir(), ranks))
		succeeds(t, "cp", mesh, folders[len(folders)-1], "--ranks", ranks)
	}
	args := append([]string{filepath.Join("testdata", "load.py")}, folders...)
	pythontest.Run(t, "SAFETENSORS_TORCH", "torch,safetensors", append(args, mesh+".safetensors")...)
}

// TestRankFiles: files of ranks whose places are in a pickle only are named, not taken
// for whole tensors, and not joined with the consolidated ones above them.
func TestRankFiles(t *testing.T) {
	dir := t.TempDir()
	model := map[string]safetensors.Tensor{"w": counting(t, 2)}
	sharded := filepath.Join(dir, "sharded")
	require.NoError(t, os.Mkdir(sharded, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(sharded, "metadata.pkl"), []byte("\x80\x04}."), 0o666))
	for _, name := range []string{"model_0.safetensors", "model_1.safetensors"} {
		require.NoError(t, safetensors.WriteFile(filepath.Join(sharded, name), model, nil))
	}
	require.Contains(t, fails(t, exitFailed, "ls", sharded), "torch_checkpointing: where their tensors belong is in metadata.pkl only, which is not read; open the folder above it")
	require.NoError(t, safetensors.WriteShards(dir, map[string]safetensors.Tensor{"w": counting(t, 4)}, nil, 1<<20))
	require.Contains(t, succeeds(t, "ls", dir), "[4]")
}

// TestHostileFiles: files that would have Python run something, or that lie, are
// refused by every verb that reads all of them, and nothing is written or run.
func TestHostileFiles(t *testing.T) {
	names := must(filepath.Glob("../../torch/testdata/refused/*.pt"))
	more := must(filepath.Glob("internal/npz/testdata/refused/*.np[yz]"))
	require.NotEmpty(t, more)
	for _, name := range append(names, more...) {
		to := filepath.Join(t.TempDir(), "x.safetensors")
		require.Contains(t, fails(t, exitFailed, "cp", name, to), filepath.Base(name))
		require.NoFileExists(t, to)
	}
	system := "../../torch/testdata/refused/system.pt"
	r := runs(t, "ls", system)
	require.Equal(t, exitOK, r.code)
	require.Contains(t, r.stdout, "w ")
	require.Equal(t, "safetensors: note: "+system+": evil is left out: it is an object of \"posix.system\"\n", r.stderr)
	require.NoFileExists(t, "executed")
}

// TestFormatTable: the help and the page name each ending that is read, and each that is
// written.
func TestFormatTable(t *testing.T) {
	page := must(os.ReadFile(filepath.Join(repository, "doc", "command.md")))
	_, from, _ := strings.Cut(string(page), "| SRC |")
	from, to, _ := strings.Cut(from, "| DST |")
	to, _, _ = strings.Cut(to, "\n\n")
	help := succeeds(t, "cp", "--help")
	for _, f := range format.Table {
		for _, ending := range f.Endings {
			if f.Open != nil {
				require.Contains(t, from, ending)
				require.Contains(t, succeeds(t, "help", "sources"), ending)
			}
			if f.Write != nil {
				require.Contains(t, to, ending)
				require.Contains(t, help, ending)
			}
		}
	}
}

// TestMap: CONTRIBUTING.md's map has all packages.
func TestMap(t *testing.T) {
	text := must(os.ReadFile(filepath.Join(repository, "CONTRIBUTING.md")))
	entries := must(os.ReadDir("internal"))
	for _, e := range entries {
		require.Contains(t, string(text), "\n  internal/"+e.Name()+"/")
	}
}
