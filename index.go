package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
)

// An Index is the content of a model.safetensors.index.json.
type Index struct {
	Shards   map[string]string // maps each tensor to its shard, a local, slash-separated path
	Metadata []byte            // JSON of "metadata", unchanged; nil if there is none
}

// ReadIndex reads an index, for example to open shards on demand. A broken rule is a
// *[FormatError].
func ReadIndex(r io.Reader) (*Index, error) {
	if r == nil {
		return nil, prefixed(errors.New("reading an index: the io.Reader is nil"))
	}
	text, err := indexText(r)
	if err != nil {
		return nil, prefixed(err)
	}
	w, err := parseIndex(bytes.Clone(text)) // parseIndex decodes strings in place
	if err != nil {
		return nil, prefixed(err)
	}
	x := &Index{Shards: mapOf(w.text, w.pairs)}
	if m := w.metadata; m.Len > 0 {
		x.Metadata = bytes.Clone(text[m.Off:][:m.Len])
	}
	return x, nil
}

// NewIndex returns the index of shards, which are given by file name and header, as from
// File.Headers or ReadHeader. Its metadata has total_size, total_parameters, and the aliases that
// Tie recorded. A duplicate name is an error.
func NewIndex(shards iter.Seq2[string, *Header]) (*Index, error) {
	if shards == nil {
		return nil, prefixed(errors.New("making an index: the shards are nil"))
	}
	x := indexed{weights: make(map[string]string), shards: make(map[string]bool), notes: make(map[string]string)}
	for shard, h := range shards {
		if err := x.add(shard, h); err != nil {
			return nil, prefixed(fmt.Errorf("shard %s: %w", quote(shard), err))
		}
	}
	return &Index{Shards: x.weights, Metadata: x.metadata()}, nil
}

// AppendBinary checks the index as ReadIndex does, and appends it to b as the Python packages
// write it. Upload or rename it after the shards.
func (x *Index) AppendBinary(b []byte) ([]byte, error) {
	if err := x.check(); err != nil {
		return b, prefixed(err)
	}
	out := x.encode(b)
	if n := len(out) - len(b); n > maxIndexLength {
		return b, prefixed(fmt.Errorf("an index of %d bytes exceeds the limit of %d: save the tensors to several directories, or give them shorter names", n, maxIndexLength))
	}
	return out, nil
}

// check checks an index by the rules of parseIndex, except for the limit of its length.
func (x *Index) check() error {
	shards := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(x.Shards)) {
		shard := x.Shards[name]
		broken := ""
		if !utf8.ValidString(name) {
			broken = "the name is not valid UTF-8"
		} else if !shards[shard] {
			broken = checkShard(shard, len(shards))
		}
		if broken != "" {
			return tensorError(name, errors.New(broken))
		}
		shards[shard] = true
	}
	if len(x.Metadata) == 0 {
		return nil
	}
	return checkIndexMetadata(x.Metadata)
}

// encode appends an index as the Python packages write it: with an indent of two spaces, sorted
// keys and a newline at the end. All characters except ASCII are escaped, because some of the
// packages read it in the encoding of the locale.
func (x *Index) encode(b []byte) []byte {
	b = append(b, "{\n"...)
	if len(x.Metadata) > 0 {
		b = append(b, "  \"metadata\": "...)
		b = append(b, x.Metadata...)
		b = append(b, ",\n"...)
	}
	b = append(b, "  \"weight_map\": "...)
	return append(appendObject(b, x.Shards, jsonscan.AppendASCII), "\n}\n"...)
}

// appendObject appends an object that is a member of the outermost object.
func appendObject(b []byte, members map[string]string, value func(b []byte, v string) []byte) []byte {
	b = append(b, '{')
	for i, key := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		b = jsonscan.AppendASCII(b, key)
		b = append(b, ": "...)
		b = value(b, members[key])
	}
	if len(members) > 0 {
		b = append(b, "\n  "...)
	}
	return append(b, '}')
}

// indexed is the state of NewIndex.
type indexed struct {
	weights    map[string]string // maps each tensor to its shard
	shards     map[string]bool
	notes      map[string]string // metadata of all headers; for each key, the value of the first header that has it
	parameters uint64            // number of elements of all tensors; with two F4 elements per byte it may exceed an int64
	size       int64
}

// add adds the tensors of a shard.
func (x *indexed) add(shard string, h *Header) error {
	switch {
	case x.shards[shard]:
		return errors.New("duplicate file name")
	case h == nil:
		return errors.New("its header is nil")
	}
	x.shards[shard] = true
	for key, value := range h.Metadata {
		if _, known := x.notes[key]; !known {
			x.notes[key] = value
		}
	}
	for i := range h.Tensors {
		t := &h.Tensors[i]
		size, broken := checkShape(t.DType, t.Shape)
		if broken == "" {
			broken = checkName(t.Name)
		}
		if other, ok := x.weights[t.Name]; ok {
			broken = "duplicate tensor name, also in shard " + quote(other)
		}
		if broken == "" && size > math.MaxInt64-x.size {
			broken = "the sizes of all tensors together overflow 63 bits"
		}
		if broken != "" {
			return tensorError(t.Name, errors.New(broken))
		}
		n, _ := countElements(t.Shape)
		x.weights[t.Name] = shard
		x.parameters += n
		x.size += size
	}
	return nil
}

// metadata returns the metadata that transformers writes, with the aliases of tied tensors, as
// huggingface_hub adds them.
func (x *indexed) metadata() []byte {
	members := make(map[string]string)
	for name, keep := range aliases(x.notes, x.weights) {
		members[name] = string(jsonscan.AppendASCII(nil, keep))
	}
	members["total_parameters"] = strconv.FormatUint(x.parameters, 10)
	members["total_size"] = strconv.FormatInt(x.size, 10)
	return appendObject(nil, members, func(b []byte, v string) []byte { return append(b, v...) })
}
