package objectstore

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
	"golang.org/x/sync/errgroup"
)

// The shards of the ranks.
var shards = []string{
	"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
	"model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
}

// save writes the shard of one rank, as each process of a training run does: here
// one tensor, from where data comes.
func save(d folder, rank, elements int, data io.Reader) error {
	return d.create(shards[rank], func(w io.Writer) error {
		name := fmt.Sprintf("moment.%d", rank)
		shard, err := safetensors.NewWriter(w, &safetensors.Header{Tensors: []safetensors.TensorInfo{
			{Name: name, DType: safetensors.U8, Shape: []int{elements}},
		}})
		if err != nil {
			return err
		}
		moment, err := shard.Tensor(name)
		if err != nil {
			return err
		}
		if _, err := io.CopyN(moment, data, int64(elements)); err != nil {
			return err
		}
		return shard.Close()
	})
}

// Four ranks save a checkpoint. Each writes its shard; once all have returned, the
// first one writes the index. A reader joins the parts.
func Example_training() {
	ctx := context.Background()
	bucket := memblob.OpenBucket(nil)
	defer bucket.Close()
	d := folder{blob.PrefixedBucket(bucket, "step-2000/run-7/"), ctx}

	var group errgroup.Group // in place of the barrier between the processes
	for rank := range shards {
		group.Go(func() error { return save(d, rank, 8, zeros{}) })
	}
	if err := group.Wait(); err != nil {
		fmt.Println(err)
		return
	}
	if err := commit(d, shards); err != nil {
		fmt.Println(err)
		return
	}

	f, err := d.open(indexName)
	if err != nil {
		fmt.Println(err)
		return
	}
	var parts []safetensors.Tensor
	for _, t := range f.Tensors() {
		parts = append(parts, t)
	}
	moment, err := safetensors.Concat(0, parts...)
	fmt.Println(moment, err)
	// Output: U8 [32] <nil>
}

// A stuck rank has one byte left to write and never does.
type stuck struct {
	reached chan struct{} // closed then
	free    chan struct{} // ends it
}

func (s stuck) Read([]byte) (int, error) {
	close(s.reached)
	<-s.free
	return 0, errDisk
}

// TestRankDies has one of four ranks end just before the end of its shard, as it does for
// the store when its process is killed. That shard does not appear, so that no index can be
// made, and readers find the previous checkpoint only. The rank repeats its part, and the
// new checkpoint is complete.
func TestRankDies(t *testing.T) {
	const size = 20 << 20
	leftOver := map[string]int{"file": 1} // elsewhere, the parts are no object
	for provider, d := range folders(t) {
		step := func(n int) folder { return folder{blob.PrefixedBucket(d.Bucket, fmt.Sprintf("step-%d/", n)), d.ctx} }
		previous, next := step(1000), step(2000)
		for rank := range shards {
			require.NoError(t, save(previous, rank, 8, zeros{}))
		}
		require.NoError(t, commit(previous, shards))

		dying, died := stuck{make(chan struct{}), make(chan struct{})}, make(chan error)
		go func() { died <- save(next, 2, size, io.MultiReader(io.LimitReader(zeros{}, size-1), dying)) }()
		for _, rank := range []int{0, 1, 3} {
			require.NoError(t, save(next, rank, size, zeros{}))
		}
		<-dying.reached

		err := commit(next, shards)
		require.ErrorContains(t, err, shards[2], provider)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorIs(t, errorOf(next.open(indexName)), fs.ErrNotExist)
		f := must(previous.open(indexName))
		require.EqualValues(t, 4*8, f.ParameterCount()[safetensors.U8])

		require.NoError(t, save(next, 2, size, zeros{}))
		require.NoError(t, commit(next, shards))
		require.Len(t, keys(t, next), 4+1+leftOver[provider])
		close(dying.free)
		require.ErrorIs(t, <-died, errDisk)
		f = must(next.open(indexName))
		require.EqualValues(t, 4*size, f.ParameterCount()[safetensors.U8])
	}
}
