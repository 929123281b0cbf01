package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/mem"
)

const (
	// maxIndexLength is six times what huggingface_hub accepts, 10 MiB. BuildIndex
	// writes none that is longer.
	maxIndexLength = 64 << 20

	// maxShards bounds the files that one index can have opened: a hostile one of
	// 64 MiB could name millions.
	maxShards = 10_000
)

// A weightMap is a validated index: which shard has which tensor.
type weightMap struct {
	text  string
	pairs []weightPair   // in the order of the text
	count map[string]int // of tensors in each shard
	names nameIndex      // finds pairs by the name of the tensor
}

type weightPair struct{ name, shard jsonscan.Span }

func (w *weightMap) str(s jsonscan.Span) string { return w.text[s.Off:][:s.Len] }
func (w *weightMap) name(i int) string          { return w.str(w.pairs[i].name) }

// shardOf returns the shard that has a tensor, "" if none has.
func (w *weightMap) shardOf(name string) string {
	i := w.names.lookup(name, w.name)
	if i < 0 {
		return ""
	}
	return w.str(w.pairs[i].shard)
}

// shards returns the names of the shards in order.
func (w *weightMap) shards() []string { return slices.Sorted(maps.Keys(w.count)) }

func indexTooLong() error {
	return &FormatError{Offset: -1, Reason: fmt.Sprintf("the index is longer than %d bytes", maxIndexLength)}
}

// An indexParser turns the text of an index into a weightMap.
type indexParser struct {
	jsonscan.Scanner
	w      *weightMap
	tensor jsonscan.Span // the tensor whose shard is being read, for errors
}

// parseIndex checks an index, which it owns from now on. An index is a JSON
// object with a weight_map, from names to shards. Its metadata and everything
// else in it are ignored, as all readers do.
func parseIndex(text []byte) (*weightMap, error) {
	if len(text) > maxIndexLength {
		return nil, indexTooLong()
	}
	p := &indexParser{Scanner: jsonscan.Scanner{Text: text}, w: &weightMap{count: make(map[string]int)}}
	err := p.CheckUTF8("the index")
	if err == nil {
		err = p.index()
	}
	if err != nil {
		return nil, scanError(err, 0, p.Bytes(p.tensor))
	}
	w := p.w
	w.text = mem.Freeze(text)
	var duplicate int
	if w.names, duplicate = newNameIndex(len(w.pairs), w.name); duplicate >= 0 {
		name := w.pairs[duplicate].name
		return nil, &FormatError{Offset: int64(name.Off), Tensor: w.str(name), Reason: "duplicate tensor name in the index"}
	}
	return w, nil
}

// index reads the whole text of an index.
func (p *indexParser) index() error {
	seen := false
	err := p.Object("an object, the index", func(key jsonscan.Span) error {
		if string(p.Bytes(key)) != "weight_map" {
			return p.Skip(1)
		}
		if seen {
			return p.Fail(int(key.Off), "duplicate weight_map")
		}
		seen = true
		return p.Object("an object, the weight_map", p.pair)
	})
	if err != nil {
		return err
	}
	if err := p.End("the index"); err != nil {
		return err
	}
	if !seen {
		return p.Fail(0, "the index has no weight_map")
	}
	return nil
}

// pair reads the shard of a tensor.
func (p *indexParser) pair(name jsonscan.Span) error {
	p.tensor = name
	shard, err := p.String("a string, the name of a shard")
	if err != nil {
		return err
	}
	w, file := p.w, p.Bytes(shard)
	if _, known := w.count[string(file)]; !known {
		if !localName(string(file)) {
			return p.Fail(int(shard.Off), "shard %s is not a local, slash-separated file name", quote(string(file)))
		}
		if len(w.count) == maxShards {
			return p.Fail(int(shard.Off), "the index names more than %d shards", maxShards)
		}
	}
	w.count[string(file)]++
	w.pairs = append(jsonscan.Reserve(&p.Scanner, w.pairs, 1, len(`"":"x",`)), weightPair{name, shard})
	p.tensor = jsonscan.Span{}
	return nil
}

// localName reports whether a shard name stays in the folder of its index, on
// whatever system it is opened: index files come from strangers.
func localName(name string) bool {
	const longest = 4096
	return len(name) <= longest && fs.ValidPath(name) && name != "." && filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.ContainsAny(name, `\:`) && !strings.ContainsFunc(name, unicode.IsControl)
}

// ReadIndex returns the shard of each tensor in a model.safetensors.index.json, to open
// shards on demand. Shard names are local, slash-separated paths, and tensor names are
// unique; else the error is a *[FormatError].
func ReadIndex(index io.Reader) (map[string]string, error) {
	if index == nil {
		return nil, prefixed(errors.New("reading an index: the io.Reader is nil"))
	}
	text, err := indexText(index)
	if err != nil {
		return nil, prefixed(err)
	}
	w, err := parseIndex(text)
	if err != nil {
		return nil, prefixed(err)
	}
	shards := make(map[string]string, len(w.pairs))
	for i, p := range w.pairs {
		shards[w.name(i)] = w.str(p.shard)
	}
	return shards, nil
}

// indexText reads the text of an index, and one byte beyond the limit if it is
// longer.
func indexText(index io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(checkedReader{index}, maxIndexLength+1))
	if err != nil {
		return nil, fmt.Errorf("reading the index: %w", err)
	}
	return text, nil
}

// BuildIndex returns a model.safetensors.index.json for shards, given by file name and
// header, as from File.Headers or ReadHeader. Upload or rename it after the shards.
// Errors are duplicate names, file names not local and slash-separated, an index above
// 64 MiB.
func BuildIndex(shards iter.Seq2[string, *Header]) ([]byte, error) {
	if shards == nil {
		return nil, prefixed(errors.New("building an index: the shards are nil"))
	}
	x := index{weights: make(map[string]string), shards: make(map[string]bool)}
	for shard, h := range shards {
		if err := x.add(shard, h); err != nil {
			return nil, prefixed(fmt.Errorf("shard %s: %w", quote(shard), err))
		}
	}
	text := x.encode()
	if len(text) > maxIndexLength {
		return nil, prefixed(fmt.Errorf("an index of %d bytes exceeds the limit of %d", len(text), maxIndexLength))
	}
	return text, nil
}

// indexOf returns the index of shards that are to be written.
func indexOf(shards map[string]map[string]Tensor) ([]byte, error) {
	return BuildIndex(func(yield func(string, *Header) bool) {
		for _, shard := range slices.Sorted(maps.Keys(shards)) {
			h := new(Header)
			for name, t := range shards[shard] {
				h.Tensors = append(h.Tensors, TensorInfo{Name: name, DType: t.dtype, Shape: t.shape})
			}
			if !yield(shard, h) {
				return
			}
		}
	})
}

// An index is what BuildIndex makes of shards.
type index struct {
	weights    map[string]string // the shard of each tensor
	shards     map[string]bool
	parameters uint64 // a sum over all tensors, as size; F4 has two a byte
	size       int64
}

// add adds the tensors of a shard.
func (x *index) add(shard string, h *Header) error {
	switch {
	case !localName(shard):
		return errors.New("it is not a local, slash-separated file name")
	case x.shards[shard]:
		return errors.New("duplicate file name")
	case h == nil:
		return errors.New("its header is nil")
	case len(x.shards) == maxShards:
		return fmt.Errorf("an index has at most %d", maxShards)
	}
	x.shards[shard] = true
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

// encode writes an index as the Python packages do: the metadata of transformers, an
// indent of two spaces, sorted keys, a newline at the end, and everything but ASCII
// escaped, because some of them read it in the encoding of the locale.
func (x *index) encode() []byte {
	b := []byte("{\n  \"metadata\": {\n    \"total_parameters\": ")
	b = strconv.AppendUint(b, x.parameters, 10)
	b = append(b, ",\n    \"total_size\": "...)
	b = strconv.AppendInt(b, x.size, 10)
	b = append(b, "\n  },\n  \"weight_map\": {"...)
	for i, name := range slices.Sorted(maps.Keys(x.weights)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		b = jsonscan.AppendASCII(b, name)
		b = append(b, ": "...)
		b = jsonscan.AppendASCII(b, x.weights[name])
	}
	if len(x.weights) > 0 {
		b = append(b, "\n  "...)
	}
	return append(b, "}\n}\n"...)
}
