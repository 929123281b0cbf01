package dest

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"path"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
)

// An object is a file in a bucket.
type object struct {
	b     *bucket.Bucket
	key   string
	write func(io.Writer, map[string]safetensors.Tensor, map[string]string) error
}

func (o object) Close() error { return o.b.Close() }

func (o object) Occupied() (string, error) {
	exists, err := o.b.Exists(o.key)
	if !exists {
		return "", err
	}
	return o.b.URL(o.key), err
}

func (o object) Write(tensors map[string]safetensors.Tensor, metadata map[string]string) error {
	return o.b.Write(o.key, sizeOf(tensors), func(w io.Writer) error { return o.write(w, tensors, metadata) })
}

func sizeOf(tensors map[string]safetensors.Tensor) (size int64) {
	for _, t := range tensors {
		size += t.Size()
	}
	return size
}

// objects is a folder in a bucket.
type objects struct {
	b        *bucket.Bucket
	folder   string
	maxBytes int64
}

const (
	modelFile = "model.safetensors"
	indexFile = "model.safetensors.index.json"
)

func (o objects) Close() error { return o.b.Close() }

func (o objects) key(name string) string { return path.Join(o.folder, name) }

func (o objects) Occupied() (string, error) {
	names, err := o.b.List(o.folder)
	if i := slices.IndexFunc(names, isCheckpoint); i >= 0 {
		return o.b.URL(o.key(names[i])), nil
	}
	return "", err
}

// Write uploads the shards, then the index, then removes the files of an earlier
// checkpoint. No shard replaces another: a reader of the earlier checkpoint, which may
// be the one that is being copied, must not meet the new shards. So where there is
// anything, the names of several shards begin with a random number. If Write fails
// before the last upload, it removes the new shards.
func (o objects) Write(tensors map[string]safetensors.Tensor, metadata map[string]string) (err error) {
	listed, err := o.b.List(o.folder)
	if err != nil {
		return err
	}
	earlier := o.earlier(listed)
	shards := safetensors.Split(tensors, shardSize(o.maxBytes))
	if len(shards) > 1 && len(listed) > 0 {
		prefix := fmt.Sprintf("%09d-", rand.IntN(1_000_000_000))
		renamed := make(map[string]map[string]safetensors.Tensor, len(shards))
		for name, shard := range shards {
			renamed[prefix+name] = shard
		}
		shards = renamed
	}
	index, err := safetensors.BuildIndex(headers(shards))
	if err != nil {
		return err
	}
	var written []string
	defer func() {
		if err != nil {
			for _, name := range written {
				o.b.Delete(o.key(name))
			}
		}
	}()
	upload := func(name string, size int64, write func(io.Writer) error) error {
		if err := o.b.Write(o.key(name), size, write); err != nil {
			return err
		}
		written = append(written, name)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		err := upload(name, sizeOf(shards[name]), func(w io.Writer) error {
			return safetensors.Write(w, shards[name], metadata)
		})
		if err != nil {
			return err
		}
	}
	if len(shards) > 1 {
		err := upload(indexFile, int64(len(index)), func(w io.Writer) error {
			_, err := w.Write(index)
			return err
		})
		if err != nil {
			return err
		}
	}
	kept := written
	written = nil // it is complete: nothing of it is removed any more
	return o.removeEarlier(earlier, kept)
}

// headers yields what an index says of shards.
func headers(shards map[string]map[string]safetensors.Tensor) iter.Seq2[string, *safetensors.Header] {
	return func(yield func(string, *safetensors.Header) bool) {
		for name, tensors := range shards {
			h := new(safetensors.Header)
			for name, t := range tensors {
				h.Tensors = append(h.Tensors, safetensors.TensorInfo{Name: name, DType: t.DType(), Shape: t.Shape()})
			}
			if !yield(name, h) {
				return
			}
		}
	}
}

// earlier returns those of the listed files that a checkpoint in the folder consists of,
// the one first that it is opened by. Files that it cannot be opened with are not its.
func (o objects) earlier(listed []string) []string {
	files := []string{modelFile, indexFile}
	if f, err := safetensors.OpenFS(o.b.FS(o.folder), "."); err == nil {
		for name := range f.Headers() {
			files = append(files, name)
		}
		f.Close()
	}
	var earlier []string
	for _, name := range files {
		if slices.Contains(listed, name) && !slices.Contains(earlier, name) {
			earlier = append(earlier, name)
		}
	}
	return earlier
}

// removeEarlier removes the files of an earlier checkpoint.
func (o objects) removeEarlier(earlier, kept []string) error {
	var errs []error
	for _, name := range earlier {
		if slices.Contains(kept, name) {
			continue
		}
		if err := o.b.Delete(o.key(name)); err != nil {
			errs = append(errs, fmt.Errorf("the new checkpoint is complete, but a file of an earlier one could not be removed: %w", err))
		}
	}
	return errors.Join(errs...)
}
