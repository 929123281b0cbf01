package dest

import (
	"io"
	"path"

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

func (o objects) Occupied() (string, error) { return occupied(o) }

func (o objects) Write(tensors map[string]safetensors.Tensor, metadata map[string]string) error {
	set := &Set{Shards: make(map[string]Shard), Metadata: metadata, Force: true}
	for name, shard := range safetensors.Split(tensors, o.maxBytes) {
		set.Shards[name] = Shard{Tensors: shard}
	}
	if len(set.Shards) > 1 {
		set.Index = format.IndexFile
	}
	return set.Write(o)
}
