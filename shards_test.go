package safetensors

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkpointOf returns n tensors of 64 bytes each, t00, t01 and so on.
func checkpointOf(t testing.TB, n int) map[string]Tensor {
	tensors := make(map[string]Tensor)
	for i := range n {
		data := slices.Repeat([]uint32{uint32(i)}, 16)
		x, err := NewTensor(U32, []int{4, 4}, data)
		require.NoError(t, err)
		tensors[fmt.Sprintf("t%02d", i)] = x
	}
	return tensors
}

func listDir(t testing.TB, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// requireCheckpoint opens a checkpoint in both ways and compares it.
func requireCheckpoint(t testing.TB, name string, want map[string]Tensor) {
	for way, open := range map[string]func(string) (*File, error){"Open": Open, "Load": Load} {
		f, err := open(name)
		require.NoError(t, err, way)
		require.Len(t, maps.Collect(f.Tensors()), len(want))
		for name, x := range want {
			got, err := f.Tensor(name)
			require.NoError(t, err)
			require.Equal(t, x.Shape, got.Shape)
			wantBytes, err := Append[byte](nil, x)
			require.NoError(t, err)
			gotBytes, err := Append[byte](nil, got)
			require.NoError(t, err)
			require.Equal(t, wantBytes, gotBytes)
		}
		_, err = f.Tensor("absent")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, f.Close())
	}
}

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
	defer f.Close()
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	require.Equal(t, map[DType]int64{U32: 7 * 16}, f.ParameterCount())
	var names []string
	for name := range f.Tensors() {
		names = append(names, name)
	}
	require.Equal(t, slices.Sorted(maps.Keys(tensors)), names)

	// Fewer shards, then one, then more: what is stale goes.
	require.NoError(t, WriteShards(dir, tensors, nil, 320))
	require.Equal(t, []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}, listDir(t, dir))
	requireCheckpoint(t, dir, tensors)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model-final.safetensors"), nil, 0o666))
	require.NoError(t, WriteShards(dir, tensors, nil, 1<<40))
	require.Equal(t, []string{"model-final.safetensors", "model.safetensors"}, listDir(t, dir), "only names of shards are removed")
	requireCheckpoint(t, dir, tensors)
	require.NoError(t, WriteShards(dir, checkpointOf(t, 3), nil, 1))
	require.Len(t, listDir(t, dir), 5)
	requireCheckpoint(t, dir, checkpointOf(t, 3))
	require.NoError(t, WriteShards(dir, nil, nil, 1))
	requireCheckpoint(t, dir, nil)
}

func TestDealOut(t *testing.T) {
	tensors := checkpointOf(t, 4)
	tensors["t01big"] = counting(t, U32, 100)
	groups, err := dealOut(tensors, 128)
	require.NoError(t, err)
	require.Equal(t, []shardGroup{ // as huggingface_hub: the open shard goes on after a large tensor
		{[]string{"t01big"}, 400}, {[]string{"t00", "t01"}, 128}, {[]string{"t02", "t03"}, 128},
	}, groups)
	_, err = dealOut(tensors, 0)
	require.ErrorContains(t, err, "shards of at most 0 bytes")
}

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
	require.NoDirExists(t, absent, "what is refused writes nothing")
	require.ErrorContains(t, WriteShards(dir, changed, nil, 64), "not valid UTF-8")
	require.Equal(t, before, listDir(t, dir))
}

func TestOpenFolder(t *testing.T) {
	tensors := checkpointOf(t, 2)
	for _, c := range []struct {
		name  string
		files []string
		opens string // the file whose content is found, "" for an error
		want  string
	}{
		{"model", []string{"model.safetensors", "other.safetensors", "x.json"}, "model.safetensors", ""},
		{"the only one", []string{"adapter.safetensors", "config.json"}, "adapter.safetensors", ""},
		{"ambiguous", []string{"a.safetensors", "b.safetensors"}, "", "more than one other: a.safetensors, b.safetensors"},
		{"none", []string{"config.json", "pytorch_model.bin"}, "", "no .safetensors file in it, only [config.json, pytorch_model.bin]"},
		{"empty", nil, "", "no .safetensors file in it, only []"},
		{"temporary files do not count", []string{".safetensors-12.tmp", "a.safetensors"}, "a.safetensors", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
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
}

// TestSnapshot opens a checkpoint as it lies in a Hugging Face cache: a folder of
// symbolic links into another one.
func TestSnapshot(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("no symbolic links without privileges on this system")
	}
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

func TestBadIndex(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteFile(filepath.Join(dir, "s.safetensors"), checkpointOf(t, 2), nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.safetensors"), []byte("version https://git-lfs"), 0o666))
	for _, c := range []struct{ name, index, want string }{
		{"empty", ``, "the text ends where the index, an object, is expected (at byte 0)"},
		{"no weight_map", `{"metadata":{}}`, "the index has no weight_map"},
		{"weight_map of another type", `{"weight_map":[]}`, "'[' where an object, the weight_map, is expected (at byte 14)"},
		{"two weight_maps", `{"weight_map":{},"weight_map":{}}`, `"weight_map" stands in the index twice`},
		{"shard of another type", `{"weight_map":{"t00":1}}`, `tensor "t00": '1' where a string, the name of a shard, is expected`},
		{"a tensor twice", `{"weight_map":{"t00":"s.safetensors","t\u00300":"s.safetensors"}}`, `tensor "t00": the name stands in the index twice (at byte 38)`},
		{"absolute path", `{"weight_map":{"t00":"/etc/passwd"}}`, `shard "/etc/passwd" is not a file beside the index`},
		{"parent folder", `{"weight_map":{"t00":"../s.safetensors"}}`, `shard "../s.safetensors" is not`},
		{"hidden parent folder", `{"weight_map":{"t00":"a/../../s.safetensors"}}`, "is not a file beside"},
		{"backslash", `{"weight_map":{"t00":"a\\s.safetensors"}}`, "is not a file beside"},
		{"drive letter", `{"weight_map":{"t00":"C:s.safetensors"}}`, "is not a file beside"},
		{"stream of a file", `{"weight_map":{"t00":"s.safetensors:x"}}`, "is not a file beside"},
		{"NUL", `{"weight_map":{"t00":"s.safetensors\u0000"}}`, "is not a file beside"},
		{"no name", `{"weight_map":{"t00":""}}`, "is not a file beside"},
		{"the folder", `{"weight_map":{"t00":"."}}`, "is not a file beside"},
		{"tensor not in the shard", `{"weight_map":{"t00":"s.safetensors","t09":"s.safetensors"}}`, `tensor "t09": shard "s.safetensors" does not hold it, as the index says`},
		{"tensors not in the shard", `{"weight_map":{"t08":"s.safetensors","t09":"s.safetensors"}}`, `; nor 1 other tensors`},
		{"missing shard", `{"weight_map":{"t00":"absent.safetensors"}}`, `shard "absent.safetensors": open `},
		{"malformed shard", `{"weight_map":{"t00":"broken.safetensors"}}`, "Git LFS pointer"},
		{"behind the object", `{"weight_map":{}} x`, "'x' where the end of the index is expected"},
		{"invalid UTF-8", "{\"weight_map\":{\"\xff\":\"s.safetensors\"}}", "the index is not valid UTF-8 (at byte 16)"},
		{"nested too deep", `{"metadata":` + strings.Repeat("[", 1000), "more than 127 objects and arrays"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(dir, "model.safetensors.index.json")
			require.NoError(t, os.WriteFile(name, []byte(c.index), 0o666))
			for _, open := range []func(string) (*File, error){Open, Load} {
				_, err := open(name)
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, name)
				var broken *FormatError
				require.ErrorAs(t, err, &broken)
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

// TestIndexDecides has tensors in shards that the index does not mention, or
// gives to another shard.
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
	f, err = NewSharded(strings.NewReader(`{"weight_map":{}}`), nil)
	require.NoError(t, err)
	require.Empty(t, maps.Collect(f.Tensors()))
	require.Nil(t, f.Metadata())
	require.NoError(t, f.Close())
	_, err = NewSharded(strings.NewReader(`{"weight_map":{"a":"s"}}`), func(string) (*File, error) { return nil, nil })
	require.ErrorContains(t, err, `shard "s": no File for it`)
}

func TestBuildIndex(t *testing.T) {
	dir := t.TempDir()
	tensors := checkpointOf(t, 5)
	shards := make(map[string]*File)
	for i, names := range [][]string{{"t00", "t03"}, {"t01", "t02", "t04"}} {
		part := make(map[string]Tensor)
		for _, name := range names {
			part[name] = tensors[name]
		}
		shard := fmt.Sprintf("model-%05d-of-00002.safetensors", i+1)
		require.NoError(t, WriteFile(filepath.Join(dir, shard), part, nil))
		f, err := Open(filepath.Join(dir, shard))
		require.NoError(t, err)
		defer f.Close()
		shards[shard] = f
	}
	index, err := BuildIndex(shards)
	require.NoError(t, err)
	require.Contains(t, string(index), `"total_size": 320`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o666))
	requireCheckpoint(t, dir, tensors)
	shards["x.safetensors"] = shards["model-00001-of-00002.safetensors"]
	_, err = BuildIndex(shards)
	require.ErrorContains(t, err, `tensor "t00": it is in shard "model-00001-of-00002.safetensors" and in shard "x.safetensors"`)
	strange := map[string]string{"é\U0001f9e0\"\n\x7f": "s"}
	require.Contains(t, string(encodeIndex(strange, 0)), `"\u00e9\ud83e\udde0\"\n\u007f": "s"`, "ASCII only")
	_, err = BuildIndex(map[string]*File{"../x": nil})
	require.ErrorContains(t, err, "is not a file beside the index")
}

func TestLargeIndex(t *testing.T) {
	n := 500_000
	if testing.Short() || raceEnabled {
		n = 20_000
	}
	const shards = 5
	weights := make(map[string]string, n)
	files := make(map[string]*File)
	for s := range shards {
		var infos []TensorInfo
		shard := fmt.Sprintf("model-%05d-of-%05d.safetensors", s+1, shards)
		for i := s; i < n; i += shards {
			name := fmt.Sprintf("model.layers.%d.weight", i)
			infos = append(infos, TensorInfo{Name: name, DType: U8, Shape: []int{0}})
			weights[name] = shard
		}
		var out bytes.Buffer
		w, err := NewWriter(&out, &Header{Tensors: infos})
		require.NoError(t, err)
		require.NoError(t, w.Close())
		files[shard], err = Parse(out.Bytes())
		require.NoError(t, err)
	}
	f, err := NewSharded(bytes.NewReader(encodeIndex(weights, 0)), func(shard string) (*File, error) { return files[shard], nil })
	require.NoError(t, err)
	require.Equal(t, n, f.count())
	for _, i := range []int{0, 1, n / 2, n - 1} {
		_, err := f.Tensor(fmt.Sprintf("model.layers.%d.weight", i))
		require.NoError(t, err)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"a":"s.safetensors","b":"t.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"\u0061":"x/y"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := parseIndex(text)
		if err != nil {
			return
		}
		n := 0
		for _, shard := range w.shards() {
			require.True(t, localName(shard))
			n += w.count[shard]
		}
		require.Equal(t, len(w.pairs), n)
		for i := range w.pairs {
			require.Equal(t, i, w.index.lookup(w.name(i), w.name))
		}
	})
}
