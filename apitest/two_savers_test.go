package apitest_test

import (
	"path/filepath"
	"sync"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// saveTwice saves two generations to a directory at the same time, each with its own
// size of shards, and returns those that were saved.
func saveTwice(t *testing.T, dir string, n int, sizes [2]int64) (saved []uint32, errs [2]error) {
	var both sync.WaitGroup
	for i := range 2 {
		tensors := generation(n + i)
		both.Add(1)
		go func() {
			defer both.Done()
			errs[i] = WriteShards(dir, tensors, nil, sizes[i])
		}()
	}
	both.Wait()
	for i, err := range errs {
		if err == nil {
			saved = append(saved, uint32(n+i))
		}
	}
	return saved, errs
}

// sizesOfTwo are those of one to three shards.
var sizesOfTwo = [][2]int64{{16, 16}, {16, 32}, {32, 16}, {16, 48}, {48, 16}, {48, 48}}

// TestTwoSavers saves to one directory from two goroutines, many times: to an empty
// directory, over one shard and over several. At least one of them saves, the other is
// refused or saves, too. The directory then opens as one that was saved.
func TestTwoSavers(t *testing.T) {
	rounds := 12
	if testplatform.Long() {
		rounds = 60
	}
	refused := 0
	for n := range rounds {
		dir := t.TempDir()
		if n%3 > 0 {
			require.NoError(t, WriteShards(dir, generation(1), nil, []int64{16, 48}[n%2]))
		}
		saved, errs := saveTwice(t, dir, 10, sizesOfTwo[n%len(sizesOfTwo)])
		require.NotEmpty(t, saved, errs)
		require.Contains(t, saved, must(generationOf(dir)))
		for _, err := range errs {
			if err != nil {
				require.EqualError(t, err, "safetensors: another WriteShards is saving to "+dir)
				refused++
			}
		}
		require.Zero(t, temporary(dir))
	}
	t.Logf("%d rounds, %d refused", rounds, refused)
}

// TestTwoSaversAtOnce lets the second start in the middle of the first: it is refused.
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
	lost, both := 0, 0
	for n := range 500 {
		d.settle()
		d.noLocks = nil
		require.NoError(t, WriteShards(folder, generation(1), nil, 16))
		d.noLocks = new(sync.WaitGroup) // both have begun before one goes on
		d.noLocks.Add(2)
		saved, _ := saveTwice(t, folder, 10, sizesOfTwo[n%len(sizesOfTwo)])
		if len(saved) == 2 {
			both++
		}
		_, err := cut{files: d.files()}.generation(folder)
		require.NotErrorIs(t, err, errMixture)
		if err != nil {
			lost++
		}
	}
	t.Logf("both saved %d times, the checkpoint was lost %d times", both, lost)
}
