package safetensors

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/mem"
)

const (
	// maxIndexLength limits the bytes of an index, read or written. It is six times the limit of
	// huggingface_hub, 10 MiB.
	maxIndexLength = 64 << 20

	// maxShards limits the files that one index can make us open: a hostile index of 64 MiB could
	// name millions.
	maxShards = 10_000
)

// A weightMap is a validated index, which maps tensors to shards.
type weightMap struct {
	text  string
	pairs []member       // each tensor and its shard, in the order of the text
	count map[string]int // number of tensors in each shard
	names nameIndex      // finds pairs by the names of their tensors

	notes    []member      // strings in the metadata
	metadata jsonscan.Span // place of the JSON of "metadata"; it refers to the original text, since parsing decodes strings in place
}

func (w *weightMap) str(s jsonscan.Span) string { return w.text[s.Off:][:s.Len] }
func (w *weightMap) name(i int) string          { return w.str(w.pairs[i].key) }

// shardOf returns the shard of a tensor, "" if the index does not name the tensor.
func (w *weightMap) shardOf(name string) string {
	i := w.names.lookup(name, w.name)
	if i < 0 {
		return ""
	}
	return w.str(w.pairs[i].value)
}

// withNotes returns a func that returns the metadata of the whole checkpoint: the strings of the
// index, such as the aliases of tied tensors that huggingface_hub writes, and the metadata of the
// first shard, which a call of first returns. If both have a key, the value of the shard is used.
func (w *weightMap) withNotes(first func() map[string]string) func() map[string]string {
	if len(w.notes) == 0 {
		return first
	}
	return func() map[string]string {
		all := mapOf(w.text, w.notes)
		maps.Copy(all, first())
		return all
	}
}

// An indexParser turns the text of an index into a weightMap.
type indexParser struct {
	jsonscan.Scanner
	w      *weightMap
	tensor jsonscan.Span // name of the tensor whose shard is being read, for errors
}

// parseIndex checks an index and returns its weightMap, which keeps text. An index is a JSON
// object with a weight_map, which maps names to shards, and perhaps with metadata. Everything
// else in it is ignored, as by all readers.
func parseIndex(text []byte) (*weightMap, error) {
	if len(text) > maxIndexLength {
		return nil, &FormatError{Offset: -1, Reason: fmt.Sprintf("the index is longer than %d bytes", maxIndexLength)}
	}
	if len(text) == 0 {
		return nil, &FormatError{Offset: -1, Reason: "the index is empty"}
	}
	// A text that begins with a brace, other plain text, and bytes of no known kind may be meant as
	// an index: for these the scanner finds what is wrong.
	kind := sniff(text)
	if kind != "" && kind != plainText && !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return nil, &FormatError{Offset: 0, Reason: "this is " + kind + ", not an index"}
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
		name := w.pairs[duplicate].key
		return nil, &FormatError{Offset: int64(name.Off), Tensor: w.str(name), Reason: "duplicate tensor name in the index"}
	}
	return w, nil
}

// index reads the whole text of an index.
func (p *indexParser) index() error {
	seen := make(map[string]bool)
	err := p.Object("an object, the index", func(key jsonscan.Span) error {
		name := string(p.Bytes(key))
		switch {
		case name != "weight_map" && name != "metadata":
			return p.Skip(1)
		case seen[name]:
			return p.Fail(int(key.Off), "duplicate %s", name)
		}
		seen[name] = true
		if name == "metadata" {
			return p.metadata()
		}
		return p.Object("an object, the weight_map", p.pair)
	})
	if err != nil {
		return err
	}
	if err := p.End("the index"); err != nil {
		return err
	}
	if !seen["weight_map"] {
		return p.Fail(0, "the index has no weight_map")
	}
	return nil
}

// metadata reads the value of metadata, which may be of any type. If it is an object, metadata
// records its string values.
func (p *indexParser) metadata() error {
	p.Space()
	start := p.Pos
	read := func() error { return p.Skip(1) }
	if start < len(p.Text) && p.Text[start] == '{' {
		read = func() error { return p.Object("an object", p.note) }
	}
	err := read()
	p.w.metadata = jsonscan.Span{Off: uint32(start), Len: uint32(p.Pos - start)}
	if err != nil {
		return err
	}
	key := func(i int) string { return string(p.Bytes(p.w.notes[i].key)) }
	if _, duplicate := newNameIndex(len(p.w.notes), key); duplicate >= 0 {
		return p.Fail(int(p.w.notes[duplicate].key.Off), "duplicate metadata key %s", quote(key(duplicate)))
	}
	return nil
}

// checkIndexMetadata checks the metadata of an index to be written.
func checkIndexMetadata(text []byte) error {
	p := &indexParser{Scanner: jsonscan.Scanner{Text: bytes.Clone(text)}, w: new(weightMap)}
	err := p.CheckUTF8("the metadata of the index")
	if err == nil {
		err = p.metadata()
	}
	if err == nil {
		err = p.End("the metadata of the index")
	}
	return err
}

// note reads the value of a metadata key, and records it if it is a string.
func (p *indexParser) note(key jsonscan.Span) error {
	p.Space()
	if p.Pos == len(p.Text) || p.Text[p.Pos] != '"' {
		return p.Skip(2) // 2 is the depth of the value: it is in the metadata of the index
	}
	value, err := p.String("a string")
	p.w.notes = append(jsonscan.Reserve(&p.Scanner, p.w.notes, 1, len(`"":"",`)), member{key, value})
	return err
}

// pair reads the shard of a tensor.
func (p *indexParser) pair(name jsonscan.Span) error {
	p.tensor = name
	shard, err := p.String("a string, the name of a shard")
	if err != nil {
		return err
	}
	w, file := p.w, mem.Freeze(p.Bytes(shard)) // the scanner does not write to bytes that it has read
	if w.count[file] == 0 {
		if broken := checkShard(file, len(w.count)); broken != "" {
			return p.Fail(int(shard.Off), "%s", broken)
		}
	}
	w.count[file]++
	w.pairs = append(jsonscan.Reserve(&p.Scanner, w.pairs, 1, len(`"":"x",`)), member{name, shard})
	p.tensor = jsonscan.Span{}
	return nil
}

// checkShard checks the name of a shard in an index that names n other shards.
func checkShard(name string, n int) (broken string) {
	switch {
	case !localName(name):
		return fmt.Sprintf("shard %s is not a local, slash-separated file name", quote(name))
	case n == maxShards:
		return fmt.Sprintf("the index names more than %d shards", maxShards)
	}
	return ""
}

// localName reports whether a shard name stays in the directory of its index, on any operating
// system: an index is untrusted.
func localName(name string) bool {
	const longest = 4096
	return len(name) <= longest && fs.ValidPath(name) && name != "." && filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.ContainsAny(name, `\:`) && !strings.ContainsFunc(name, unicode.IsControl)
}

// indexText reads the text of an index. It reads at most one byte more than maxIndexLength, so that
// parseIndex refuses a text that is too long.
func indexText(index io.Reader) ([]byte, error) {
	text, err := readGrowing("the index", index, maxIndexLength+1)
	if err == io.EOF {
		err = nil
	}
	return text, err
}
