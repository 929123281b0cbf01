package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestWriteShards checks the names of shards, the index and the order of tensors.
func TestWriteShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "checkpoint")
	tensors := checkpointOf(7)
	require.NoError(t, WriteShards(dir, tensors, map[string]string{"format": "pt"}, 130))
	require.Equal(t, []string{
		"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
		"model.safetensors.index.json",
	}, listDir(dir))
	index := must(os.ReadFile(filepath.Join(dir, "model.safetensors.index.json")))
	require.Equal(t, `{
  "metadata": {
    "total_parameters": 112,
    "total_size": 448
  },
  "weight_map": {
    "t00": "model-00001-of-00004.safetensors",
    "t01": "model-00001-of-00004.safetensors",
    "t02": "model-00002-of-00004.safetensors",
    "t03": "model-00002-of-00004.safetensors",
    "t04": "model-00003-of-00004.safetensors",
    "t05": "model-00003-of-00004.safetensors",
    "t06": "model-00004-of-00004.safetensors"
  }
}
`, string(index))
	requireCheckpoint(t, dir, tensors)
	requireCheckpoint(t, filepath.Join(dir, "model.safetensors.index.json"), tensors)
	f := must(Open(dir))
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	require.Equal(t, map[DType]int64{U32: 7 * 16}, f.ParameterCount())
	names := namesOf(f)
	require.Equal(t, slices.Sorted(maps.Keys(tensors)), names)
	require.NoError(t, f.Close()) // Windows removes no shard that is open

	require.NoError(t, os.WriteFile(filepath.Join(dir, "model-final.safetensors"), nil, 0o666))
	require.NoError(t, WriteShards(dir, tensors, nil, 1<<40))
	require.Equal(t, []string{"model-final.safetensors", "model.safetensors"}, listDir(dir), "other files stay")
	requireCheckpoint(t, dir, tensors)
	require.NoError(t, WriteShards(dir, checkpointOf(3), nil, 1))
	require.Len(t, listDir(dir), 5)
	requireCheckpoint(t, dir, checkpointOf(3))
	require.NoError(t, WriteShards(dir, nil, nil, 1))
	requireCheckpoint(t, dir, nil)
}

// TestWriteShardsKeepsNeighbours: a save removes its own shards of earlier saves, and no files
// whose names are merely like those: versions of other programs, variants, shorter and longer numbers.
func TestWriteShardsKeepsNeighbours(t *testing.T) {
	dir := t.TempDir()
	neighbours := []string{
		"model-00001-of-00002.fp16.safetensors", "model.12345678-00001-of-00002.safetensors", "model.1234567890-00001-of-00002.safetensors",
		"model.2-00001-of-00002.safetensors", "model.2.123456789-00001-of-00002.safetensors", "model.fp16-00001-of-00002.safetensors",
		"model.fp16.123456789-00001-of-00002.safetensors", "model2-00001-of-00002.safetensors", "other.123456789-00001-of-00002.safetensors",
	}
	own := []string{"model-00001-of-00002.safetensors", "model.123456789-00001-of-00002.safetensors"}
	for _, name := range slices.Concat(neighbours, own) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	for range 20 { // the number is random
		require.NoError(t, WriteShards(dir, checkpointOf(3), nil, 1))
		names := listDir(dir)
		require.Subset(t, names, neighbours)
		require.Len(t, names, len(neighbours)+4)
		for _, name := range own {
			require.NotContains(t, names, name)
		}
	}
	require.NoError(t, WriteShards(dir, checkpointOf(3), nil, 0))
	require.Len(t, listDir(dir), len(neighbours)+1)
}

// TestSplit checks how tensors are assigned to shards.
func TestSplit(t *testing.T) {
	tensors := checkpointOf(4)
	tensors["t01big"] = counting(U32, 100)
	names := func(maxBytes int64) map[string][]string {
		shards := map[string][]string{}
		for shard, part := range Split(tensors, maxBytes) {
			shards[shard] = slices.Sorted(maps.Keys(part))
			for name, x := range part {
				require.Equal(t, tensors[name], x)
			}
		}
		return shards
	}
	require.Equal(t, map[string][]string{ // as huggingface_hub: a large tensor does not end the current shard
		"model-00001-of-00003.safetensors": {"t01big"},
		"model-00002-of-00003.safetensors": {"t00", "t01"},
		"model-00003-of-00003.safetensors": {"t02", "t03"},
	}, names(128))
	require.Equal(t, map[string][]string{"model.safetensors": {"t00", "t01", "t01big", "t02", "t03"}}, names(1<<40))
	for _, none := range []int64{0, -1, math.MinInt64} {
		require.Equal(t, names(1<<40), names(none), "no limit")
	}
	require.Len(t, names(1), 5, "every tensor is larger than the limit")
	require.Len(t, names(127), 5, "one each")
	require.Len(t, names(192), 3, "three fill a shard")
	delete(tensors, "t01big")
	tensors["t00"], tensors["t02"] = counting(U32, 8), counting(U32, 8)
	require.Equal(t, map[string][]string{ // what fills a shard is not larger than one
		"model-00001-of-00004.safetensors": {"t00"},
		"model-00002-of-00004.safetensors": {"t01"},
		"model-00003-of-00004.safetensors": {"t02"},
		"model-00004-of-00004.safetensors": {"t03"},
	}, names(64))
	require.Equal(t, map[string]map[string]Tensor{"model.safetensors": {}}, Split(nil, 1))
	for _, none := range []int64{0, -1} {
		dir := t.TempDir()
		require.NoError(t, WriteShards(dir, tensors, nil, none))
		require.Equal(t, []string{"model.safetensors"}, listDir(dir))
	}
}

// TestWriteShardsFails checks that the folder is unchanged if WriteShards fails, also since
// the index would be longer than Open reads.
func TestWriteShardsFails(t *testing.T) {
	tensors, failing, long := checkpointOf(6), checkpointOf(2), make(map[string]Tensor)
	dir := t.TempDir()
	require.NoError(t, WriteShards(dir, tensors, nil, 128))
	before := listDir(dir)
	failing["t03"] = must(NewTensorAt(U32, []int{4, 4}, &failingReader{ReaderAt: endlessReader{}, left: 10}))
	for i := range 10 {
		long[strings.Repeat("n", 7<<20)+fmt.Sprint(i)] = tensors["t00"]
	}
	for want, tensors := range map[string]map[string]Tensor{
		errReader.Error():               failing,
		"not valid UTF-8":               {"\xff": tensors["t00"], "t01": tensors["t01"]},
		"exceeds the limit of 67108864": long,
	} {
		require.ErrorContains(t, WriteShards(dir, tensors, nil, 64), want)
		absent := filepath.Join(dir, "absent")
		if want == "not valid UTF-8" {
			require.ErrorContains(t, WriteShards(absent, tensors, nil, 64), want)
		}
		require.NoDirExists(t, absent, "nothing is written")
		require.Equal(t, before, listDir(dir))
	}
	requireCheckpoint(t, dir, tensors)
}

// TestSnapshot opens a checkpoint in a Hugging Face cache: a folder of symbolic
// links into another one.
func TestSnapshot(t *testing.T) {
	testplatform.NeedSymlinks(t)
	dir := t.TempDir()
	blobs, snapshot := filepath.Join(dir, "blobs"), filepath.Join(dir, "snapshots", "main")
	tensors := checkpointOf(4)
	require.NoError(t, WriteShards(blobs, tensors, nil, 64))
	require.NoError(t, os.MkdirAll(snapshot, 0o777))
	for i, name := range listDir(blobs) {
		blob := fmt.Sprintf("%064x", i)
		require.NoError(t, os.Rename(filepath.Join(blobs, name), filepath.Join(blobs, blob)))
		require.NoError(t, os.Symlink(filepath.Join("..", "..", "blobs", blob), filepath.Join(snapshot, name)))
	}
	requireCheckpoint(t, snapshot, tensors)
}

// TestBadIndex checks the error of an index that breaks a rule, or whose shards
// do. It is a FormatError unless a shard cannot be opened.
func TestBadIndex(t *testing.T) {
	const name = "model.safetensors.index.json"
	t.Chdir(t.TempDir())
	require.NoError(t, WriteFile("s.safetensors", checkpointOf(2), nil))
	require.NoError(t, os.WriteFile("broken.safetensors", []byte("version https://git-lfs"), 0o666))
	counted, opened := countOpen(os.DirFS("."))
	const shardExists = "a shard exists"
	for _, c := range []struct{ rule, index, want string }{
		{"an index is not empty", ``, name + ": the index is empty"},
		{"an index is not blank", "\n ", "expected an object, the index, found the end of the text (at byte 2)"},
		{"an index is not a page of a server", "\n<!DOCTYPE html>", name + ": this is an HTML page, not an index (at byte 0)"},
		{"an index is not a pointer of Git LFS", "version https://git-lfs.github.com/spec/v1", name + ": this is a Git LFS pointer (git lfs pull fetches the content), not an index (at byte 0)"},
		{"an index is not compressed", "\x1f\x8b\x08", name + ": this is gzip data, not an index (at byte 0)"},
		{"an index is JSON", "Entry not found", "expected an object, the index, found 'E' (at byte 0)"},
		{"an index is an object", `{"weight_map": 1}`, "expected an object, the weight_map, found '1' (at byte 15)"},
		{"an index has a weight_map", `{"metadata":{}}`, "the index has no weight_map"},
		{"weight_map is an object", `{"weight_map":[]}`, "expected an object, the weight_map, found '[' (at byte 14)"},
		{"weight_map is unique", `{"weight_map":{},"weight_map":{}}`, `duplicate weight_map (at byte 18)`},
		{"names of shards are strings", `{"weight_map":{"t00":1}}`, `tensor "t00": expected a string, the name of a shard, found '1'`},
		{"tensor names are unique", `{"weight_map":{"t00":"s.safetensors","t\u00300":"s.safetensors"}}`, `tensor "t00": duplicate tensor name in the index (at byte 38)`},
		{"a shard is local", `{"weight_map":{"t00":"../s.safetensors"}}`, `shard "../s.safetensors" is not`},
		{"a tensor is in its shard", `{"weight_map":{"t00":"s.safetensors","t09":"s.safetensors"}}`, `tensor "t09": the index places it in shard "s.safetensors", which lacks it`},
		{"all tensors are in their shard", `{"weight_map":{"t08":"s.safetensors","t09":"s.safetensors"}}`, `which lacks it, and 1 more`},
		{shardExists, `{"weight_map":{"t00":"absent.safetensors"}}`, `index.json: shard "absent.safetensors": `},
		{"a shard is well-formed", `{"weight_map":{"t00":"broken.safetensors"}}`, "Git LFS pointer"},
		{"only white space follows the object", `{"weight_map":{}} x`, "expected the end of the index, found 'x'"},
		{"an index is valid UTF-8", "{\"weight_map\":{\"\xff\":\"s.safetensors\"}}", "the index is not valid UTF-8 (at byte 16)"},
		{"metadata is unique", `{"metadata":{},"weight_map":{},"metadata":{}}`, "duplicate metadata (at byte 32)"},
		{"metadata keys are unique", `{"metadata":{"a":"x","b":1,"\u0061":"y"},"weight_map":{}}`, `duplicate metadata key "a" (at byte 28)`},
		{"nesting of metadata has at most 127 levels", `{"metadata":{"a":` + strings.Repeat("[", 1000), "objects and arrays are nested deeper than 127 levels"},
		{"nesting has at most 127 levels", `{"metadata":` + strings.Repeat("[", 1000), "objects and arrays are nested deeper than 127 levels"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			require.NoError(t, os.WriteFile(name, []byte(c.index), 0o666))
			for _, err := range []error{errorOf(Open(name)), errorOf(Load(name)), errorOf(OpenFS(counted, "."))} {
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, name)
				var broken *FormatError
				if c.rule == shardExists { // no bytes are at fault
					require.False(t, errors.As(err, &broken))
					require.ErrorIs(t, err, fs.ErrNotExist)
					require.Equal(t, 1, strings.Count(err.Error(), "absent.safetensors"), err)
				} else {
					require.ErrorAs(t, err, &broken)
				}
			}
			require.Zero(t, opened.Load(), "files are left open")
		})
	}
	index := `{"weight_map":{"t00":"absent.safetensors","t01":"broken.safetensors","t02":"s.safetensors"}}`
	require.NoError(t, os.WriteFile(name, []byte(index), 0o666))
	_, err := Open(name)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, shard := range []string{"absent.safetensors", "broken.safetensors", "t02"} {
		require.ErrorContains(t, err, shard, "all shards are reported")
	}
}

// TestIndexDecides checks that only tensors in the index are found, and in the
// shard that it names, even if shards hold others.
func TestIndexDecides(t *testing.T) {
	dir := t.TempDir()
	a, b := checkpointOf(3), checkpointOf(3)
	b["t01"] = counting(U32, 4, 4)
	require.NoError(t, WriteFile(filepath.Join(dir, "a.safetensors"), a, map[string]string{"of": "a"}))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "b"), 0o777))
	require.NoError(t, WriteFile(filepath.Join(dir, "b", "b.safetensors"), b, map[string]string{"of": "b"}))
	index := ` { "x" : null, "metadata" : {"total_size": 1e3, "x": [{}]}, "weight_map" : {"t01":"b/b.safetensors", "t00" : "a.safetensors"} } `
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.safetensors.index.json"), []byte(index), 0o666))
	requireCheckpoint(t, filepath.Join(dir, "m.safetensors.index.json"), map[string]Tensor{"t00": a["t00"], "t01": b["t01"]})
	f, err := Open(filepath.Join(dir, "m.safetensors.index.json"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"of": "a"}, f.Metadata())
	require.NoError(t, f.Close())
	f = must(OpenShards(strings.NewReader(`{"weight_map":{}}`), func(string) (*File, error) { return nil, fs.ErrNotExist }))
	require.Empty(t, maps.Collect(f.Tensors()))
	require.Nil(t, f.Metadata())
	require.NoError(t, f.Close())
	_, err = OpenShards(strings.NewReader(`{"weight_map":{"a":"s"}}`), func(string) (*File, error) { return nil, nil })
	require.ErrorContains(t, err, `shard "s": open returned no File`)
}

// TestNewIndex makes the index of shards that WriteShards did not write.
func TestNewIndex(t *testing.T) {
	dir := t.TempDir()
	tensors := checkpointOf(5)
	var files []*File
	for i, names := range [][]string{{"t00", "t03"}, {"t01", "t02", "t04"}} {
		part := make(map[string]Tensor)
		for _, name := range names {
			part[name] = tensors[name]
		}
		shard := filepath.Join(dir, fmt.Sprintf("model-%05d-of-00002.safetensors", i+1))
		require.NoError(t, WriteFile(shard, part, nil))
		f := must(Open(shard))
		defer f.Close()
		files = append(files, f)
	}
	index := must(NewIndex(must(Join(files...)).Headers()))
	require.JSONEq(t, `{"total_parameters": 80, "total_size": 320}`, string(index.Metadata))
	text := must(index.AppendBinary([]byte("kept")))
	require.Equal(t, "kept{", string(text[:5]))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), text[4:], 0o666))
	requireCheckpoint(t, dir, tensors)
	index = must(NewIndex(headers("s", "é\U0001f9e0\"\n\x7f")))
	text = must(index.AppendBinary(nil))
	require.Contains(t, string(text), `"\u00e9\ud83e\udde0\"\n\u007f": "s"`, "ASCII only")
	index = must(NewIndex(maps.All(map[string]*Header{"s": {
		Metadata: map[string]string{"total_size": "x", "tied": "x", "other": "y"}, Tensors: []TensorInfo{{Name: "x", DType: U8}},
	}})))
	require.JSONEq(t, `{"tied": "x", "total_parameters": 1, "total_size": 1}`, string(index.Metadata), "the sum stays a number")
	index = must(NewIndex(maps.All(map[string]*Header{})))
	text = must(index.AppendBinary(nil))
	require.JSONEq(t, `{"metadata": {"total_parameters": 0, "total_size": 0}, "weight_map": {}}`, string(text))
}

// headers yields shards of scalars: the name of a shard, then that of a tensor, and so
// on.
func headers(names ...string) iter.Seq2[string, *Header] {
	return func(yield func(string, *Header) bool) {
		for i := 0; i < len(names); i += 2 {
			if !yield(names[i], &Header{Tensors: []TensorInfo{{Name: names[i+1], DType: U8}}}) {
				return
			}
		}
	}
}

// TestReadIndex: ReadIndex is the inverse of AppendBinary, and refuses what OpenShards
// refuses.
func TestReadIndex(t *testing.T) {
	index, err := NewIndex(maps.All(map[string]*Header{
		"a":     {Tensors: []TensorInfo{{Name: "x", DType: U8}, {Name: "\u00e9\n", DType: F4, Shape: []int{2}}}},
		"dir/b": {Tensors: []TensorInfo{{Name: "y", DType: U8}}},
	}))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"x": "a", "\u00e9\n": "a", "y": "dir/b"}, index.Shards)
	for _, metadata := range []string{string(index.Metadata), "", "null", "{}", `[1, {"a": "\u00e9\\"}]`, "{\n\t\"\u00e9\\u0041\" : \"\\u00e9\" }"} {
		index.Metadata = []byte(metadata)
		if metadata == "" {
			index.Metadata = nil
		}
		read := must(ReadIndex(bytes.NewReader(must(index.AppendBinary(nil)))))
		require.Equal(t, index, read, "the metadata as it is")
	}
	for _, index := range []string{"", "{}", `{"weight_map":{"a":"../s"}}`, `{"weight_map":{"a":"s","a":"s"}}`, `{"weight_map":{"a":1}}`, `{"weight_map":{},"metadata":}`} {
		_, err := ReadIndex(strings.NewReader(index))
		require.ErrorAs(t, err, new(*FormatError), index)
		_, same := OpenShards(strings.NewReader(index), func(string) (*File, error) { return nil, fs.ErrNotExist })
		require.Equal(t, err, same)
	}
}

// TestAliasesInTheIndex: WriteShards notes the aliases of tied tensors in the index, too,
// where huggingface_hub alone has them. A File has them from either place.
func TestAliasesInTheIndex(t *testing.T) {
	dir := t.TempDir()
	tensors := checkpointOf(3)
	tensors["t09"] = tensors["t01"]
	tied, noted := Tie(tensors, map[string]string{"format": "pt"})
	require.Equal(t, "t01", noted["t09"])
	require.NoError(t, WriteShards(dir, tied, noted, 64))
	text := must(os.ReadFile(filepath.Join(dir, "model.safetensors.index.json")))
	index := must(ReadIndex(bytes.NewReader(text)))
	require.Equal(t, "{\n    \"t09\": \"t01\",\n    \"total_parameters\": 48,\n    \"total_size\": 192\n  }", string(index.Metadata))
	restored := func(text []byte, metadata map[string]string) {
		f := must(OpenShards(bytes.NewReader(text), func(shard string) (*File, error) { return Open(filepath.Join(dir, shard)) }))
		defer f.Close()
		require.Equal(t, metadata, f.Metadata())
		all, _ := Untie(maps.Collect(f.Tensors()), f.Metadata())
		require.Equal(t, slices.Sorted(maps.Keys(tensors)), slices.Sorted(maps.Keys(all)))
		require.Equal(t, appended[byte](tensors["t01"]), appended[byte](all["t09"]))
	}
	restored(text, noted)

	// The shards of huggingface_hub have a format only; what the index adds does not
	// replace what a shard says.
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, WriteShards(dir, tied, map[string]string{"format": "pt"}, 64))
	index.Metadata = []byte(`{"total_size": 192, "t09": "t01", "format": "mlx", "note": {"of": ["anything"]}}`)
	text = must(index.AppendBinary(nil))
	restored(text, map[string]string{"format": "pt", "t09": "t01"})
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, WriteShards(dir, tied, nil, 64))
	restored(text, map[string]string{"format": "mlx", "t09": "t01"})
}

// A clinging system does not remove the first two shards of an earlier checkpoint.
type clinging struct{ osfile.System }

func (s clinging) Remove(name string) error {
	if base := filepath.Base(name); base == "model-00001-of-00003.safetensors" || base == "model-00002-of-00003.safetensors" {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission}
	}
	return s.System.Remove(name)
}

// TestShardsStay: WriteShards removes the files of an earlier checkpoint that it can remove, and its error names the others.
func TestShardsStay(t *testing.T) {
	dir := t.TempDir()
	x := must(NewTensor(U8, []int{1}, []byte{1}))
	require.NoError(t, WriteShards(dir, map[string]Tensor{"a": x, "b": x, "c": x}, nil, 1))
	restore := osfile.Wrap(func(s osfile.System) osfile.System { return clinging{s} })
	err := WriteShards(dir, map[string]Tensor{"a": x}, nil, 0)
	restore()
	require.ErrorIs(t, err, fs.ErrPermission)
	names := []string{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model.safetensors"}
	require.Len(t, must(os.ReadDir(dir)), len(names))
	for _, name := range names {
		require.FileExists(t, filepath.Join(dir, name))
	}
	require.ErrorContains(t, err, names[0])
	require.ErrorContains(t, err, names[1])
	require.NoError(t, WriteShards(dir, map[string]Tensor{"a": x}, nil, 0))
	require.Len(t, must(os.ReadDir(dir)), 1)
}
