package apitest_test

import (
	"bytes"
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
	"github.com/stretchr/testify/require"
)

// generation returns a checkpoint whose elements are all n.
func generation(n int) map[string]Tensor {
	tensors := make(map[string]Tensor)
	for _, name := range []string{"a", "b", "c"} {
		tensors[name] = must(NewTensor(U32, []int{4}, []uint32{uint32(n), uint32(n), uint32(n), uint32(n)}))
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

// withoutStems returns names of files with R in place of the random numbers of shards.
func withoutStems(names []string) []string {
	random := regexp.MustCompile(`^model\.\d{9}-`)
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = random.ReplaceAllString(name, "model.R-")
	}
	return names
}

// TestReplaceShards saves to one folder several times, with the same and with different numbers of
// shards, and lists the files after each save. No two saves use the same name for a shard.
func TestReplaceShards(t *testing.T) {
	dir := t.TempDir()
	var used []string
	for n, c := range []struct {
		maxBytes int64
		want     []string
	}{
		{16, []string{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "model.safetensors.index.json"}},
		{16, []string{"model.R-00001-of-00003.safetensors", "model.R-00002-of-00003.safetensors", "model.R-00003-of-00003.safetensors", "model.safetensors.index.json"}},
		{32, []string{"model.R-00001-of-00002.safetensors", "model.R-00002-of-00002.safetensors", "model.safetensors.index.json"}},
		{1 << 20, []string{"model.safetensors"}},
		{1 << 20, []string{"model.safetensors"}},
		{16, []string{"model.R-00001-of-00003.safetensors", "model.R-00002-of-00003.safetensors", "model.R-00003-of-00003.safetensors", "model.safetensors.index.json"}},
		{16, []string{"model.R-00001-of-00003.safetensors", "model.R-00002-of-00003.safetensors", "model.R-00003-of-00003.safetensors", "model.safetensors.index.json"}},
	} {
		require.NoError(t, WriteShards(dir, generation(n), nil, c.maxBytes))
		got := listDir(dir)
		for _, name := range got {
			if strings.Contains(name, "-of-") {
				require.NotContains(t, used, name)
				used = append(used, name)
			}
		}
		require.Equal(t, c.want, withoutStems(got))
		require.EqualValues(t, n, must(generationOf(dir)))
	}
}

// TestCreateWritesTheSame compares Create with Write, byte for byte.
func TestCreateWritesTheSame(t *testing.T) {
	tensors := map[string]Tensor{"a": counting(U32, 300, 1000), "b": counting(F32, 5), "c": counting(U32, 0)}
	for _, piece := range []int{7, 4096, 3 << 20} {
		name := filepath.Join(t.TempDir(), "file")
		require.NoError(t, createFile(name, tensors, piece))
		require.True(t, bytes.Equal(saved(tensors, nil), must(os.ReadFile(name))))
		require.Len(t, listDir(filepath.Dir(name)), 1)
	}
}

// TestTwoSaversAtOnce: a save to a folder to which another save is writing is refused.
func TestTwoSaversAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	var second error
	blocked := must(NewTensorFunc(U32, []int{4}, func([]uint32) error {
		second = WriteShards(dir, generation(2), nil, 16)
		return nil
	}))
	tensors := generation(0)
	tensors["a"] = blocked
	require.NoError(t, WriteShards(dir, tensors, nil, 16))
	require.EqualError(t, second, "safetensors: another WriteShards is saving to "+dir)
	require.EqualValues(t, 0, must(generationOf(dir)))
	require.NoError(t, WriteShards(dir, generation(3), nil, 16))
}

// TestTwoSaversWithoutLocks saves over a checkpoint where the file system has no locks.
// The directory may not open then, but not as a mixture.
func TestTwoSaversWithoutLocks(t *testing.T) {
	d := newDisk()
	defer d.use(t)()
	sizes := [][2]int64{{16, 16}, {16, 32}, {32, 16}, {16, 48}, {48, 16}, {48, 48}} // for one to three shards
	lost, twice := 0, 0
	for n := range 500 {
		d.settle()
		d.noLocks = nil
		require.NoError(t, WriteShards(folder, generation(1), nil, 16))
		d.noLocks = new(sync.WaitGroup) // both have begun before one goes on
		d.noLocks.Add(2)
		var both sync.WaitGroup
		var saved atomic.Int64
		for i, maxBytes := range sizes[n%len(sizes)] {
			both.Add(1)
			go func() {
				defer both.Done()
				if WriteShards(folder, generation(10+i), nil, maxBytes) == nil {
					saved.Add(1)
				}
			}()
		}
		both.Wait()
		twice += int(saved.Load() / 2)
		_, err := cut{files: d.files()}.generation(folder)
		require.NotErrorIs(t, err, errMixture)
		if err != nil {
			lost++
		}
	}
	t.Logf("both saved %d times, the checkpoint was lost %d times", twice, lost)
}
