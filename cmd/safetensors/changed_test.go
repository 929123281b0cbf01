package main

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/stretchr/testify/require"
)

const hasChanged = "has changed since it was opened"

// writeStates writes two states of the same sources into the folders 0 and 1. Both have the same sizes,
// and differ in each tensor and in the metadata.
func writeStates(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFiles(t, ".") // has key.pem, for sign
	for i, state := range []string{"0", "1"} {
		require.NoError(t, os.MkdirAll(state+"/w", 0o777))
		file := func(name string, tensors ...string) {
			all := make(map[string]safetensors.Tensor)
			for _, tensor := range tensors {
				all[tensor] = floats(t, []int{1, 2}, float32(10*i+len(all)), 1)
			}
			require.NoError(t, safetensors.WriteFile(filepath.FromSlash(state+"/"+name), all, map[string]string{"state": state}))
		}
		file("a.safetensors", "x", "y")
		file("b.safetensors", "z")
		file("same.safetensors", "x", "y")
		file("w/one.safetensors", "x", "y")
		succeeds(t, "cp", state+"/a.safetensors", state+"/b.safetensors", state+"/shards", "--max-shard-size", "8B")
	}
}

// become overwrites the sources in the working directory with those of a state, as a program does that
// changes files in place.
func become(t *testing.T, state int) {
	from := os.DirFS(strconv.Itoa(state))
	require.NoError(t, fs.WalkDir(from, ".", func(name string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		if e.IsDir() {
			return os.MkdirAll(name, 0o777)
		}
		f := must(os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666))
		defer f.Close()
		size := must(f.Write(must(fs.ReadFile(from, name)))) // never shorter in between, so that concurrent reads do not fail
		require.NoError(t, f.Truncate(int64(size)))
		at := time.Unix(1_000_000_000+int64(state), 0)
		return os.Chtimes(name, at, at)
	}))
}

// outcome returns the output of a run, and the files in w, without the part of a signature that is random.
func outcome(t *testing.T, got result) map[string]string {
	all := tree(t, "w")
	if text, ok := all["out.sig"]; ok {
		var bundle struct {
			DSSEEnvelope struct{ Payload string }
		}
		require.NoError(t, json.Unmarshal([]byte(text), &bundle))
		require.NotEmpty(t, bundle.DSSEEnvelope.Payload)
		all["out.sig"] = bundle.DSSEEnvelope.Payload
	}
	all["stdout"] = got.stdout
	return all
}

// TestEveryChange changes all sources at each operation of reading in turn: a verb then fails and leaves
// the destination alone, unless its result is that of one of the two states.
func TestEveryChange(t *testing.T) {
	writeStates(t)
	for _, line := range []string{
		"cp a.safetensors w/out.safetensors", "cp a.safetensors w/out", "cp a.safetensors w/out/", "cp a.safetensors -",
		"cp a.safetensors b.safetensors w/out.npz", "cp a.safetensors b.safetensors w/out.safetensors", "cp a.safetensors w/out --ranks 2",
		"cp a.safetensors b.safetensors w/out --max-shard-size 8B", "cp shards w/out.safetensors", "cp shards w/out", "cp shards w/out.npz",
		"merge a.safetensors same.safetensors w/out.safetensors", "merge same.safetensors a.safetensors w/out",
		"hash a.safetensors", "hash shards", "hash a.safetensors --tensors", "hash a.safetensors --data", "sign shards --key key.pem --out w/out.sig",
		"meta w/one.safetensors a=b --in-place", "cp w/one.safetensors w/one.safetensors --force --meta a=b",
	} {
		if runtime.GOOS == "windows" && strings.Contains(line, "w/one") {
			continue // a file that is open cannot be replaced there
		}
		args := strings.Fields(line)
		renewed := func(state int) {
			require.NoError(t, os.RemoveAll("w"))
			become(t, state)
		}
		var pure []map[string]string
		for state := range 2 {
			renewed(state)
			got := runsThrough(new(readFault), args)
			require.Zero(t, got.code, "%s: %s", line, got.stderr)
			pure = append(pure, outcome(t, got))
			if !strings.Contains(line, "w/one") {
				delete(pure[state], "one.safetensors")
			}
		}
		refused := 0
		for at := int64(1); ; at++ {
			renewed(0)
			f := &readFault{at: at, interrupt: func() { become(t, 1) }}
			got := runsThrough(f, args)
			if f.failed.Load() == nil {
				break
			}
			now := outcome(t, got)
			if !strings.Contains(line, "w/one") { // then it may have changed after all is read
				delete(now, "one.safetensors")
			}
			if got.code == 0 {
				require.Contains(t, pure, now, "%s: operation %d, %s", line, at, *f.failed.Load())
				continue
			}
			refused++
			require.Equal(t, exitFailed, got.code, line)
			require.Contains(t, got.stderr, hasChanged, "%s: operation %d, %s", line, at, *f.failed.Load())
			if args[len(args)-1] != "-" {
				require.Empty(t, got.stdout, line)
			}
			left := tree(t, "w")
			if line == "cp shards w/out" { // complete shards stay for the next try
				require.NotContains(t, left, "out/model.safetensors.index.json")
				maps.DeleteFunc(left, func(name, _ string) bool { return strings.HasPrefix(name, "out/") })
			}
			require.Equal(t, tree(t, "1/w"), left, "%s: operation %d, %s", line, at, *f.failed.Load())
		}
		require.Positive(t, refused, line)
	}
}

// TestEveryTruncation truncates a file at each operation of reading: its sum is that of the whole file, or an error.
func TestEveryTruncation(t *testing.T) {
	writeStates(t)
	for _, line := range []string{"hash a.safetensors", "hash a.safetensors --data", "hash a.safetensors --tensors", "sign a.safetensors --key key.pem --out w/out.sig"} {
		refused := 0
		for at := int64(1); ; at++ {
			require.NoError(t, os.RemoveAll("w"))
			become(t, 0)
			f := &readFault{at: at, interrupt: func() { require.NoError(t, os.Truncate("a.safetensors", 50)) }}
			got := runsThrough(f, strings.Fields(line))
			if f.failed.Load() == nil {
				require.Zero(t, got.code, got.stderr)
				break
			}
			if strings.HasPrefix(line, "sign") && got.code == 0 { // truncated before it was listed
				require.Zero(t, runs(t, "verify", "a.safetensors", "--signature", "w/out.sig", "--public-key", "key.pub").code)
				continue
			}
			require.Equal(t, exitFailed, got.code, "%s: operation %d, %s", line, at, *f.failed.Load())
			require.Empty(t, got.stdout)
			require.NoFileExists(t, "w/out.sig")
			if strings.Contains(got.stderr, hasChanged) {
				refused++
			}
		}
		require.Positive(t, refused, line)
	}
}

// TestInPlaceMeanwhile removes the file, or runs meta --in-place of the same file, at each operation of meta
// --in-place: the file stays removed, and no update is lost.
func TestInPlaceMeanwhile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be replaced there")
	}
	writeStates(t)
	args := strings.Fields("meta w/one.safetensors mine=1 --in-place")
	for _, removed := range []bool{true, false} {
		refused := 0
		for at := int64(1); ; at++ {
			become(t, 0)
			f := &readFault{at: at, interrupt: func() {
				if removed {
					require.NoError(t, os.Remove("w/one.safetensors"))
				} else {
					succeeds(t, "meta", must(filepath.Abs("w/one.safetensors")), "other=1", "--in-place") // another name, because osfile.Guard is of the process
				}
			}}
			got := runsThrough(f, args)
			if f.failed.Load() == nil {
				break
			}
			if removed {
				require.Equal(t, exitFailed, got.code)
				require.NoFileExists(t, "w/one.safetensors", *f.failed.Load())
			} else {
				metadata := succeeds(t, "meta", "w/one.safetensors")
				require.Contains(t, metadata, "other", *f.failed.Load())
				require.Equal(t, got.code == 0, strings.Contains(metadata, "mine"), *f.failed.Load())
			}
			if got.code != 0 && strings.Contains(got.stderr, hasChanged) {
				refused++
			}
			require.Empty(t, must(filepath.Glob("w/.safetensors-*")))
		}
		require.Positive(t, refused)
	}
}

// TestInPlaceAlone: while meta --in-place checks and replaces a file, nobody else can lock its folder.
func TestInPlaceAlone(t *testing.T) {
	dir := t.TempDir()
	check, unlock := unchangedAlone(new(source.Checkpoint), dir)
	require.NoError(t, check())
	_, err := dest.Folder(dir).Lock(false)
	require.ErrorContains(t, err, "another process is writing")
	unlock()
	must(dest.Folder(dir).Lock(false))()
}

// TestCreatedMeanwhile: a file that another process creates while cp runs is not replaced without --force.
func TestCreatedMeanwhile(t *testing.T) {
	writeStates(t)
	for _, dst := range []string{"w/out.safetensors", "w/out.npz", "w/out/"} {
		name := dst
		if strings.HasSuffix(dst, "/") {
			name += "a.safetensors"
		}
		for at := int64(1); ; at++ {
			require.NoError(t, os.RemoveAll("w"))
			require.NoError(t, os.MkdirAll("w/out", 0o777))
			become(t, 0)
			f := &readFault{at: at, interrupt: func() { write(t, name, "of another process") }}
			got := runsThrough(f, []string{"cp", "a.safetensors", dst})
			if f.failed.Load() == nil {
				require.Greater(t, at, int64(1))
				break
			}
			require.Equal(t, exitFailed, got.code, *f.failed.Load())
			require.Contains(t, got.stderr, "exists; --force replaces it")
			require.Equal(t, "of another process", string(must(os.ReadFile(name))))
		}
	}
}

// TestChangedUpload: nothing appears in a bucket if the source changes while it is uploaded.
func TestChangedUpload(t *testing.T) {
	_ = startStore(t, fakeS3())
	writeStates(t)
	for _, line := range []string{"cp a.safetensors s3://models/x.safetensors", "cp a.safetensors b.safetensors s3://models/x"} {
		refused := 0
		for at := int64(1); ; at++ {
			become(t, 0)
			f := &readFault{at: at, interrupt: func() { become(t, 1) }}
			got := runsThrough(f, append(strings.Fields(line), "--force"))
			if f.failed.Load() == nil {
				break
			}
			if got.code != 0 && strings.Contains(got.stderr, hasChanged) {
				refused++
			}
		}
		require.Positive(t, refused, line)
	}
}

// TestInPlaceKeepsAlignment: a file or a folder of shards whose data start at a multiple of a large power of two is
// aligned in the same way after its metadata has changed.
func TestInPlaceKeepsAlignment(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is mapped cannot be replaced there")
	}
	t.Chdir(t.TempDir())
	writeShards(t, "plain")
	succeeds(t, "cp", "plain", "aligned.safetensors", "--align", "4096")
	succeeds(t, "cp", "plain", "aligned", "--align", "4096", "--max-shard-size", "40B")
	for _, name := range []string{"aligned.safetensors", "aligned"} {
		succeeds(t, "meta", name, "key=value", "--in-place")
	}
	files := append(must(filepath.Glob("aligned/*.safetensors")), "aligned.safetensors")
	require.Greater(t, len(files), 2)
	for _, name := range files {
		f := must(safetensors.Open(name))
		require.Zero(t, f.Header().DataStart%4096, name)
		require.Equal(t, "value", f.Metadata()["key"], name)
		require.NoError(t, f.Close())
	}
	require.Equal(t, "equal\n", succeeds(t, "diff", "plain", "aligned"))
}
