package dcp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A checkpoint is the content of a file .metadata.
type checkpoint struct {
	tensors []tensor
	objects []string // names of the entries that are not tensors
	stored  map[string][]stored
	steps   int // number of steps that reading the pickle took
}

// A tensor is the entry of a tensor in the file .metadata. It describes the tensor and its chunks.
type tensor struct {
	name   string
	dtype  pickle.Global
	size   []int
	chunks []box
}

// A stored is the place of a chunk's data in a file.
type stored struct {
	offsets        []int // index of the chunk's first element in the tensor
	file           string
	offset, length int64
	transformed    string // name of the transformation of the data in PyTorch, or "" if there is none
}

// maxName is the largest number of bytes in the name of a tensor or a file. Each chunk is looked up
// by both names, and the name of its tensor is copied for it.
const maxName = 1000

// maxSteps limits the steps of the pickle. It suffices for 300,000 chunks of about 190 steps each,
// and lets the pickle take at most 3 GB.
const maxSteps = 300_000 * 192

// readMetadata reads the content of .metadata: a pickle of a Metadata object. Its classes are
// recognized by their names alone, because PyTorch has moved them between modules.
func readMetadata(data []byte, maxSteps int) (*checkpoint, error) {
	u := pickle.New(bytes.NewReader(data), int64(len(data)))
	u.MaxSteps = maxSteps
	top, err := u.Load()
	if err != nil {
		return nil, err
	}
	fields, ok := fieldsOf(top, "Metadata")
	if !ok {
		return nil, fmt.Errorf("it holds %s, not the metadata of a distributed checkpoint", pickle.Describe(top))
	}
	c := &checkpoint{stored: make(map[string][]stored)}
	if err := c.readTensors(u, fields); err != nil {
		return nil, err
	}
	err = c.readStorage(u, fields)
	c.steps = u.Steps()
	return c, err
}

// fieldsOf returns the attributes of v if it is an object of a class with this name.
func fieldsOf(v any, class string) (fields *pickle.Dict, ok bool) {
	o, ok := v.(*pickle.Object)
	if !ok || o.Class.Name != class {
		return nil, false
	}
	fields, ok = o.State.(*pickle.Dict)
	return fields, ok
}

// field returns an attribute if it exists and has type T.
func field[T any](fields *pickle.Dict, name string) (v T, ok bool) {
	value, _ := fields.Get(name)
	v, ok = value.(T)
	return v, ok
}

// readTensors reads the entries of tensors, and the names of other entries.
func (c *checkpoint) readTensors(u *pickle.Unpickler, fields *pickle.Dict) error {
	entries, ok := field[*pickle.Dict](fields, "state_dict_metadata")
	if !ok {
		return errors.New("it has no state_dict_metadata")
	}
	for _, e := range entries.Entries {
		name, ok := e.Key.(string)
		o, isObject := e.Value.(*pickle.Object)
		if !ok || !isObject {
			return fmt.Errorf("the entry of %s is %s", pickle.Describe(e.Key), pickle.Describe(e.Value))
		}
		if err := checkName(name); err != nil {
			return err
		}
		if o.Class.Name == "BytesStorageMetadata" {
			c.objects = append(c.objects, name)
			continue
		}
		t, err := readTensor(u, name, o)
		if err != nil {
			return fmt.Errorf("tensor %.200q: %w", name, err)
		}
		c.tensors = append(c.tensors, t)
	}
	return nil
}

func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("a name of %d bytes, at most %d are read: %.200q", len(name), maxName, name)
	}
	return nil
}

// readTensor reads a TensorStorageMetadata: properties, size and chunks. It ignores the strides in
// the properties, which are those of the part that one rank has.
func readTensor(u *pickle.Unpickler, name string, o *pickle.Object) (tensor, error) {
	t := tensor{name: name}
	fields, ok := fieldsOf(o, "TensorStorageMetadata")
	if !ok {
		return t, fmt.Errorf("its entry is %s", pickle.Describe(o))
	}
	if properties, ok := field[*pickle.Object](fields, "properties"); ok {
		if state, _ := properties.State.(pickle.Tuple); len(state) > 0 {
			t.dtype, _ = state[0].(pickle.Global)
		}
	}
	if t.dtype.Module != "torch" {
		return t, errors.New("it has no dtype")
	}
	var err error
	if t.size, err = ints(u, fields, "size"); err != nil {
		return t, fmt.Errorf("its size: %w", err)
	}
	chunks, ok := field[*pickle.List](fields, "chunks")
	if !ok {
		return t, errors.New("it has no list of chunks")
	}
	for _, chunk := range chunks.Items {
		b, err := readBox(u, chunk, t.size)
		if err != nil {
			return t, err
		}
		t.chunks = append(t.chunks, b)
	}
	return t, nil
}

// readBox reads a ChunkStorageMetadata of a tensor with this size. The chunk must lie within the
// tensor. PyTorch does not check that, and would load other values.
func readBox(u *pickle.Unpickler, v any, size []int) (b box, err error) {
	fields, ok := fieldsOf(v, "ChunkStorageMetadata")
	if !ok {
		return b, fmt.Errorf("a chunk is %s", pickle.Describe(v))
	}
	if b.begin, err = ints(u, fields, "offsets"); err != nil {
		return b, fmt.Errorf("the offsets of a chunk: %w", err)
	}
	if b.end, err = ints(u, fields, "sizes"); err != nil {
		return b, fmt.Errorf("the sizes of a chunk: %w", err)
	}
	if len(b.begin) != len(size) || len(b.end) != len(size) {
		return b, fmt.Errorf("a chunk at %s of sizes %s in a tensor of size %s", shapetext.Of(b.begin), shapetext.Of(b.end), shapetext.Of(size))
	}
	for i, n := range size {
		if b.begin[i] > n || b.end[i] > n-b.begin[i] {
			return b, fmt.Errorf("the chunk at %s of sizes %s lies outside of size %s", shapetext.Of(b.begin), shapetext.Of(b.end), shapetext.Of(size))
		}
	}
	for i := range size {
		b.end[i] += b.begin[i]
	}
	return b, nil
}

// readStorage reads the places of all chunks.
func (c *checkpoint) readStorage(u *pickle.Unpickler, fields *pickle.Dict) error {
	entries, ok := field[*pickle.Dict](fields, "storage_data")
	if !ok {
		return errors.New("it has no storage_data")
	}
	for _, e := range entries.Entries {
		index, ok := fieldsOf(e.Key, "MetadataIndex")
		if !ok {
			return fmt.Errorf("a key of storage_data is %s", pickle.Describe(e.Key))
		}
		name, ok := field[string](index, "fqn")
		if !ok {
			return errors.New("a key of storage_data has no name")
		}
		if err := checkName(name); err != nil {
			return err
		}
		s, err := readStored(e.Value)
		if err != nil {
			return fmt.Errorf("the place of %.200q: %w", name, err)
		}
		if v, _ := index.Get("offset"); v != nil {
			if s.offsets, err = ints(u, index, "offset"); err != nil {
				return fmt.Errorf("the offsets of %.200q: %w", name, err)
			}
		}
		c.stored[name] = append(c.stored[name], s)
	}
	for _, places := range c.stored {
		slices.SortFunc(places, func(a, b stored) int { return slices.Compare(a.offsets, b.offsets) })
	}
	return nil
}

// readStored reads a _StorageInfo.
func readStored(v any) (s stored, err error) {
	fields, ok := fieldsOf(v, "_StorageInfo")
	if !ok {
		return s, fmt.Errorf("it is %s", pickle.Describe(v))
	}
	var ok1, ok2, ok3 bool
	s.file, ok1 = field[string](fields, "relative_path")
	s.offset, ok2 = field[int64](fields, "offset")
	s.length, ok3 = field[int64](fields, "length")
	if !ok1 || !ok2 || !ok3 || s.offset < 0 || s.length < 0 || len(s.file) > maxName {
		return s, errors.New("its file, offset or length is missing or invalid")
	}
	if v, _ := fields.Get("transform_descriptors"); v != nil {
		if list, ok := v.(*pickle.List); !ok || len(list.Items) > 0 {
			if ok {
				v = list.Items[0]
			}
			s.transformed = pickle.Describe(v)
			if name, ok := v.(string); ok {
				s.transformed = fmt.Sprintf("%.200q", name)
			}
		}
	}
	return s, nil
}

// ints returns an attribute that is a tuple of sizes or offsets. It charges them to u, because a
// pickle may use the same tuple, or the same list of chunks, many times.
func ints(u *pickle.Unpickler, fields *pickle.Dict, name string) ([]int, error) {
	v, _ := fields.Get(name)
	out, err := naturals(v, maxRank)
	const slice = 2 // one step for the slice, and one as its share of the chunk: a chunk has two slices, and each pays for half of it
	if err == nil {
		err = u.Charge(slice + len(out))
	}
	return out, err
}
