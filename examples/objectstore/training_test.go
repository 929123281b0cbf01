package objectstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sync/errgroup"
)

const ranks = 4

func shardOf(rank int) string { return fmt.Sprintf("model-%05d-of-%05d.safetensors", rank+1, ranks) }

func shards() (names []string) {
	for rank := range ranks {
		names = append(names, shardOf(rank))
	}
	return names
}

// save writes the shard of one rank, as each process of a training run does: here
// one tensor, from where data comes.
func save(d folder, rank, elements int, data io.Reader) error {
	return d.create(shardOf(rank), blob.WriterOptions{}, func(w io.Writer) error {
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
	for rank := range ranks {
		group.Go(func() error { return save(d, rank, 8, zeros{}) })
	}
	if err := group.Wait(); err != nil {
		fmt.Println(err)
		return
	}
	if err := commit(d, shards()); err != nil {
		fmt.Println(err)
		return
	}

	f, err := openCheckpoint(d)
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

// TestMain makes the test binary a rank, for TestRankDies, if OBJECTSTORE_RANK is set:
// it writes its shard of 20 MiB, but for the last byte if OBJECTSTORE_DIES is set.
func TestMain(m *testing.M) {
	rank, err := strconv.Atoi(os.Getenv("OBJECTSTORE_RANK"))
	if err != nil {
		os.Exit(m.Run())
	}
	data := io.Reader(zeros{})
	if os.Getenv("OBJECTSTORE_DIES") != "" {
		data = io.MultiReader(io.LimitReader(zeros{}, 20<<20-1), dying{})
	}
	d, err := openFolder(context.Background(), os.Getenv("OBJECTSTORE_URL"))
	if err == nil {
		err = save(d, rank, 20<<20, data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dying waits to be killed.
type dying struct{}

func (dying) Read([]byte) (int, error) {
	fmt.Println("one byte is missing")
	time.Sleep(time.Hour)
	return 0, io.ErrUnexpectedEOF
}

// startRank starts a process that saves its shard.
func startRank(t *testing.T, location string, rank int, dies string) (*exec.Cmd, io.Reader) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "OBJECTSTORE_URL="+location, "OBJECTSTORE_RANK="+strconv.Itoa(rank), "OBJECTSTORE_DIES="+dies)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	return c, out
}

// TestRankDies kills one of four processes just before the end of its shard. That
// shard does not appear, so that no index can be made, and readers find the previous
// checkpoint only. The rank repeats its part, and the new checkpoint is complete.
func TestRankDies(t *testing.T) {
	s, _ := startStore(t)
	for location, leftOver := range map[string]int{
		s.location: 0, // the parts are no object
		"file://" + filepath.ToSlash(t.TempDir()) + "/step-2000?create_dir=true&no_tmp_dir=true": 1,
	} {
		previous := openedFolder(t, strings.Replace(location, "step-2000", "step-1000", 1))
		for rank := range ranks {
			require.NoError(t, save(previous, rank, 8, zeros{}))
		}
		require.NoError(t, commit(previous, shards()))

		d := openedFolder(t, location)
		var saves []*exec.Cmd
		for _, rank := range []int{0, 1, 3} {
			c, _ := startRank(t, location, rank, "")
			saves = append(saves, c)
		}
		dying, out := startRank(t, location, 2, "yes")
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "one byte is missing\n", line)
		require.NoError(t, dying.Process.Kill())
		require.Error(t, dying.Wait())
		for _, c := range saves {
			require.NoError(t, c.Wait())
		}

		err = commit(d, shards())
		require.ErrorContains(t, err, shardOf(2))
		require.Equal(t, gcerrors.NotFound, gcerrors.Code(err))
		_, err = openCheckpoint(d)
		require.Equal(t, gcerrors.NotFound, gcerrors.Code(err))
		f, err := openCheckpoint(previous)
		require.NoError(t, err)
		require.EqualValues(t, ranks*8, f.ParameterCount()[safetensors.U8])

		again, _ := startRank(t, location, 2, "")
		require.NoError(t, again.Wait())
		require.NoError(t, commit(d, shards()))
		f, err = openCheckpoint(d)
		require.NoError(t, err)
		require.EqualValues(t, ranks*20<<20, f.ParameterCount()[safetensors.U8])
		require.Len(t, keys(t, d), ranks+1+leftOver)
	}
}
