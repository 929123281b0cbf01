package apitest_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
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
	random := regexp.MustCompile(`^model\.\d+-`)
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = random.ReplaceAllString(name, "model.R-")
	}
	return names
}

// TestReplaceShards saves to one folder again and again, in as many shards and in
// other numbers of them, and lists what is left. No name of a shard comes twice.
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

// TestReplaceShardsWhileRead opens a folder while it is saved to: a reader gets one
// checkpoint or an error, never a mixture.
func TestReplaceShardsWhileRead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteShards(dir, generation(0), nil, 16))
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
	saves := 10
	if testplatform.Long() {
		saves = 100
	}
	deadline := time.Now().Add(time.Minute)
	for n := 0; n < saves || opened.Load() == 0 && time.Now().Before(deadline); n++ { // on one processor the readers may come late
		if err := WriteShards(dir, generation(n), nil, []int64{16, 16, 32}[n%3]); err != nil {
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
