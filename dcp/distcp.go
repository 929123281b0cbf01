package dcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/torchtype"
)

// metadataFile is the name of the file by which Open recognizes a checkpoint of FileSystemWriter,
// in the first of the two formats of DCP. The file is a pickle that maps each chunk of each tensor
// to its place in the files __RANK_NUMBER.distcp. Each chunk is itself a file of torch.save, and
// chunks are adjacent. With SerializationFormat.SAFETENSORS, instead, the end of each .distcp file
// is a safetensors file with all its chunks, which PyTorch itself cannot read from there.
//
// If the ranks save without communicating (use_collectives=False), each writes such a file for its own
// chunks, with the name __RANK.metadata.
const metadataFile = ".metadata"

// openChunks opens the checkpoint that the files metas in a directory describe: a .metadata, or those of
// all ranks.
func openChunks(in osfile.Tree, dir string, metas []string, skip func(name string, why error)) (whole *safetensors.File, err error) {
	if err := checkCount(len(metas)); err != nil {
		return nil, err
	}
	all, err := readAll(in, dir, metas)
	if err != nil {
		return nil, err
	}
	f := &files{in: in, byName: make(map[string]*file)}
	defer func() {
		if whole == nil { // after an error, and even after a panic of the fs.FS
			f.close()
		}
	}()
	if err := f.open(dir, all); err != nil {
		return nil, err
	}
	tensors := make(map[string]safetensors.Tensor, len(all.entries))
	for _, entries := range all.entries {
		name := entries[0].name
		if name == reserved && skip != nil {
			skip(name, prefix.Unsupported{Err: errReserved})
			continue
		}
		joined, err := f.join(entries)
		switch why := (prefix.Unsupported{}); {
		case errors.As(err, &why) && skip != nil:
			skip(name, why)
		case err != nil:
			return nil, err
		default:
			tensors[name] = joined
		}
	}
	if skip != nil {
		for _, name := range all.objects {
			skip(name, errors.New("it is a Python object, which was not read"))
		}
	}
	if whole, err = safetensors.FileOf(tensors, nil, f.close); err != nil { // a name is not valid in safetensors
		return nil, broken("", "%v", prefix.Strip(err))
	}
	return whole, nil
}

// A described consists of the entries of all files of metadata in a directory.
type described struct {
	entries [][]entry // entries of each tensor, one from each file that has the tensor
	objects []string  // sorted names of the entries that are not tensors
}

// An entry describes a tensor as one file of metadata does.
type entry struct {
	*tensor
	places []stored
	from   string // name of the file of metadata
}

// readAll reads files of metadata, which may have at most 100 MB together.
func readAll(in osfile.Tree, dir string, metas []string) (all *described, err error) {
	all = &described{}
	index := make(map[string]int) // index of each tensor in all.entries
	bytes, steps := pickle.MaxSize, maxSteps
	for _, from := range metas {
		data, err := readFile(in.FS, in.Join(dir, from), bytes)
		if err != nil {
			return nil, err
		}
		c, err := readMetadata(data, steps)
		if err != nil {
			return nil, broken("", "%s: %v", from, err)
		}
		bytes, steps = bytes-len(data), steps-c.steps
		for i := range c.tensors {
			t := &c.tensors[i]
			at, known := index[t.name]
			if !known {
				at = len(all.entries)
				index[t.name] = at
				all.entries = append(all.entries, nil)
			}
			all.entries[at] = append(all.entries[at], entry{t, c.stored[t.name], from})
		}
		all.objects = append(all.objects, c.objects...)
	}
	slices.Sort(all.objects)
	all.objects = slices.Compact(all.objects)
	for _, name := range all.objects {
		if at, both := index[name]; both {
			return nil, broken(name, "it is a tensor in %s, and a Python object in the file of another rank", all.entries[at][0].from)
		}
	}
	return all, nil
}

// readFile returns the content of a file of metadata, which may have at most this number of bytes.
func readFile(fsys fs.FS, name string, most int) ([]byte, error) {
	r, _, err := osfile.OpenFS(fsys, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	const window = 256 << 10 // each read may be a request
	data, err := io.ReadAll(bufio.NewReaderSize(io.LimitReader(r, int64(most)+1), window))
	switch {
	case err != nil:
		return nil, openError(name, err)
	case len(data) > most:
		return nil, broken("", "the files of metadata up to %s have more than %d bytes", path.Base(name), pickle.MaxSize)
	}
	return data, nil
}

// join returns a tensor joined from its chunks in all entries. It ignores chunks without elements. If
// several ranks have saved the same chunk, the copies are compared when they are read.
func (f *files) join(entries []entry) (joined safetensors.Tensor, err error) {
	t := entries[0]
	row, _ := torchtype.Of(t.dtype.Name)
	var dtype safetensors.DType
	if dtype.UnmarshalText([]byte(row.Safetensors)) != nil {
		return joined, fmt.Errorf("tensor %s: %w", quote(t.name), prefix.Unsupported{Err: fmt.Errorf("safetensors has no dtype for %v", t.dtype)})
	}
	var pieces []*piece
	for _, e := range entries {
		if e.dtype != t.dtype || !slices.Equal(e.size, t.size) {
			return joined, broken(t.name, "it is %v of size %s in %s, and %v of size %s in %s", t.dtype, shapetext.Of(t.size), t.from, e.dtype, shapetext.Of(e.size), e.from)
		}
		for _, b := range e.chunks {
			if b.empty() {
				continue
			}
			s, err := find(e.places, b)
			if err != nil {
				return joined, broken(t.name, "%v", err)
			}
			p := &piece{box: b, stored: b, file: quote(s.file)}
			if p.tensor, err = f.chunk(t.name, dtype, b, s); err != nil {
				return joined, err
			}
			pieces = append(pieces, p)
		}
	}
	if len(entries) > 1 {
		none := int64(0)
		if pieces, err = mergeCopies(t.name, pieces, &none); err != nil {
			return joined, err
		}
	}
	return tile(t.name, dtype, t.size, pieces)
}

// find returns the place of a chunk. Like PyTorch, it looks the chunk up by its offsets.
func find(places []stored, b box) (stored, error) {
	i, ok := slices.BinarySearchFunc(places, b.begin, func(s stored, offsets []int) int { return slices.Compare(s.offsets, offsets) })
	switch {
	case !ok:
		return stored{}, fmt.Errorf("no file has the chunk at %s", shapetext.Of(b.begin))
	case i+1 < len(places) && slices.Equal(places[i+1].offsets, b.begin):
		return stored{}, fmt.Errorf("the chunk at %s is in two places", shapetext.Of(b.begin))
	}
	return places[i], nil
}

// openChunk returns a reader of a chunk. Its first read calls open, which must return a tensor with
// this dtype and shape. Errors contain the text place, which describes where the chunk lies.
func openChunk(open func() (safetensors.Tensor, error), place string, dtype safetensors.DType, shape []int) lazy {
	return sync.OnceValues(func() (io.ReaderAt, error) {
		t, err := open()
		if err == nil && (t.DType() != dtype || !slices.Equal(t.Shape(), shape)) {
			err = broken("", "it holds %v, %v %s is expected", t, dtype, shapetext.Of(shape))
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
		return safetensors.Tensor{}, prefix.Truncated{Err: broken(name, "the chunk at %s: bytes %d to %d+%d of %.200q, which has %d", shapetext.Of(b.begin), s.offset, s.offset, s.length, s.file, size)}
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
	if t, err = safetensors.NewTensorAt(dtype, sizes, osfile.NamedReader{ReaderAt: openChunk(open, place, dtype, sizes), File: in.Name()}); err != nil {
		return t, broken(name, "%v", prefix.Strip(err))
	}
	// torch.save stores every element of a chunk once. Chunks must not share bytes: each is opened
	// and inspected, so that shared bytes would let a small file cause much work.
	if t.Size() > s.length {
		return t, broken(name, "the chunk at %s: %v does not fit into the %d bytes at %s", shapetext.Of(b.begin), t, s.length, place)
	}
	if f.left -= s.length; f.left < 0 {
		return t, broken(name, "the chunk at %s, %d bytes at %s, shares bytes with others: all chunks together are larger than their files", shapetext.Of(b.begin), s.length, place)
	}
	return t, nil
}
