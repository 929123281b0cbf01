package dest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
)

// An object is a file in a bucket.
type object struct {
	b     *bucket.Bucket
	key   string
	write func(io.Writer, map[string]safetensors.Tensor, map[string]string) error
}

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

func (o objects) key(name string) string { return path.Join(o.folder, name) }

func (o objects) Occupied() (string, error) {
	names, err := o.b.List(o.folder)
	if i := slices.IndexFunc(names, IsCheckpoint); i >= 0 {
		return o.b.URL(o.key(names[i])), nil
	}
	return "", err
}

// Write uploads the shards, then the index, then removes the files of an earlier
// checkpoint. No shard replaces another: a reader of the earlier checkpoint, which may
// be the one that is being copied, must not meet the new shards. So where there is
// anything, the names of several shards begin with a random number. If Write fails
// before the new checkpoint is the one that is opened, it removes the new shards.
func (o objects) Write(tensors map[string]safetensors.Tensor, metadata map[string]string) error {
	listed, err := o.b.List(o.folder)
	if err != nil {
		return err
	}
	earlier, err := o.earlier(listed)
	if err != nil {
		return err
	}
	shards := safetensors.Split(tensors, o.maxBytes)
	if len(shards) > 1 && len(listed) > 0 {
		prefix := fmt.Sprintf("%09d-", rand.IntN(1_000_000_000))
		renamed := make(map[string]map[string]safetensors.Tensor, len(shards))
		for name, shard := range shards {
			renamed[prefix+name] = shard
		}
		shards = renamed
	}
	index, err := indexOf(shards, metadata)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(shards))
	for _, name := range names {
		err := o.b.Write(o.key(name), sizeOf(shards[name]), func(w io.Writer) error {
			return safetensors.Write(w, shards[name], metadata)
		})
		if err != nil && len(shards) > 1 {
			o.remove(names) // those that are there, and perhaps this one
		}
		if err != nil {
			return err
		}
	}
	if len(shards) > 1 {
		names = append(names, format.IndexFile)
		if err := o.commit(index, names, slices.Contains(earlier, format.ModelFile)); err != nil {
			return err
		}
	}
	return o.removeEarlier(earlier, names)
}

// commit makes shards the checkpoint of the folder: by the index, or by the removal of
// the single file, which is opened before an index. An answer can get lost after the
// store has done what it was asked for, so that what is there decides.
func (o objects) commit(index []byte, names []string, single bool) error {
	err := o.b.Write(o.key(format.IndexFile), int64(len(index)), writing(index))
	if err != nil {
		now, readErr := o.b.Read(o.key(format.IndexFile), int64(len(index))+1)
		switch {
		case readErr == nil && bytes.Equal(now, index):
		case readErr == nil, errors.Is(readErr, fs.ErrNotExist):
			o.remove(names[:len(names)-1])
			return err
		default:
			return fmt.Errorf("%w; it is not known whether the new index is there, so the new shards stay: %w", err, readErr)
		}
	}
	if !single {
		return nil
	}
	if err := o.b.Delete(o.key(format.ModelFile)); err != nil {
		_, readErr := o.b.Read(o.key(format.ModelFile), 1)
		switch {
		case errors.Is(readErr, fs.ErrNotExist):
		case readErr == nil:
			slices.Reverse(names) // the index first
			o.remove(names)
			return err
		default:
			return fmt.Errorf("%w; it is not known whether the earlier checkpoint is there, so the new one stays: %w", err, readErr)
		}
	}
	return nil
}

// remove removes new files after an error, which the caller reports.
func (o objects) remove(names []string) {
	for _, name := range names {
		o.b.Delete(o.key(name))
	}
}

// indexOf returns the index of shards.
func indexOf(shards map[string]map[string]safetensors.Tensor, metadata map[string]string) ([]byte, error) {
	headers := make(map[string]*safetensors.Header, len(shards))
	for name, tensors := range shards {
		h := &safetensors.Header{Metadata: metadata}
		for name, t := range tensors {
			h.Tensors = append(h.Tensors, safetensors.TensorInfo{Name: name, DType: t.DType(), Shape: t.Shape()})
		}
		headers[name] = h
	}
	index, err := safetensors.NewIndex(maps.All(headers))
	if err != nil {
		return nil, err
	}
	return index.AppendBinary(nil)
}

// earlier returns the listed files of the checkpoint in the folder, starting with the one
// that opens it. Shards that no checkpoint has are not among them.
func (o objects) earlier(listed []string) ([]string, error) {
	files := []string{format.ModelFile, format.IndexFile}
	f, err := safetensors.OpenFS(o.b.FS(o.folder), ".")
	switch broken := (*safetensors.FormatError)(nil); {
	case err == nil:
		for name := range f.Headers() {
			files = append(files, name)
		}
		f.Close()
	case !errors.As(err, &broken) && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	var earlier []string
	for _, name := range files {
		if slices.Contains(listed, name) && !slices.Contains(earlier, name) {
			earlier = append(earlier, name)
		}
	}
	return earlier, nil
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
