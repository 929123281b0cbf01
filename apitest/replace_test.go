package apitest_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
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
