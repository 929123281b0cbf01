package dest

import (
	"io"
	"io/fs"
	"path"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// An object is a Destination that is one object in a bucket.
type object struct {
	b      *bucket.Bucket
	key    string
	format *format.Format
}

func (o object) Free() error { return checkAbsent(o.b.URL(o.key), o.b.Head(o.key)) }

func (o object) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error {
	return o.b.Write(o.key, numbers.Bytes(tensors), calling(last, func(w io.Writer) error { return o.format.Write(w, tensors, metadata) }))
}

func (o object) Copy(s Shard, last func() error) error {
	return o.b.Write(o.key, s.Size, calling(last, s.CopyTo))
}

// An objects is a Destination that is a folder in a bucket.
type objects struct {
	b        *bucket.Bucket
	folder   string
	maxBytes int64
}

// key returns the key of the file with this name.
func (o objects) key(name string) (string, error) {
	return path.Join(o.folder, name), checkName(name)
}

func (o objects) Free() error { return free(o, o.maxBytes) }

// Lock does nothing, because buckets have no locks.
func (o objects) Lock(bool) (unlock func(), err error) { return func() {}, nil }

func (o objects) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error {
	set := &Set{Metadata: metadata, Force: true, Unchanged: last}
	set.Shards, set.Index = Split(tensors, o.maxBytes, format.Stem, "")
	return set.Write(o)
}

func (o objects) Copy(s Shard, last func() error) error {
	set := &Set{Shards: map[string]Shard{format.ModelFile: s}, Force: true, Unchanged: last}
	return set.Write(o)
}

func (o objects) Files(dir string, _ bool) (map[string]Stored, error) {
	key := o.folder
	if dir != "" {
		var err error
		if key, err = o.key(dir); err != nil {
			return nil, err
		}
	}
	entries, err := fs.ReadDir(o.b, path.Clean(key))
	files := make(map[string]Stored, len(entries))
	for _, e := range entries {
		if info, _ := e.Info(); !e.IsDir() { // never fails for an entry of a list
			files[e.Name()] = Stored{info.Size(), info.(interface{ Version() string }).Version()}
		}
	}
	return files, err
}

func (o objects) Read(name string, n int64) ([]byte, error) {
	key, err := o.key(name)
	if err != nil {
		return nil, err
	}
	return o.b.Start(key, n)
}

func (o objects) Create(name string, data []byte) error {
	key, err := o.key(name)
	if err != nil {
		return err
	}
	return o.b.Create(key, data)
}

func (o objects) Put(name string, data []byte) error {
	return o.WriteShard(name, Shard{Size: int64(len(data)), CopyTo: Writing(data)}, nil, nil)
}

func (o objects) WriteShard(name string, s Shard, metadata map[string]string, last func() error) error {
	key, err := o.key(name)
	if err != nil {
		return err
	}
	if s.CopyTo == nil {
		s.Size = numbers.Bytes(s.Tensors)
		s.CopyTo = func(w io.Writer) error { return safetensors.Write(w, s.Tensors, metadata) }
	}
	return o.b.Write(key, s.Size, calling(last, s.CopyTo))
}

func (o objects) Start(tensors map[string]safetensors.Tensor, metadata map[string]string) ([]byte, *safetensors.Header, error) {
	return startOf(tensors, metadata)
}

func (o objects) Open() (*safetensors.File, error) {
	return safetensors.OpenFS(o.b, path.Clean(o.folder))
}

func (o objects) PathOf(name string) string { return o.b.URL(path.Join(o.folder, name)) }

func (o objects) Remove(name string) error {
	key, err := o.key(name)
	if err != nil {
		return err
	}
	return o.b.Delete(key)
}

// Sweep does nothing, because the store removes the parts of incomplete uploads, by itself or by a
// rule.
func (o objects) Sweep(...string) {}

// AtOnce returns 1, because the parts of one shard are already uploaded concurrently.
func (o objects) AtOnce() int { return 1 }
