// Package distcp reads the checkpoints that torch.distributed.checkpoint writes by
// default (FileSystemWriter): a folder of files __RANK_NUMBER.distcp, and a pickle named
// .metadata that says which chunk of which tensor is where in them. Each chunk is a file
// of torch.save, without anything between them; or all chunks of a file are in one of
// safetensors at its end, with SerializationFormat.SAFETENSORS, which PyTorch itself
// cannot read from there.
//
// Open reads .metadata only, as data: nothing in it is executed. A chunk is looked into
// when its tensor is first read, and package dcp joins the chunks. What PyTorch loads
// without a word is refused: chunks that overlap, leave holes, or lie outside of their
// tensor or their file.
package distcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/torch"
)

// MetadataName is the name of the file that makes a folder a checkpoint.
const MetadataName = ".metadata"

// Contents are what a checkpoint holds.
type Contents struct {
	*safetensors.File
	Refused map[string]error // tensors that cannot be read, and why
	Objects []string         // names of what is no tensor, sorted
}

// Open opens the checkpoint in a folder of a file system. Its files must be
// io.ReaderAts. ctx ends Open.
func Open(ctx context.Context, fsys fs.FS, dir string) (*Contents, error) {
	c, err := open(ctx, fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("distributed checkpoint: %w", err)
	}
	return c, nil
}

func open(ctx context.Context, fsys fs.FS, dir string) (_ *Contents, err error) {
	meta, err := openMetadata(ctx, fsys, path.Join(dir, MetadataName))
	if err != nil {
		return nil, err
	}
	f := &files{ctx: ctx, fsys: fsys, byName: make(map[string]*file), models: make(map[model]func() (*safetensors.File, error))}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if err := f.open(dir, meta); err != nil {
		return nil, err
	}
	c := &Contents{Refused: make(map[string]error), Objects: meta.objects}
	slices.Sort(c.Objects)
	var parts parts
	for i := range meta.tensors {
		t := &meta.tensors[i]
		chunks, err := f.chunks(t, meta.stored[t.name])
		switch other := (unsupported{}); {
		case errors.As(err, &other):
			c.Refused[t.name] = other
		case err != nil:
			return nil, fmt.Errorf("tensor %.200q: %w", t.name, err)
		}
		for k, chunk := range chunks {
			parts.add(k, t.name, chunk)
		}
	}
	c.File, err = parts.join(f.close)
	return c, err
}

// openMetadata reads the file .metadata.
func openMetadata(ctx context.Context, fsys fs.FS, name string) (*checkpoint, error) {
	r, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return nil, err
	}
	at, ok := r.(io.ReaderAt)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is not a file that can be read by offset")}
	}
	c, err := readMetadata(ctx, pickle.Buffered(io.NewSectionReader(at, 0, info.Size()), info.Size()), info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", MetadataName, err)
	}
	return c, nil
}

// An unsupported is why a tensor cannot be one of safetensors.
type unsupported struct{ error }

// chunks returns the chunks of a tensor that have elements, or else one that has none.
func (f *files) chunks(t *tensor, places []stored) (chunks []located, err error) {
	dtype := torch.DType(t.dtype.Name)
	if dtype == 0 {
		return nil, unsupported{fmt.Errorf("safetensors has no dtype for %v", t.dtype)}
	}
	for _, b := range t.chunks {
		if b.empty() {
			continue
		}
		s, err := find(places, b)
		if err != nil {
			return nil, err
		}
		made, err := f.chunk(t.name, dtype, b, s)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, located{made, b.offsets})
	}
	if len(chunks) > 0 {
		return chunks, nil
	}
	none, err := safetensors.NewTensor(dtype, t.size, []byte{})
	return []located{{none, make([]int, len(t.size))}}, err
}

// find returns where a chunk is. PyTorch looks it up by its offsets, too.
func find(places []stored, b box) (stored, error) {
	i, ok := slices.BinarySearchFunc(places, b.offsets, func(s stored, offsets []int) int { return slices.Compare(s.offsets, offsets) })
	switch {
	case !ok:
		return stored{}, fmt.Errorf("no file has the chunk at %v", b.offsets)
	case i+1 < len(places) && slices.Equal(places[i+1].offsets, b.offsets):
		return stored{}, fmt.Errorf("the chunk at %v is in two places", b.offsets)
	}
	return places[i], nil
}

// chunk returns a chunk as a tensor that is opened when it is read.
func (f *files) chunk(name string, dtype safetensors.DType, b box, s stored) (safetensors.Tensor, error) {
	in := f.byName[s.file]
	if s.transformed != "" {
		return safetensors.Tensor{}, unsupported{fmt.Errorf("its chunks are transformed by %s", s.transformed)}
	}
	if size := in.info.Size(); s.offset > size || s.length > size-s.offset {
		return safetensors.Tensor{}, fmt.Errorf("the chunk at %v: bytes %d to %d+%d of %.200q, which has %d", b.offsets, s.offset, s.offset, s.length, s.file, size)
	}
	c := &chunk{
		entry:  io.NewSectionReader(in, s.offset, s.length),
		length: s.length,
		dtype:  dtype,
		sizes:  b.sizes,
		place:  fmt.Sprintf("byte %d of %.200q", s.offset, s.file),
	}
	t, err := safetensors.NewTensorAt(dtype, b.sizes, c)
	if err != nil {
		return t, err
	}
	look := func() (safetensors.Tensor, error) { return c.look(f.ctx) }
	if s.length == t.Size() { // a file of torch.save would be longer
		look = f.saved(in, name, s)
	}
	c.open = sync.OnceValues(func() (io.ReaderAt, error) { return c.check(look()) })
	// torch.save has all elements of a chunk once. No bytes are in two chunks: each is
	// looked into, which may take long.
	if t.Size() > s.length {
		return t, fmt.Errorf("the chunk at %v: %v does not fit into the %d bytes at %s", b.offsets, t, s.length, c.place)
	}
	if f.left -= s.length; f.left < 0 {
		return t, fmt.Errorf("the chunk at %v, %d bytes at %s, shares bytes with others: all chunks together are larger than their files", b.offsets, s.length, c.place)
	}
	return t, nil
}
