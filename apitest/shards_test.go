package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestWriteShards checks the names of shards, the index, the order of tensors and
// that stale shards go.
func TestWriteShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "checkpoint")
	tensors := checkpointOf(t, 7)
	require.NoError(t, WriteShards(dir, tensors, map[string]string{"format": "pt"}, 130))
	require.Equal(t, []string{
		"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
		"model.safetensors.index.json",
	}, listDir(t, dir))
	index, err := os.ReadFile(filepath.Join(dir, "model.safetensors.index.json"))
	require.NoError(t, err)
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
	f, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	require.Equal(t, map[DType]int64{U32: 7 * 16}, f.ParameterCount())
	var names []string
	for name := range f.Tensors() {
		names = append(names, name)
	}
	require.Equal(t, slices.Sorted(maps.Keys(tensors)), names)
	require.NoError(t, f.Close()) // Windows removes no shard that is open

	// Fewer shards, then one, then more: stale shards are removed.
	require.NoError(t, WriteShards(dir, tensors, nil, 320))
	require.Equal(t, []string{"model.R-00001-of-00002.safetensors", "model.R-00002-of-00002.safetensors", "model.safetensors.index.json"}, withoutStems(listDir(t, dir)))
	requireCheckpoint(t, dir, tensors)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model-final.safetensors"), nil, 0o666))
	require.NoError(t, WriteShards(dir, tensors, nil, 1<<40))
	require.Equal(t, []string{"model-final.safetensors", "model.safetensors"}, listDir(t, dir), "other files stay")
	requireCheckpoint(t, dir, tensors)
	require.NoError(t, WriteShards(dir, checkpointOf(t, 3), nil, 1))
	require.Len(t, listDir(t, dir), 5)
	requireCheckpoint(t, dir, checkpointOf(t, 3))
	require.NoError(t, WriteShards(dir, nil, nil, 1))
	requireCheckpoint(t, dir, nil)
}

// TestSplit checks how tensors are assigned to shards.
func TestSplit(t *testing.T) {
	tensors := checkpointOf(t, 4)
	tensors["t01big"] = counting(t, U32, 100)
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
	require.Len(t, names(0), 5, "every tensor is larger than the limit")
	require.Len(t, names(127), 5, "one each")
	require.Len(t, names(192), 3, "three fill a shard")
	delete(tensors, "t01big")
	tensors["t00"], tensors["t02"] = counting(t, U32, 8), counting(t, U32, 8)
	require.Equal(t, map[string][]string{ // what fills a shard is not larger than one
		"model-00001-of-00004.safetensors": {"t00"},
		"model-00002-of-00004.safetensors": {"t01"},
		"model-00003-of-00004.safetensors": {"t02"},
		"model-00004-of-00004.safetensors": {"t03"},
	}, names(64))
	require.Equal(t, map[string]map[string]Tensor{"model.safetensors": {}}, Split(nil, 1))
	require.ErrorContains(t, WriteShards(t.TempDir(), tensors, nil, 0), "shards of at most 0 bytes")
}

// TestWriteShardsFails checks that the folder is unchanged if WriteShards fails.
func TestWriteShardsFails(t *testing.T) {
	tensors := checkpointOf(t, 6)
	dir := t.TempDir()
	require.NoError(t, WriteShards(dir, tensors, nil, 128))
	before := listDir(t, dir)
	var file bytes.Buffer
	require.NoError(t, Write(&file, map[string]Tensor{"t03": tensors["t03"]}, nil))
	r := &failingReader{ReaderAt: bytes.NewReader(file.Bytes()), left: int64(file.Len())}
	f, err := NewFile(r, int64(file.Len()))
	require.NoError(t, err)
	changed := checkpointOf(t, 2)
	changed["t03"], err = f.Tensor("t03")
	require.NoError(t, err)
	r.left = 10
	require.ErrorIs(t, WriteShards(dir, changed, nil, 64), errReader)
	require.Equal(t, before, listDir(t, dir))
	requireCheckpoint(t, dir, tensors)
	changed["\xff"] = changed["t00"]
	absent := filepath.Join(dir, "absent")
	require.ErrorContains(t, WriteShards(absent, changed, nil, 64), "not valid UTF-8")
	require.NoDirExists(t, absent, "nothing is written")
	require.ErrorContains(t, WriteShards(dir, changed, nil, 64), "not valid UTF-8")
	require.Equal(t, before, listDir(t, dir))
}

// TestOpenFolder checks which file of a folder Open and Load choose.
func TestOpenFolder(t *testing.T) {
	tensors := checkpointOf(t, 2)
	for _, c := range []struct {
		rule  string
		files []string
		opens string // the file to be chosen, "" for an error
		want  string
	}{
		{"model.safetensors comes first", []string{"model.safetensors", "other.safetensors", "x.json"}, "model.safetensors", ""},
		{"another name may be the only one", []string{"adapter.safetensors", "config.json"}, "adapter.safetensors", ""},
		{"of several other names none is chosen", []string{"a.safetensors", "b.safetensors"}, "", "several others: a.safetensors, b.safetensors"},
		{"there is a .safetensors file", []string{"config.json", "pytorch_model.bin"}, "", "no .safetensors file in it, only [config.json, pytorch_model.bin]"},
		{"a folder is not empty", nil, "", "no .safetensors file in it, only []"},
		{"an index of other files does not count", []string{"adapter.safetensors", "pytorch_model.bin.index.json"}, "adapter.safetensors", ""},
		{"temporary files do not count", []string{".safetensors-12.tmp", "a.safetensors"}, "a.safetensors", ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o666))
			}
			if c.opens != "" {
				require.NoError(t, WriteFile(filepath.Join(dir, c.opens), tensors, nil))
				requireCheckpoint(t, dir, tensors)
				return
			}
			for _, open := range []func(string) (*File, error){Open, Load} {
				_, err := open(dir)
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, dir)
			}
		})
	}
	dir := t.TempDir()
	require.NoError(t, WriteShards(dir, tensors, nil, 64))
	require.NoError(t, os.Rename(filepath.Join(dir, "model.safetensors.index.json"), filepath.Join(dir, "mine.safetensors.index.json")))
	requireCheckpoint(t, dir, tensors)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other.safetensors.index.json"), nil, 0o666))
	_, err := Open(dir)
	require.ErrorContains(t, err, "mine.safetensors.index.json, other.safetensors.index.json")
	require.NoError(t, os.Rename(filepath.Join(dir, "mine.safetensors.index.json"), filepath.Join(dir, "model.safetensors.index.json")))
	requireCheckpoint(t, dir, tensors)
}

// TestSnapshot opens a checkpoint in a Hugging Face cache: a folder of symbolic
// links into another one.
func TestSnapshot(t *testing.T) {
	testplatform.NeedSymlinks(t)
	dir := t.TempDir()
	blobs, snapshot := filepath.Join(dir, "blobs"), filepath.Join(dir, "snapshots", "main")
	tensors := checkpointOf(t, 4)
	require.NoError(t, WriteShards(blobs, tensors, nil, 64))
	require.NoError(t, os.MkdirAll(snapshot, 0o777))
	for i, name := range listDir(t, blobs) {
		blob := fmt.Sprintf("%064x", i)
		require.NoError(t, os.Rename(filepath.Join(blobs, name), filepath.Join(blobs, blob)))
		require.NoError(t, os.Symlink(filepath.Join("..", "..", "blobs", blob), filepath.Join(snapshot, name)))
	}
	requireCheckpoint(t, snapshot, tensors)
}

// TestBadIndex checks the error of an index that breaks a rule, or whose shards
// do. It is a FormatError unless a shard cannot be opened.
func TestBadIndex(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteFile(filepath.Join(dir, "s.safetensors"), checkpointOf(t, 2), nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.safetensors"), []byte("version https://git-lfs"), 0o666))
	const shardExists = "a shard exists"
	for _, c := range []struct{ rule, index, want string }{
		{"an index is not empty", ``, "expected an object, the index, found the end of the text (at byte 0)"},
		{"an index has a weight_map", `{"metadata":{}}`, "the index has no weight_map"},
		{"weight_map is an object", `{"weight_map":[]}`, "expected an object, the weight_map, found '[' (at byte 14)"},
		{"weight_map is unique", `{"weight_map":{},"weight_map":{}}`, `duplicate weight_map (at byte 18)`},
		{"names of shards are strings", `{"weight_map":{"t00":1}}`, `tensor "t00": expected a string, the name of a shard, found '1'`},
		{"tensor names are unique", `{"weight_map":{"t00":"s.safetensors","t\u00300":"s.safetensors"}}`, `tensor "t00": duplicate tensor name in the index (at byte 38)`},
		{"a shard is local: no absolute path", `{"weight_map":{"t00":"/etc/passwd"}}`, `shard "/etc/passwd" is not a local, slash-separated file name`},
		{"a shard is local: no parent folder", `{"weight_map":{"t00":"../s.safetensors"}}`, `shard "../s.safetensors" is not`},
		{"a shard is local: no hidden parent folder", `{"weight_map":{"t00":"a/../../s.safetensors"}}`, "is not a local"},
		{"a shard is local: no backslash", `{"weight_map":{"t00":"a\\s.safetensors"}}`, "is not a local"},
		{"a shard is local: no drive letter", `{"weight_map":{"t00":"C:s.safetensors"}}`, "is not a local"},
		{"a shard is local: no stream of a file", `{"weight_map":{"t00":"s.safetensors:x"}}`, "is not a local"},
		{"a shard is local: no control characters", `{"weight_map":{"t00":"s\u001b[31m.safetensors"}}`, "is not a local"},
		{"a shard is local: no endless name", `{"weight_map":{"t00":"` + strings.Repeat("s", 5000) + `"}}`, "is not a local"},
		{"a shard is local: no NUL", `{"weight_map":{"t00":"s.safetensors\u0000"}}`, "is not a local"},
		{"a shard is local: no empty name", `{"weight_map":{"t00":""}}`, "is not a local"},
		{"a shard is local: not the folder itself", `{"weight_map":{"t00":"."}}`, "is not a local"},
		{"a tensor is in its shard", `{"weight_map":{"t00":"s.safetensors","t09":"s.safetensors"}}`, `tensor "t09": the index places it in shard "s.safetensors", which lacks it`},
		{"all tensors are in their shard", `{"weight_map":{"t08":"s.safetensors","t09":"s.safetensors"}}`, `which lacks it and 1 others`},
		{shardExists, `{"weight_map":{"t00":"absent.safetensors"}}`, `shard "absent.safetensors": open `},
		{"a shard is well-formed", `{"weight_map":{"t00":"broken.safetensors"}}`, "Git LFS pointer"},
		{"only white space follows the object", `{"weight_map":{}} x`, "expected the end of the index, found 'x'"},
		{"an index is valid UTF-8", "{\"weight_map\":{\"\xff\":\"s.safetensors\"}}", "the index is not valid UTF-8 (at byte 16)"},
		{"nesting has at most 127 levels", `{"metadata":` + strings.Repeat("[", 1000), "objects and arrays are nested deeper than 127 levels"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			name := filepath.Join(dir, "model.safetensors.index.json")
			require.NoError(t, os.WriteFile(name, []byte(c.index), 0o666))
			for _, open := range []func(string) (*File, error){Open, Load} {
				_, err := open(name)
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, name)
				var broken *FormatError
				if c.rule == shardExists { // no bytes are at fault
					require.False(t, errors.As(err, &broken))
				} else {
					require.ErrorAs(t, err, &broken)
				}
			}
		})
	}
	name := filepath.Join(dir, "model.safetensors.index.json")
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
	a, b := checkpointOf(t, 3), checkpointOf(t, 3)
	b["t01"] = counting(t, U32, 4, 4)
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
	f, err = OpenShards(strings.NewReader(`{"weight_map":{}}`), func(string) (*File, error) { return nil, fs.ErrNotExist })
	require.NoError(t, err)
	require.Empty(t, maps.Collect(f.Tensors()))
	require.Nil(t, f.Metadata())
	require.NoError(t, f.Close())
	_, err = OpenShards(strings.NewReader(`{"weight_map":{"a":"s"}}`), func(string) (*File, error) { return nil, nil })
	require.ErrorContains(t, err, `shard "s": open returned no File`)
}

// TestBuildIndex builds the index of shards that WriteShards did not write.
func TestBuildIndex(t *testing.T) {
	dir := t.TempDir()
	tensors := checkpointOf(t, 5)
	var files []*File
	for i, names := range [][]string{{"t00", "t03"}, {"t01", "t02", "t04"}} {
		part := make(map[string]Tensor)
		for _, name := range names {
			part[name] = tensors[name]
		}
		shard := filepath.Join(dir, fmt.Sprintf("model-%05d-of-00002.safetensors", i+1))
		require.NoError(t, WriteFile(shard, part, nil))
		f, err := Open(shard)
		require.NoError(t, err)
		defer f.Close()
		files = append(files, f)
	}
	all, err := Join(files...)
	require.NoError(t, err)
	index, err := BuildIndex(all.Headers())
	require.NoError(t, err)
	require.Contains(t, string(index), `"total_parameters": 80`)
	require.Contains(t, string(index), `"total_size": 320`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o666))
	requireCheckpoint(t, dir, tensors)
	index, err = BuildIndex(headers("s", "é\U0001f9e0\"\n\x7f"))
	require.NoError(t, err)
	require.Contains(t, string(index), `"\u00e9\ud83e\udde0\"\n\u007f": "s"`, "ASCII only")
	_, err = BuildIndex(maps.All(map[string]*Header{}))
	require.NoError(t, err)
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

// TestBuildIndexRefuses: what a caller passes is no fault of a file.
func TestBuildIndexRefuses(t *testing.T) {
	for _, c := range []struct {
		rule   string
		shards iter.Seq2[string, *Header]
		want   string
	}{
		{"there are shards", nil, "building an index: the shards are nil"},
		{"a tensor has one shard", headers("a", "x", "b", "x"), `shard "b": tensor "x": duplicate tensor name, also in shard "a"`},
		{"a shard is there once", headers("a", "x", "a", "y"), `shard "a": duplicate file name`},
		{"a shard is in the directory", headers("../a", "x"), `shard "../a": it is not a local, slash-separated file name`},
		{"a name is no metadata", headers("a", "__metadata__"), `shard "a": tensor "__metadata__": the name is reserved for the metadata`},
		{"a name is UTF-8", headers("a", "\xff"), `shard "a": tensor "\xff": the name is not valid UTF-8`},
		{"a dtype is valid", maps.All(map[string]*Header{"a": {Tensors: make([]TensorInfo, 1)}}), `shard "a": tensor "": invalid dtype 0`},
		{"a header is there", maps.All(map[string]*Header{"a": nil}), `shard "a": its header is nil`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := BuildIndex(c.shards)
			require.EqualError(t, err, "safetensors: "+c.want)
			require.False(t, errors.As(err, new(*FormatError)))
		})
	}
}

// TestIndexTooLongToRead: WriteShards replaces no checkpoint by one whose index is longer
// than Open reads.
func TestIndexTooLongToRead(t *testing.T) {
	dir := t.TempDir()
	earlier := checkpointOf(t, 2)
	require.NoError(t, WriteShards(dir, earlier, nil, 64))
	before := listDir(t, dir)
	tensors := make(map[string]Tensor)
	for i := range 10 {
		tensors[strings.Repeat("n", 7<<20)+fmt.Sprint(i)] = earlier["t00"]
	}
	require.ErrorContains(t, WriteShards(dir, tensors, nil, 64), "exceeds the limit of 67108864")
	require.Equal(t, before, listDir(t, dir))
	requireCheckpoint(t, dir, earlier)
}

// TestReadIndex: ReadIndex is the inverse of BuildIndex, and refuses what OpenShards
// refuses.
func TestReadIndex(t *testing.T) {
	index, err := BuildIndex(maps.All(map[string]*Header{
		"a":     {Tensors: []TensorInfo{{Name: "x", DType: U8}, {Name: "\u00e9\n", DType: F4, Shape: []int{2}}}},
		"dir/b": {Tensors: []TensorInfo{{Name: "y", DType: U8}}},
	}))
	require.NoError(t, err)
	shards, err := ReadIndex(bytes.NewReader(index))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"x": "a", "\u00e9\n": "a", "y": "dir/b"}, shards)
	for _, index := range []string{"", "{}", `{"weight_map":{"a":"../s"}}`, `{"weight_map":{"a":"s","a":"s"}}`, `{"weight_map":{"a":1}}`} {
		_, err := ReadIndex(strings.NewReader(index))
		var broken *FormatError
		require.ErrorAs(t, err, &broken, index)
		_, same := OpenShards(strings.NewReader(index), func(string) (*File, error) { return nil, fs.ErrNotExist })
		require.EqualError(t, err, same.Error())
	}
	_, err = ReadIndex(iotest.ErrReader(io.ErrClosedPipe))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	_, err = ReadIndex(nil)
	require.ErrorContains(t, err, "nil")
}
