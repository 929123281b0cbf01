package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

const planFile = ".safetensors-plan.json"

// withoutPlan returns the files in a folder but for the plan, which must be there.
func withoutPlan(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := tree(t, dir)
	require.Contains(t, files, planFile)
	delete(files, planFile)
	return files
}

// writePartsSource writes a checkpoint of ten tensors.
func writePartsSource(t *testing.T, name string) {
	tensors := make(map[string]safetensors.Tensor)
	for i := range 10 {
		tensors[fmt.Sprintf("layers.%d", i)] = counting(t, 20+i)
	}
	require.NoError(t, safetensors.WriteFile(name, tensors, map[string]string{"format": "pt"}))
}

// TestParts requires the bytes of plain cp for all N and in any order, for whatever cp
// does, and that nothing opens before the end.
func TestParts(t *testing.T) {
	here := must(os.Getwd())
	testdata := func(name string) string { return filepath.Join(here, filepath.FromSlash(name)) }
	t.Chdir(t.TempDir())
	writePartsSource(t, "src.safetensors")
	mkdir(t, "llama")
	require.NoError(t, os.WriteFile("llama/config.json", []byte(`{"model_type": "llama"}`), 0o666))
	succeeds(t, "cp", filepath.Join(here, repository, "testdata", "model.safetensors"), "llama/model.safetensors")
	succeeds(t, "cp", "-q", "llama", "llama-fp8", "--quantize", "fp8-channel")
	require.NoError(t, os.Mkdir("model", 0o777))
	writePartsSource(t, "model/model.safetensors")
	for name, text := range map[string]string{"config.json": `{"a":1}`, "tokenizer.json": `{}`} {
		require.NoError(t, os.WriteFile(filepath.Join("model", name), []byte(text), 0o666))
	}
	for i, c := range []struct {
		args []string
		n    []int
	}{
		{[]string{"src.safetensors", "--max-shard-size", "200B"}, []int{1, 2, 3, 5, 6, 16}},
		{[]string{"src.safetensors", "--max-shard-size", "1GB"}, []int{1, 2}},
		{[]string{"src.safetensors", "--max-shard-size", "200B", "--dtype", "f16", "--rename", "s/layers/x/", "--except", "layers.3", "--meta", "a=b"}, []int{3}},
		{[]string{"model", "--max-shard-size", "200B", "--with-files"}, []int{2}},
		{[]string{"model", "--max-shard-size", "1GB", "--with-files"}, []int{2}},
		{[]string{"llama", "--max-shard-size", "10kB", "--quantize", "fp8-channel"}, []int{3}},
		{[]string{"llama-fp8", "--max-shard-size", "10kB", "--dequantize", "bf16", "--with-files"}, []int{3}},
		{[]string{testdata("../../dcp/testdata/distcp/mesh"), "--max-shard-size", "200B"}, []int{2}},
		{[]string{testdata("../../torch/testdata/checkpoint.pt"), "--key", "model.state_dict", "--max-shard-size", "50B"}, []int{2}},
		{[]string{"model", "src.safetensors", "--max-shard-size", "200B", "--without-meta"}, nil},
	} {
		plain := fmt.Sprint("plain", i)
		r := runs(t, append([]string{"cp", "-q"}, append(c.args, plain)...)...)
		if c.n == nil { // tensors that are in two sources
			require.Contains(t, fails(t, 3, append([]string{"cp", "-q", "--part", "1/2"}, append(c.args, plain)...)...), r.stderr)
			continue
		}
		require.Zero(t, r.code, r.stderr)
		if testing.Short() { // as in wine, where processes start slowly
			c.n = c.n[len(c.n)/2 : len(c.n)/2+1]
		}
		for _, n := range c.n {
			dst := fmt.Sprintf("parts%d-%d", i, n)
			complete := false
			for k := n; k > 0; k-- {
				require.Equal(t, complete, runs(t, "ls", dst).code == 0, "%d/%d", k, n)
				printed := succeeds(t, append([]string{"cp", "-q", "--json", "--part", fmt.Sprintf("%d/%d", k, n)}, append(c.args, dst)...)...)
				complete = strings.Contains(printed, `"complete":true`)
			}
			require.True(t, complete)
			require.Equal(t, tree(t, plain), withoutPlan(t, dst))
			for k := range n {
				require.Contains(t, succeeds(t, append([]string{"cp", "-q", "--json", "--part", fmt.Sprintf("%d/%d", k+1, n)}, append(c.args, dst)...)...), `"written":[]`)
			}
			require.Equal(t, tree(t, plain), withoutPlan(t, dst))
		}
	}
}

// TestPartsForce has several take away the plan of another job at once, whose headers and
// lengths are the same: none of its shards is taken for one of the new job.
func TestPartsForce(t *testing.T) {
	t.Chdir(t.TempDir())
	writePartsSource(t, "src.safetensors")
	part := func(k int) []string {
		return []string{"cp", "-q", "src.safetensors", "dst", "--max-shard-size", "400B", "--part", fmt.Sprintf("%d/3", k), "--force"}
	}
	succeeds(t, "cp", "-q", "src.safetensors", "plain", "--max-shard-size", "400B")
	succeeds(t, "cp", "-q", "plain", "dst", "--max-shard-size", "400B", "--part", "1/2") // the same shards of another SRC
	var all []*exec.Cmd
	for k := range 9 { // at once, each part three times
		all = append(all, exec.Command(program, part(k%3+1)...))
		require.NoError(t, all[k].Start())
	}
	for _, cmd := range all {
		if err := cmd.Wait(); runtime.GOOS != "windows" { // where a file that is being read cannot be replaced
			require.NoError(t, err)
		}
	}
	for k := 1; k <= 3; k++ {
		succeeds(t, part(k)...)
	}
	require.Equal(t, tree(t, "plain"), withoutPlan(t, "dst"))
}
