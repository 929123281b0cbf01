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
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
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

// TestCopyFolder: what testdata/folders.txt requires of folders holds of those in buckets, too.
func TestCopyFolder(t *testing.T) {
	s := clouds(t)["s3"]
	want := writeFolder(t, "repo", 0)
	for _, name := range []string{".git/config", "1_Pooling/.hidden", "onnx/model.onnx", "other/x.safetensors", "1_Pooling/config.json", "onnx/deep/x.json"} {
		write(t, "repo/"+name, name)
		if strings.HasSuffix(name, ".json") {
			want[name] = name
		}
	}
	succeeds(t, "cp", "repo", s.at("up"), "--with-files")
	require.Equal(t, want, s.folder("up"))
	require.Len(t, s.objects(), len(want))
	succeeds(t, "cp", s.at("up"), "copy", "--with-files")
	require.Equal(t, want, tree(t, "copy"))

	write(t, "deep/model.safetensors.index.json", `{"weight_map":{"x":"a/x.safetensors"}}`)
	write(t, "deep/a/x.safetensors", want["model-00001-of-00003.safetensors"])
	succeeds(t, "cp", "repo/model-00002-of-00003.safetensors", s.at("there/a/x.safetensors"))
	for _, flag := range []string{"--quiet", "--meta=a=b"} {
		require.Contains(t, fails(t, 1, "cp", "deep", s.at("there"), flag), "x.safetensors exists; --force replaces it")
	}
	for dst, flag := range map[string]string{s.at("there"): "--force", s.at("new"): "--quiet"} {
		succeeds(t, "cp", "deep", dst, flag)
		require.Equal(t, "equal\n", succeeds(t, "diff", "deep", dst, "--meta"))
	}
}

// TestContinueUpload: the shards of an upload that ended early are not copied again.
func TestContinueUpload(t *testing.T) {
	s := startStore(t, fakeS3())
	want := writeFolder(t, "repo", 0)
	s.setFault(forbids(func(r *http.Request) bool {
		return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/model-00002-of-00003.safetensors")
	}))
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
	s := startStore(t, fakeS3())
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
					here := c.under(strings.Trim(must(url.Parse(dst)).Path, "/") + "/")
					require.Len(t, here, 4, "%s: %q", where, keysOf(here))
				}
			}
		}
	}
	// On a disk, of Windows, too.
	succeeds(t, "cp", "old", "dst")
	succeeds(t, "cp", "new", "dst", "--force")
	require.Equal(t, "equal\n", succeeds(t, "diff", "new", "dst"))
}

// TestForceLeavesNothingBehind: cp --force removes all shards of WriteShards, whose names have a
// random number, and keeps files of other programs.
func TestForceLeavesNothingBehind(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFolder(t, "new", 2)
	const other = "model.2-00001-of-00002.safetensors"
	tensors := map[string]safetensors.Tensor{"x": floats(t, []int{1}, 1), "y": floats(t, []int{1}, 2)}
	want := append(list(t, "new"), other)
	slices.Sort(want)
	for range 30 { // one number in ten had fewer than nine digits
		for range 2 {
			require.NoError(t, safetensors.WriteShards("dst", tensors, nil, 1))
		}
		require.NoError(t, os.WriteFile("dst/"+other, nil, 0o666))
		succeeds(t, "cp", "-q", "--force", "new", "dst")
		require.Equal(t, want, list(t, "dst"))
	}
}

func keysOf(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// TestWithFilesRequests: a small file is one request for its attributes, one for its start and one
// for the rest, and nothing more is asked about the weights than without --with-files.
func TestWithFilesRequests(t *testing.T) {
	s := startStore(t, fakeS3())
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
	require.Equal(t, 1, with["HEAD /models/src/tokenizer.json"])
	require.Equal(t, 2, with["GET /models/src/tokenizer.json"])
	for request, n := range without {
		if strings.HasSuffix(request, ".safetensors") {
			require.Equal(t, n, with[request], request)
		}
	}
}

// TestNearest: a name has the longest common prefix with the name before it or the one after it in
// the order of names.
func TestNearest(t *testing.T) {
	sorted := []string{"a.b", "a.bias", "a.c.x", "a.c.z"}
	for name, want := range map[string]string{
		"": "a.b", "a.b": "a.b", "a.bi": "a.bias", "a.c": "a.c.x", "a.c.y": "a.c.x", "a.c.zz": "a.c.z", "a.c.z": "a.c.z", "b": "a.c.z",
	} {
		require.Equal(t, want, nearest(name, sorted), name)
	}
	require.Empty(t, nearest("a", nil))
}

// TestRecordOf: files that may change without a sign have no record.
func TestRecordOf(t *testing.T) {
	file := storage.File{Name: "x", Size: 3, Tag: "t"}
	record := string(recordOf([]storage.File{file, {Name: "y", Tag: "u"}}))
	require.Equal(t, `[{"name":"x","size":3,"tag":"t"},{"name":"y","size":0,"tag":"u"}]`, record)
	require.Nil(t, recordOf([]storage.File{file, {Name: "y", Size: 3}}))
	require.Nil(t, recordOf([]storage.File{file, {Name: "y", Size: -1, Tag: "t"}}))
}
