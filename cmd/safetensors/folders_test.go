package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/stretchr/testify/require"
)

// writeFolder writes a model in three shards whose bytes this package would not write: with other
// metadata in each, and notes in the index. The numbers begin with first.
func writeFolder(t *testing.T, dir string, first float32) map[string]string {
	t.Helper()
	writeShards(t, dir)
	for i, name := range []string{"x", "y", "z"} {
		values := make([]float32, 30_000) // more than the first request of a server
		values[0], values[7] = first, float32(i)
		file := filepath.Join(dir, fmt.Sprintf("model-%05d-of-00003.safetensors", i+1))
		require.NoError(t, safetensors.WriteFile(file, map[string]safetensors.Tensor{name: floats(t, []int{len(values)}, values...)}, map[string]string{"shard": name}))
	}
	index := filepath.Join(dir, "model.safetensors.index.json")
	text := strings.Replace(string(must(os.ReadFile(index))), `"total_size"`, `"note": "kept",  "total_size"`, 1)
	require.NoError(t, os.WriteFile(index, []byte(text), 0o666))
	return tree(t, dir)
}

// TestCopyFolder: shards stay shards, byte for byte, wherever they come from and go to.
func TestCopyFolder(t *testing.T) {
	s := clouds(t)["s3"]
	want := writeFolder(t, "repo", 0)
	for i, src := range []string{"repo", "repo/model.safetensors.index.json", s.at("up")} {
		dst := "copy" + string(rune('0'+i))
		succeeds(t, "cp", src, dst)
		require.Equal(t, want, tree(t, dst), src)
		if src == "repo" {
			succeeds(t, "cp", src, s.at("up"))
			for name, text := range want {
				require.Equal(t, text, s.objects()["up/"+name], name)
			}
			require.Len(t, s.objects(), len(want))
		}
	}
	require.Contains(t, fails(t, 1, "cp", "repo", "copy0"), "exists; --force replaces it")

	// A folder may have no index, or its only file another name, or shards in folders.
	require.NoError(t, os.Remove("repo/model.safetensors.index.json"))
	delete(want, "model.safetensors.index.json")
	succeeds(t, "cp", "repo", "set")
	require.Equal(t, want, tree(t, "set"))
	require.NoError(t, os.Mkdir("one", 0o777))
	require.NoError(t, os.Rename("repo/model-00001-of-00003.safetensors", "one/adapter_model.safetensors"))
	succeeds(t, "cp", "one", "only")
	require.Equal(t, map[string]string{"adapter_model.safetensors": want["model-00001-of-00003.safetensors"]}, tree(t, "only"))
	mkdir(t, "deep/a")
	require.NoError(t, os.Rename("one/adapter_model.safetensors", "deep/a/x.safetensors"))
	write(t, "deep/model.safetensors.index.json", `{"weight_map":{"x":"a/x.safetensors"}}`)
	for _, dst := range []string{"deeper", s.at("deeper")} {
		succeeds(t, "cp", "deep", dst)
		require.Equal(t, "equal\n", succeeds(t, "diff", "deep", dst, "--meta"))
	}
	require.Equal(t, []string{"a", "model.safetensors.index.json"}, list(t, "deeper"))
}

// TestCopyFolderFound: what is copied is what the new folder is opened as, whatever the names are
// that only the name of an index leads to.
func TestCopyFolderFound(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFolder(t, "repo", 0)
	require.NoError(t, os.Rename("repo/model-00002-of-00003.safetensors", "repo/model.safetensors"))
	index := strings.Replace(string(must(os.ReadFile("repo/model.safetensors.index.json"))), "model-00002-of-00003", "model", 1)
	for i, name := range []string{"model.safetensors.index.json", "other.index.json"} {
		write(t, "repo/"+name, index)
		for j, flag := range []string{"--quiet", "--meta=a=b"} {
			dst := fmt.Sprintf("copy%d%d", i, j)
			succeeds(t, "cp", "repo/"+name, dst, flag)
			require.Equal(t, "equal\n", succeeds(t, "diff", "repo/"+name, dst), dst)
		}
	}
}

// TestCopyFolderAmong: what would stand next to other weights, of which none is the model, is
// refused before anything is written.
func TestCopyFolderAmong(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFolder(t, "repo", 0)
	require.NoError(t, os.Remove("repo/model.safetensors.index.json"))
	for dst, names := range map[string][]string{
		"half":  {"model-00001-of-00002.safetensors"},
		"whole": {"model.safetensors", "adapter.safetensors"},
	} {
		mkdir(t, dst)
		for _, name := range names {
			text := must(os.ReadFile("repo/model-00001-of-00003.safetensors"))
			require.NoError(t, os.WriteFile(filepath.Join(dst, name), text, 0o666))
		}
		want := tree(t, dst)
		require.Contains(t, fails(t, 1, "cp", "--force", "repo", dst), " stays, and among several files")
		require.Equal(t, want, tree(t, dst))
		require.NoError(t, os.Remove(filepath.Join(dst, list(t, dst)[0])))
		succeeds(t, "cp", "--force", "repo", dst)
		require.Equal(t, "equal\n", succeeds(t, "diff", "repo", dst))
	}
}

// TestCopyFolderDeep: shards in folders replace nothing either that --force does not replace.
func TestCopyFolderDeep(t *testing.T) {
	s := clouds(t)["s3"]
	mkdir(t, "repo/a")
	x := map[string]safetensors.Tensor{"x": floats(t, []int{1}, 1)}
	require.NoError(t, safetensors.WriteFile("repo/a/x.safetensors", x, nil))
	require.NoError(t, safetensors.WriteFile("repo/y.safetensors", map[string]safetensors.Tensor{"y": floats(t, []int{1}, 2)}, nil))
	write(t, "repo/model.safetensors.index.json", `{"weight_map":{"x":"a/x.safetensors","y":"y.safetensors"}}`)
	mkdir(t, "there/a")
	write(t, "there/a/x.safetensors", "of somebody else")
	write(t, "there/a/z.safetensors", "another one")
	succeeds(t, "cp", "repo/y.safetensors", s.at("there/a/x.safetensors"))
	for _, dst := range []string{"there", s.at("there")} {
		require.Contains(t, fails(t, 1, "cp", "repo", dst), "x.safetensors exists; --force replaces it")
		require.Contains(t, fails(t, 1, "cp", "repo", dst, "--meta=a=b"), "x.safetensors exists; --force replaces it")
	}
	require.Equal(t, map[string]string{"x.safetensors": "of somebody else", "z.safetensors": "another one"}, tree(t, "there/a"))
	for _, dst := range []string{"there", s.at("there")} {
		succeeds(t, "cp", "repo", dst, "--force")
		require.Equal(t, "equal\n", succeeds(t, "diff", "repo", dst))
	}
	write(t, "repo/model.safetensors.index.json", `{"weight_map":{"x":"a/x.safetensors"}}`)
	succeeds(t, "cp", "repo", "there", "--force")
	require.Equal(t, []string{"a", "model.safetensors.index.json"}, list(t, "there"))
	require.Equal(t, "another one", tree(t, "there/a")["z.safetensors"])
}

// TestContinueFolder: the shards of a copy that ended early are not copied again, unless they are
// no longer those of the source.
func TestContinueFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	want := writeFolder(t, "repo", 0)
	const first = "copy/model-00001-of-00003.safetensors"
	write(t, first, want["model-00001-of-00003.safetensors"])
	before := must(os.Stat(first))
	succeeds(t, "cp", "repo", "copy")
	require.Equal(t, want, tree(t, "copy"))
	require.True(t, os.SameFile(before, must(os.Stat(first))))

	// What another copy has begun stays, unless --force takes it away.
	writeFolder(t, "other", 7)
	require.NoError(t, os.Remove("copy/model.safetensors.index.json"))
	require.NoError(t, os.Remove("copy/model-00002-of-00003.safetensors"))
	early := tree(t, "copy")
	for _, src := range []string{"other", "repo/model-00001-of-00003.safetensors"} {
		require.Contains(t, fails(t, 1, "cp", src, "copy"), "exists; --force replaces it")
	}
	require.Contains(t, fails(t, 1, "cp", "repo", "copy", "--dtype", "f16"), "exists; --force replaces it")
	require.Equal(t, early, tree(t, "copy"))
	succeeds(t, "cp", "other", "copy", "--force")
	require.Equal(t, tree(t, "other"), tree(t, "copy"))
	succeeds(t, "cp", "repo", "repo", "--force")
	require.Equal(t, want, tree(t, "repo"), "a folder may be copied to itself")
}

// TestContinueUpload: nor are those that are in a bucket, whose sums would be downloads.
func TestContinueUpload(t *testing.T) {
	s := startStore(t, gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	want := writeFolder(t, "repo", 0)
	s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/model-00002-of-00003.safetensors")
		if refused {
			w.WriteHeader(http.StatusForbidden)
		}
		return refused
	})
	fails(t, 1, "cp", "repo", "s3://models/repo")
	s.setFault(nil)
	s.requests()
	succeeds(t, "cp", "repo", "s3://models/repo")
	log := s.requests()
	require.NotContains(t, log, "PUT /models/repo/model-00001-of-00003.safetensors")
	require.Contains(t, log, "PUT /models/repo/model-00002-of-00003.safetensors")
	succeeds(t, "cp", "s3://models/repo", "copy")
	require.Equal(t, want, tree(t, "copy"))
	require.Len(t, s.objects(t), len(want), "and the record is gone")
}

// TestFolderThatChanges: a shard that is replaced after it was opened is an error, and the index
// does not appear.
func TestFolderThatChanges(t *testing.T) {
	s := startStore(t, gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	want := writeFolder(t, "repo", 0)
	writeFolder(t, "other", 1)
	succeeds(t, "cp", "repo", "s3://models/repo")
	other := must(os.ReadFile("other/model-00002-of-00003.safetensors"))
	var opened atomic.Bool
	s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		changed := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/repo/model-00002-of-00003.safetensors") && opened.Swap(true)
		if changed {
			w.Header().Set("ETag", `"another"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(other))
		}
		return changed
	})
	require.Contains(t, fails(t, 1, "cp", "s3://models/repo", "copy"), "has changed since it was opened")
	require.Equal(t, []string{".safetensors-copy.json", "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"}, list(t, "copy"))
	first := must(os.Stat("copy/model-00001-of-00003.safetensors"))
	s.setFault(nil)
	succeeds(t, "cp", "s3://models/repo", "copy")
	require.Equal(t, want, tree(t, "copy"))
	require.True(t, os.SameFile(first, must(os.Stat("copy/model-00001-of-00003.safetensors"))), "it is not copied again")
}

// TestFilesOfFolders: files in folders next to the weights come along, but not what is hidden or a
// cache.
func TestFilesOfFolders(t *testing.T) {
	all := clouds(t)["s3"]
	want := writeFolder(t, "repo", 0)
	for _, name := range []string{".git/config", ".cache/x", "1_Pooling/.hidden", "__pycache__/x.py", "onnx/model.onnx", "other/x.safetensors"} {
		write(t, "repo/"+name, name)
	}
	for _, name := range []string{"1_Pooling/config.json", "modules.json", "onnx/deep/x.json"} {
		write(t, "repo/"+name, name)
		want[name] = name
	}
	succeeds(t, "cp", "repo", all.at("up"), "--with-files")
	for _, src := range []string{"repo", all.at("up")} {
		require.NoError(t, os.RemoveAll("copy"))
		succeeds(t, "cp", src, "copy", "--with-files")
		require.Equal(t, want, tree(t, "copy"), src)
	}
}

// TestConvertFolder: what is computed keeps the number of the shards and their names, unless some
// have no tensor left.
func TestConvertFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFolder(t, "model", 0)
	names := []string{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "model.safetensors.index.json"}
	for i, flags := range [][]string{{"--dtype", "bf16"}, {"--rename", "s/^/a./"}, {"--meta", "a=b"}} {
		dst := fmt.Sprint("copy", i)
		succeeds(t, append([]string{"cp", "model", dst}, flags...)...)
		require.Equal(t, names, list(t, dst), flags)
		merged := fmt.Sprintf("merged%d.safetensors", i)
		succeeds(t, append([]string{"cp", "model", merged}, flags...)...)
		require.Equal(t, "equal\n", succeeds(t, "diff", dst, merged, "--meta"), flags)
		f := must(safetensors.Open(filepath.Join(dst, names[1])))
		for name := range f.Tensors() {
			require.Contains(t, name, "y", flags)
		}
		require.NoError(t, f.Close())
	}
	succeeds(t, "cp", "model", "two", "--except", "y")
	require.Equal(t, []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}, list(t, "two"))
	succeeds(t, "cp", "model", "one", "--only", "y")
	require.Equal(t, []string{"model.safetensors"}, list(t, "one"))
}

// TestQuantiseFolder: what a quantised tensor is made of stays together, and where it was.
func TestQuantiseFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	tensors := map[string]safetensors.Tensor{"a.weight": floats(t, []int{2, 16}, make([]float32, 32)...), "b.weight": floats(t, []int{2, 16}, make([]float32, 32)...)}
	require.NoError(t, safetensors.WriteShards("model", tensors, nil, 128))
	write(t, "model/config.json", "{}")
	succeeds(t, "cp", "model", "fp8", "--quantize", "fp8-channel")
	succeeds(t, "cp", "fp8", "again", "--dequantize", "f32", "--rename", "s/^/m./")
	require.Equal(t, list(t, "fp8"), list(t, "again"))
	for i, name := range []string{"a", "b"} {
		shard := fmt.Sprintf("model-%05d-of-00002.safetensors", i+1)
		f := must(safetensors.Open("fp8/" + shard))
		for part := range f.Tensors() {
			require.Contains(t, part, name+".weight")
		}
		require.Greater(t, f.Len(), 1)
		require.NoError(t, f.Close())
		f = must(safetensors.Open("again/" + shard))
		require.Equal(t, 1, f.Len())
		must(f.Tensor("m." + name + ".weight"))
		require.NoError(t, f.Close())
	}
}

// TestForceFolder: the earlier checkpoint is the one that is opened until the new one is complete,
// whichever request fails. Another run goes on, and leaves nothing over. SAFETENSORS_FAULTS=1 tries
// that with all stores.
func TestForceFolder(t *testing.T) {
	all := clouds(t)
	writeFolder(t, "old", 1)
	writeFolder(t, "new", 2)
	for _, scene := range []struct{ name, old string }{
		{"shards of the same names", "old"}, {"one file", "old/model-00001-of-00003.safetensors"},
	} {
		for name, c := range all {
			if os.Getenv("SAFETENSORS_FAULTS") != "1" && (testing.Short() || name != "gs" || scene.old != "old") {
				continue
			}
			dst, count := "", 0
			replace := func(at int, before bool) (r result) {
				dst = c.at(fmt.Sprint(filepath.Base(scene.old), at, before))
				succeeds(t, "cp", scene.old, dst)
				r, count = c.faults.run(t, at, before, "cp", "-q", "--force", "new", dst)
				return r
			}
			r := replace(0, false)
			require.Zero(t, r.code, r.stderr)
			for _, before := range []bool{true, false} {
				for at, end := 1, count; at <= end; at++ {
					r := replace(at, before)
					where := fmt.Sprintf("%s, %s, request %d of %d, %v: %s", scene.name, name, at, end, before, r.stderr)
					if runs(t, "diff", "new", dst).code != 0 {
						require.NotZero(t, r.code, where)
						require.Equal(t, "equal\n", succeeds(t, "diff", scene.old, dst), where)
					}
					succeeds(t, "cp", "-q", "--force", "new", dst)
					require.Equal(t, "equal\n", succeeds(t, "diff", "new", dst), where)
					u := must(url.Parse(dst))
					here := c.under(strings.Trim(u.Path, "/") + "/")
					require.Len(t, here, 4, "%s: %q", where, keysOf(here))
				}
			}
		}
	}
	// On a disk, too.
	succeeds(t, "cp", "old", "dst")
	succeeds(t, "cp", "new", "dst", "--force")
	require.Equal(t, "equal\n", succeeds(t, "diff", "new", "dst"))
	require.Len(t, list(t, "dst"), 4)
	require.Regexp(t, `^model\.\d+-00001-of-00003\.safetensors$`, list(t, "dst")[0])
	succeeds(t, "cp", "new", "dst", "--force")
	require.Equal(t, tree(t, "new"), tree(t, "dst"), "their names are free")
}

func keysOf(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// TestWithFilesRequests: a small file is one request for its attributes and one for its
// content, and nothing more is asked about the weights than without --with-files.
func TestWithFilesRequests(t *testing.T) {
	s := startStore(t, gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	writeShards(t, "src")
	text := strings.Repeat("x", 300_000)
	require.NoError(t, os.WriteFile("src/tokenizer.json", []byte(text), 0o666))
	succeeds(t, "cp", "-q", "src", "s3://models/src", "--max-shard-size", "32B", "--with-files")
	count := func(args ...string) map[string]int {
		s.requests()
		succeeds(t, args...)
		requests := make(map[string]int)
		for _, request := range s.requests() {
			requests[request]++
		}
		return requests
	}
	without := count("cp", "-q", "s3://models/src", "without")
	with := count("cp", "-q", "s3://models/src", "with", "--with-files")
	require.Equal(t, text, tree(t, "with")["tokenizer.json"])
	require.Equal(t, 1, with["GET /models/src/tokenizer.json"])
	for request, n := range without {
		if strings.HasSuffix(request, ".safetensors") {
			require.Equal(t, n, with[request], request)
		}
	}
}
