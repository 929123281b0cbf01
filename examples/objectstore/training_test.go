package objectstore

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
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

// save writes the shard of one rank, as each process of a training run does. Here a shard has one
// tensor, whose elements data holds.
func save(d folder, rank, elements int, data io.ReaderAt) error {
	moment, err := safetensors.NewTensorAt(safetensors.U8, []int{elements}, data)
	if err != nil {
		return err
	}
	return d.create(shards[rank], func(w io.Writer) error {
		return safetensors.Write(w, map[string]safetensors.Tensor{fmt.Sprintf("moment.%d", rank): moment}, nil)
	})
}

// Four ranks save a checkpoint. Each writes its shard. After all have returned, the first one
// writes the index. A reader joins the parts.
func Example_training() {
	ctx := context.Background()
	bucket := memblob.OpenBucket(nil)
	defer bucket.Close()
	d := folder{blob.PrefixedBucket(bucket, "step-2000/run-7/"), ctx}

	var group errgroup.Group // stands for the barrier between the processes
	for rank := range shards {
		group.Go(func() error { return save(d, rank, 8, zeros{}) })
	}
	if err := group.Wait(); err != nil {
		log.Fatal(err)
	}
	if err := commit(d, shards); err != nil {
		log.Fatal(err)
	}

	f, err := d.open(indexName)
	if err != nil {
		log.Fatal(err)
	}
	var parts []safetensors.Tensor
	for _, t := range f.Tensors() {
		parts = append(parts, t)
	}
	moment, err := safetensors.Concat(0, parts...)
	fmt.Println(moment, err)
	// Output: U8 [32] <nil>
}

// A stuck reader returns all elements of a rank except the last ones. A read of these waits until
// free is closed.
type stuck struct {
	reached chan struct{} // closed when that read begins
	free    chan struct{} // closed to end that read
}

const large = 20 << 20 // number of elements of a shard that is uploaded in parts

func (s stuck) ReadAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) < large {
		return zeros{}.ReadAt(b, off)
	}
	close(s.reached)
	<-s.free
	return 0, errDisk
}

// TestRankDies: one of four ranks ends near the end of its shard. To the store this looks as if its
// process was killed. The shard does not appear, so that no index can be written, and readers find
// only the previous checkpoint. Then the rank writes its shard again, and the new checkpoint is
// complete.
func TestRankDies(t *testing.T) {
	leftOver := map[string]int{"file": 1} // in the other stores, the parts are not objects
	for provider, d := range folders(t) {
		step := func(n int) folder { return folder{blob.PrefixedBucket(d.Bucket, fmt.Sprintf("step-%d/", n)), d.ctx} }
		previous, next := step(1000), step(2000)
		for rank := range shards {
			require.NoError(t, save(previous, rank, 8, zeros{}))
		}
		require.NoError(t, commit(previous, shards))

		dying, died := stuck{make(chan struct{}), make(chan struct{})}, make(chan error)
		go func() { died <- save(next, 2, large, dying) }()
		for _, rank := range []int{0, 1, 3} {
			require.NoError(t, save(next, rank, large, zeros{}))
		}
		<-dying.reached

		err := commit(next, shards)
		require.ErrorContains(t, err, shards[2], provider)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorIs(t, errorOf(next.open(indexName)), fs.ErrNotExist)
		f := must(previous.open(indexName))
		require.EqualValues(t, 4*8, f.ParameterCount()[safetensors.U8])

		require.NoError(t, save(next, 2, large, zeros{}))
		require.NoError(t, commit(next, shards))
		require.Len(t, keys(t, next), 4+1+leftOver[provider])
		close(dying.free)
		require.ErrorIs(t, <-died, errDisk)
		f = must(next.open(indexName))
		require.EqualValues(t, 4*large, f.ParameterCount()[safetensors.U8])
	}
}
