package dest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecord: a Set that failed is continued by one with the same Record, which writes only the shards that are
// missing. It does not take files that were replaced since, or that another source has left.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	var copied []string
	write := func(record, broken string) error {
		copied = nil
		set := &Set{Shards: make(map[string]Shard), Record: []byte(record), AtOnce: 1, Index: "model.safetensors.index.json"}
		weights := make(map[string]string)
		for i := range 3 {
			name := fmt.Sprintf("model-%05d-of-00003.safetensors", i+1)
			weights[fmt.Sprint(i)] = name
			set.Shards[name] = Shard{Size: int64(len(name)), CopyTo: func(w io.Writer) error {
				copied = append(copied, name)
				_, err := io.WriteString(w, name)
				if name == broken {
					err = errBroken
				}
				return err
			}}
		}
		set.Text = fmt.Appendf(nil, `{"metadata":{},"weight_map":{"a":%q,"b":%q,"c":%q}}`, weights["0"], weights["1"], weights["2"])
		return set.Write(folder{name: dir})
	}
	names := []string{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"}

	require.ErrorIs(t, write("v1", names[2]), errBroken)
	require.Equal(t, names, copied)
	require.ErrorIs(t, write("v1", names[2]), errBroken)
	require.Equal(t, names[2:], copied, "the others are there")
	require.ErrorContains(t, write("v2", ""), names[0]+" exists; --force replaces it", "the record is of another source")
	require.NoError(t, os.WriteFile(filepath.Join(dir, names[1]), []byte(names[0]), 0o666))
	require.ErrorContains(t, write("v1", ""), names[1]+" exists; --force replaces it", "it was replaced since")
	require.NoError(t, os.Remove(filepath.Join(dir, names[1])))
	require.NoError(t, write("v1", ""))
	require.Equal(t, names[1:], copied)
	for _, name := range names {
		require.Equal(t, name, string(must(os.ReadFile(filepath.Join(dir, name)))))
	}
	files := slices.Sorted(maps.Keys(must(folder{name: dir}.Files("", true))))
	require.NotContains(t, files, recordName, "the copy is complete")
}

// TestRanksFail: if a tensor cannot be read, nothing is written, and the error says so.
func TestRanksFail(t *testing.T) {
	dir := t.TempDir()
	d := must(ParseRanks(filepath.Join(dir, "x"), 2))
	for n := range int64(3) {
		require.ErrorIs(t, d.Write(failingAfter(checkpoint("a", "b", "c"), n), nil, nil), errBroken)
		require.Empty(t, must(os.ReadDir(dir)))
	}
	require.NoError(t, d.Write(checkpoint("a", "b", "c"), nil, nil))
	require.ErrorContains(t, d.Write(checkpoint("a"), nil, nil), "is not empty")
	require.NoError(t, errors.Join(os.RemoveAll(filepath.Join(dir, "x")), d.Write(checkpoint("a"), nil, nil)))
}

// A keeping folder cannot remove the single file of the checkpoint that it has.
type keeping struct{ folder }

func (k keeping) Remove(name string) error {
	if name == "model.safetensors" {
		return errBroken
	}
	return k.folder.Remove(name)
}

// TestSingleFileStays: if the single file of the earlier checkpoint cannot be removed, the new index and
// its shards are removed, since a reader would open that file.
func TestSingleFileStays(t *testing.T) {
	to := keeping{folder{name: t.TempDir()}}
	for _, name := range []string{"model.safetensors", "new-00001-of-00001.safetensors"} {
		require.NoError(t, to.Put(name, []byte(name)))
	}
	require.ErrorIs(t, commit(to, "model.safetensors.index.json", []byte("{}"), []string{"new-00001-of-00001.safetensors"}, true), errBroken)
	require.Equal(t, []string{"model.safetensors"}, slices.Sorted(maps.Keys(must(to.Files("", true)))))
	require.NoError(t, commit(to.folder, "model.safetensors.index.json", []byte("{}"), nil, true))
	require.Equal(t, []string{"model.safetensors.index.json"}, slices.Sorted(maps.Keys(must(to.Files("", true)))))
}

// TestReplacedFileStays: a file of the earlier checkpoint that cannot be removed is an error, and the record stays for
// the next save.
func TestReplacedFileStays(t *testing.T) {
	to := keeping{folder{name: t.TempDir()}}
	for _, name := range []string{"model.safetensors", recordName} {
		require.NoError(t, to.Put(name, []byte("{}")))
	}
	s := &Set{records: true}
	require.ErrorIs(t, s.end(to, []string{"model.safetensors"}, nil), errBroken)
	require.Contains(t, must(to.Files("", false)), recordName)
	require.NoError(t, s.end(to, nil, nil))
	require.NotContains(t, must(to.Files("", false)), recordName)
}

// TestNewInRecord: the record has the sizes of new copies, so that a file of another program under such a name stays. The sizes of
// new files with tensors are not known.
func TestNewInRecord(t *testing.T) {
	from := folder{name: t.TempDir(), maxBytes: 16}
	require.NoError(t, from.Write(checkpoint("x", "y", "z"), nil, nil))
	to := folder{name: t.TempDir()}
	require.NoError(t, to.Write(checkpoint("a"), nil, nil))
	for _, s := range []*Set{copiesOf(t, from), {Shards: map[string]Shard{"x.safetensors": {Tensors: checkpoint("x")}}}} {
		names, want := make(map[string]string), make(map[string]int64)
		for name, shard := range s.Shards {
			names[name], want[name] = name, -1
			if shard.CopyTo != nil {
				want[name] = shard.Size
				require.Positive(t, shard.Size)
			}
		}
		there := must(s.files(to))
		require.NoError(t, s.begin(to, []string{"model.safetensors"}, names, there))
		r := must(readRecord(to, must(to.Files("", false))))
		require.Equal(t, want, r.New)
		require.Equal(t, map[string]string{"model.safetensors": there["model.safetensors"].Version}, r.Old)
		require.NoError(t, to.Remove(recordName))
	}
}

// TestBesideDistributed: readers would open a checkpoint of torch.distributed.checkpoint in place of the new one.
func TestBesideDistributed(t *testing.T) {
	to := folder{name: t.TempDir()}
	require.NoError(t, to.Put(".metadata", nil))
	const want = ".metadata is of a checkpoint of torch.distributed.checkpoint, which would be read in place of the new one: write to another folder"
	require.ErrorContains(t, to.Write(checkpoint("a"), nil, nil), want)
	require.ErrorContains(t, (&Set{Shards: map[string]Shard{"model.safetensors": {Tensors: checkpoint("a")}}, Force: true}).Write(to), want)
	require.Equal(t, []string{".metadata"}, slices.Sorted(maps.Keys(must(to.Files("", true)))))
}

// TestBesideRanks: readers of the safetensors files of ranks take all files in their folder. Shards of an index are not
// such files, and neither are those that the Set itself writes.
func TestBesideRanks(t *testing.T) {
	to := folder{name: t.TempDir()}
	const rank = "shard-00001-of-00002.safetensors"
	require.NoError(t, to.WriteShard(rank, Shard{Tensors: checkpoint("a")}, nil, nil))
	const want = rank + " is of a checkpoint of torch.distributed.checkpoint, which would be read in place of the new one: write to another folder"
	require.ErrorContains(t, to.Free(), want)
	require.ErrorContains(t, to.Write(checkpoint("b"), nil, nil), want)
	one := map[string]Shard{"model.safetensors": {Tensors: checkpoint("b")}}
	require.ErrorContains(t, (&Set{Shards: one, Force: true}).Write(to), want)
	require.Equal(t, []string{rank}, slices.Sorted(maps.Keys(must(to.Files("", true)))))

	require.NoError(t, (&Set{Shards: map[string]Shard{rank: {Tensors: checkpoint("a"), There: true}}}).Check(to))
	require.NoError(t, to.Put("model.safetensors.index.json", []byte(`{"weight_map":{"a":"`+rank+`"}}`)))
	require.NoError(t, (&Set{Shards: one, Force: true}).Write(to))
	require.Equal(t, []string{"model.safetensors"}, slices.Sorted(maps.Keys(must(to.Files("", true)))))
}
