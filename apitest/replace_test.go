package apitest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// generation returns a checkpoint whose elements are all n.
func generation(t testing.TB, n int) map[string]Tensor {
	tensors := make(map[string]Tensor)
	for _, name := range []string{"a", "b", "c"} {
		x, err := NewTensor(U32, []int{4}, []uint32{uint32(n), uint32(n), uint32(n), uint32(n)})
		require.NoError(t, err)
		tensors[name] = x
	}
	return tensors
}

// generationOf returns the generation of the checkpoint in a folder, and an error
// if it is a mixture.
func generationOf(dir string) (uint32, error) {
	f, err := Open(dir)
	return generationIn(f, err)
}

// generationIn returns the generation of the checkpoint in f, which it closes.
func generationIn(f *File, err error) (uint32, error) {
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var all []uint32
	for _, x := range f.Tensors() {
		if all, err = Append(all, x); err != nil {
			return 0, err
		}
	}
	if len(all) != 12 || slices.Max(all) != slices.Min(all) {
		return 0, fmt.Errorf("%w: %d", errMixture, all)
	}
	return all[0], nil
}

var errMixture = errors.New("a mixture of checkpoints")

// TestReplaceShards saves to one folder again and again, in as many shards and in
// other numbers of them, and lists what is left. No name of a shard comes twice; after
// a single one, the number is random.
func TestReplaceShards(t *testing.T) {
	dir := t.TempDir()
	var used []string
	random := regexp.MustCompile(`\.\d\d+-`)
	for n, c := range []struct {
		maxBytes int64
		want     []string
	}{
		{16, []string{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "model.safetensors.index.json"}},
		{16, []string{"model.1-00001-of-00003.safetensors", "model.1-00002-of-00003.safetensors", "model.1-00003-of-00003.safetensors", "model.safetensors.index.json"}},
		{16, []string{"model.2-00001-of-00003.safetensors", "model.2-00002-of-00003.safetensors", "model.2-00003-of-00003.safetensors", "model.safetensors.index.json"}},
		{32, []string{"model.3-00001-of-00002.safetensors", "model.3-00002-of-00002.safetensors", "model.safetensors.index.json"}},
		{1 << 20, []string{"model.safetensors"}},
		{1 << 20, []string{"model.safetensors"}},
		{16, []string{"model.R-00001-of-00003.safetensors", "model.R-00002-of-00003.safetensors", "model.R-00003-of-00003.safetensors", "model.safetensors.index.json"}},
		{32, []string{"model.R-00001-of-00002.safetensors", "model.R-00002-of-00002.safetensors", "model.safetensors.index.json"}},
	} {
		require.NoError(t, WriteShards(dir, generation(t, n), nil, c.maxBytes))
		got := listDir(t, dir)
		for i, name := range got {
			if strings.Contains(name, "-of-") {
				require.NotContains(t, used, name)
				used = append(used, name)
			}
			got[i] = random.ReplaceAllString(name, ".R-")
		}
		require.Equal(t, c.want, got)
		opened, err := generationOf(dir)
		require.NoError(t, err)
		require.EqualValues(t, n, opened)
	}
}

// TestReplaceShardsFails lets the rename of a shard fail, when others have been
// renamed: the earlier checkpoint is whole, and nothing of the new one is left.
func TestReplaceShardsFails(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteShards(dir, generation(t, 1), nil, 16))
	before := listDir(t, dir)
	tensors := generation(t, 2)
	obstacle := filepath.Join(dir, "model.1-00002-of-00003.safetensors")
	blocked, err := NewTensorFunc(U32, []int{4}, func([]uint32) error {
		return os.MkdirAll(filepath.Join(obstacle, "in the way"), 0o777)
	})
	require.NoError(t, err)
	require.Error(t, WriteShards(dir, map[string]Tensor{"a": blocked, "b": tensors["b"], "c": tensors["c"]}, nil, 16))
	require.NoError(t, os.RemoveAll(obstacle))
	require.Equal(t, before, listDir(t, dir))
	got, err := generationOf(dir)
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
}

// TestReplaceShardsWhileRead opens a folder while it is saved to: a reader gets one
// checkpoint or an error, never a mixture.
func TestReplaceShardsWhileRead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteShards(dir, generation(t, 0), nil, 16))
	var stop atomic.Bool
	var opened, mixed atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		all.Add(1)
		go func() {
			defer all.Done()
			for !stop.Load() {
				switch _, err := generationOf(dir); {
				case err == nil:
					opened.Add(1)
				case errors.Is(err, errMixture):
					mixed.Add(1)
				}
			}
		}()
	}
	var failed []error
	saves := 100
	if testing.Short() {
		saves = 10
	}
	for n := range saves {
		if err := WriteShards(dir, generation(t, n), nil, []int64{16, 16, 32}[n%3]); err != nil {
			failed = append(failed, err)
		}
	}
	stop.Store(true)
	all.Wait()
	for _, err := range failed { // a reader has a shard open, or the index
		require.False(t, testplatform.ReplacesOpenFiles, err)
		require.Regexp(t, "is complete|cannot be replaced", err.Error())
	}
	require.Zero(t, mixed.Load())
	require.Positive(t, opened.Load())
}
