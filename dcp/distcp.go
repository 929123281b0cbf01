package dcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/torchtype"
)

// metadataFile is the name of the file by which Open recognizes a checkpoint of FileSystemWriter,
// in the first of the two formats of DCP. The file is a pickle that maps each chunk of each tensor
// to its place in the files __RANK_NUMBER.distcp. Each chunk is itself a file of torch.save, and
// chunks are adjacent. With SerializationFormat.SAFETENSORS, instead, the end of each .distcp file
// is a safetensors file with all its chunks, which PyTorch itself cannot read from there.
const metadataFile = ".metadata"

// openChunks opens the checkpoint in a directory with a .metadata.
func openChunks(in osfile.Tree, dir string, skip func(name string, why error)) (whole *safetensors.File, err error) {
	data, err := readFile(in.FS, in.Join(dir, metadataFile))
	if err != nil {
		return nil, err
	}
	meta, err := readMetadata(data, maxSteps)
	if err != nil {
		return nil, broken("", "%s: %v", metadataFile, err)
	}
	f := &files{in: in, byName: make(map[string]*file)}
	defer func() {
		if whole == nil { // true even if the fs.FS has panicked
			f.close()
		}
	}()
	if err := f.open(dir, meta); err != nil {
		return nil, err
	}
	tensors := make(map[string]safetensors.Tensor, len(meta.tensors))
	for i := range meta.tensors {
		t := &meta.tensors[i]
		if t.name == reserved && skip != nil {
			skip(t.name, prefix.Unsupported{Err: errReserved})
			continue
		}
		joined, err := f.join(t, meta.stored[t.name])
		switch why := (prefix.Unsupported{}); {
		case errors.As(err, &why) && skip != nil:
			skip(t.name, why)
		case err != nil:
			return nil, err
		default:
			tensors[t.name] = joined
		}
	}
	if skip != nil {
		slices.Sort(meta.objects)
		for _, name := range meta.objects {
			skip(name, errors.New("it is a Python object, which was not read"))
		}
	}
	if whole, err = safetensors.FileOf(tensors, nil, f.close); err != nil { // a name is not valid in safetensors
		return nil, broken("", "%v", prefix.Strip(err))
	}
	return whole, nil
}

// readFile returns the content of a file, which may have at most 100 MB.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	r, _, err := osfile.OpenFS(fsys, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	const window = 256 << 10 // each read may be a request
	data, err := io.ReadAll(bufio.NewReaderSize(io.LimitReader(r, pickle.MaxSize+1), window))
	switch {
	case err != nil:
		return nil, openError(name, err)
	case len(data) > pickle.MaxSize:
		return nil, broken("", "%s has more than %d bytes", metadataFile, pickle.MaxSize)
	}
	return data, nil
}

// join returns a tensor joined from its chunks. It ignores chunks without elements.
func (f *files) join(t *tensor, places []stored) (joined safetensors.Tensor, err error) {
	row, _ := torchtype.Of(t.dtype.Name)
	var dtype safetensors.DType
	if dtype.UnmarshalText([]byte(row.Safetensors)) != nil {
		return joined, fmt.Errorf("tensor %s: %w", quote(t.name), prefix.Unsupported{Err: fmt.Errorf("safetensors has no dtype for %v", t.dtype)})
	}
	var pieces []*piece
	for _, b := range t.chunks {
		if b.empty() {
			continue
		}
		s, err := find(places, b)
		if err != nil {
			return joined, broken(t.name, "%v", err)
		}
		p := &piece{box: b, stored: b, file: quote(s.file)}
		if p.tensor, err = f.chunk(t.name, dtype, b, s); err != nil {
			return joined, err
		}
		pieces = append(pieces, p)
	}
	return tile(t.name, dtype, t.size, pieces)
}

// find returns the place of a chunk. Like PyTorch, it looks the chunk up by its offsets.
func find(places []stored, b box) (stored, error) {
	i, ok := slices.BinarySearchFunc(places, b.begin, func(s stored, offsets []int) int { return slices.Compare(s.offsets, offsets) })
	switch {
	case !ok:
		return stored{}, fmt.Errorf("no file has the chunk at %v", b.begin)
	case i+1 < len(places) && slices.Equal(places[i+1].offsets, b.begin):
		return stored{}, fmt.Errorf("the chunk at %v is in two places", b.begin)
	}
	return places[i], nil
}

// openChunk returns a reader of a chunk. Its first read calls open, which must return a tensor with
// this dtype and shape. Errors contain the text place, which describes where the chunk lies.
func openChunk(open func() (safetensors.Tensor, error), place string, dtype safetensors.DType, shape []int) lazy {
	return sync.OnceValues(func() (io.ReaderAt, error) {
		t, err := open()
		if err == nil && (t.DType() != dtype || !slices.Equal(t.Shape(), shape)) {
			err = broken("", "it holds %v, %v %v is expected", t, dtype, shape)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place, prefix.Strip(err))
		}
		return t, nil
	})
}

// chunk returns a chunk as a tensor. The first read of the tensor opens the chunk.
func (f *files) chunk(name string, dtype safetensors.DType, b box, s stored) (safetensors.Tensor, error) {
	in, sizes := f.byName[s.file], b.sizes()
	if s.transformed != "" {
		return safetensors.Tensor{}, fmt.Errorf("tensor %s: %w", quote(name), prefix.Unsupported{Err: fmt.Errorf("its chunks are transformed by %s", s.transformed)})
	}
	if size := in.info.Size(); s.offset > size || s.length > size-s.offset {
		return safetensors.Tensor{}, broken(name, "the chunk at %v: bytes %d to %d+%d of %.200q, which has %d", b.begin, s.offset, s.offset, s.length, s.file, size)
	}
	place := fmt.Sprintf("byte %d of %.200q", s.offset, s.file)
	t, err := safetensors.NewTensorAt(dtype, sizes, in) // never read; only its size in bytes matters
	if err != nil {
		return t, broken(name, "%v", prefix.Strip(err))
	}
	open := func() (safetensors.Tensor, error) {
		return readSaved(io.NewSectionReader(in, s.offset, s.length), s.length, dtype, sizes)
	}
	if s.length == t.Size() { // the chunk is in a safetensors file, since a file of torch.save would be longer
		open = in.saved(name, s.offset)
	}
	if t, err = safetensors.NewTensorAt(dtype, sizes, openChunk(open, place, dtype, sizes)); err != nil {
		return t, broken(name, "%v", prefix.Strip(err))
	}
	// torch.save stores every element of a chunk once. Chunks must not share bytes: each is opened
	// and inspected, so that shared bytes would let a small file cause much work.
	if t.Size() > s.length {
		return t, broken(name, "the chunk at %v: %v does not fit into the %d bytes at %s", b.begin, t, s.length, place)
	}
	if f.left -= s.length; f.left < 0 {
		return t, broken(name, "the chunk at %v, %d bytes at %s, shares bytes with others: all chunks together are larger than their files", b.begin, s.length, place)
	}
	return t, nil
}
