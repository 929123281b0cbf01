package dest

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
// checkpoint. As in a folder, no shard replaces another: a reader of the earlier
// checkpoint, which may be the one that is being copied, must not meet the new
// shards. If Write fails before the last upload, it removes the new shards.
func (o objects) Write(tensors map[string]safetensors.Tensor, metadata map[string]string) (err error) {
	earlier, err := o.b.List(o.folder)
	if err != nil {
		return err
	}
	shards := newNames(safetensors.Split(tensors, shardSize(o.maxBytes)), earlier)
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

// removeEarlier removes the files of an earlier checkpoint, the one that a folder is
// opened by first.
func (o objects) removeEarlier(earlier, kept []string) error {
	var errs []error
	for _, name := range slices.Concat([]string{modelFile, indexFile}, earlier) {
		ours := name == modelFile || name == indexFile || shardName.MatchString(name)
		i := slices.Index(earlier, name)
		if !ours || i < 0 || slices.Contains(kept, name) {
			continue
		}
		earlier = slices.Delete(slices.Clone(earlier), i, i+1)
		if err := o.b.Delete(o.key(name)); err != nil {
			errs = append(errs, fmt.Errorf("the new checkpoint is complete, but a file of an earlier one could not be removed: %w", err))
		}
	}
	return errors.Join(errs...)
}

// shardName matches the names of shards that this package writes.
var shardName = regexp.MustCompile(`^model(?:\.(\d+))?-\d{5,}-of-\d{5,}\.safetensors$`)

// newNames returns several shards under a stem that no earlier shard has.
func newNames(shards map[string]map[string]safetensors.Tensor, earlier []string) map[string]map[string]safetensors.Tensor {
	next := 0
	for _, name := range earlier {
		if m := shardName.FindStringSubmatch(name); m != nil {
			n, _ := strconv.Atoi(m[1])
			next = max(next, n+1)
		}
	}
	if next == 0 || len(shards) == 1 {
		return shards
	}
	renamed := make(map[string]map[string]safetensors.Tensor, len(shards))
	for name, tensors := range shards {
		renamed[fmt.Sprintf("model.%d%s", next, strings.TrimPrefix(name, "model"))] = tensors
	}
	return renamed
}
