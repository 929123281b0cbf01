package torch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/internal/pickle"
)

// A flattened is the entries of nested containers under the paths that lead to them,
// joined by dots.
type flattened struct {
	counts
	tensors  map[string]*tensor
	order    []string          // of the tensors
	metadata map[string]string // nil if there is none
	refused  map[string]error  // entries that are neither tensors nor metadata

	visited, text int
}

const (
	// maxVisited and maxText limit what containers that are in many places expand to.
	maxVisited = 1 << 22
	maxText    = 100_000_000 // bytes of names, shapes and metadata, as in a header

	// perEntry and perDimension are what a tensor takes in a header at least, besides
	// its name. Other entries count as much.
	perEntry     = len(`"":{"dtype":"U8","shape":[],"data_offsets":[0,1]},`)
	perDimension = len("1,")
)

// errTooMuch is the error of contents that are too large.
var errTooMuch = errors.New("its entries repeat the same containers too often, or their names are too long")

// flatten returns the tensors in a dict, and the rest of it as metadata.
func flatten(d dict) (*flattened, error) {
	f := &flattened{
		counts:  make(counts),
		tensors: make(map[string]*tensor),
		refused: make(map[string]error),
	}
	if isContainer(d.value) {
		return f, f.entries(d.value, "", maxDepth)
	}
	name := bareTensor
	if d.key != "" {
		name = d.key[strings.LastIndexByte(d.key, '.')+1:]
	}
	return f, f.add(d.value, name, maxDepth)
}

// entries adds the entries of a container. A module in a module is no entry itself: it may be
// empty.
func (f *flattened) entries(v any, path string, depth int) error {
	if depth == 0 {
		f.refused[path] = errSelf
		return nil
	}
	m, within := moduleOf(v)
	if within {
		f.visited += m.size() // of which some may be no entries
	}
	for e := range entriesOf(v) {
		key, ok := keyText(e.Key)
		if !ok {
			key = "<" + pickle.Describe(e.Key) + ">"
		}
		if err := f.charge(len(path) + len(key) + perEntry); err != nil {
			return err
		}
		path := join(path, key)
		if !ok {
			f.refused[path] = fmt.Errorf("its key is %s", pickle.Describe(e.Key))
			continue
		}
		add := f.add
		if _, ok := moduleOf(e.Value); within && ok {
			add = f.entries
		}
		if err := add(e.Value, path, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// add adds a value.
func (f *flattened) add(v any, path string, depth int) error {
	_, known := f.tensors[path]
	_, refused := f.refused[path]
	if _, twice := f.metadata[path]; known || refused || twice {
		return fmt.Errorf("two entries are named %.200q", path)
	}
	if t, ok := v.(*tensor); ok {
		f.tensors[path] = t
		f.order = append(f.order, path)
		return f.charge(perDimension * len(t.shape))
	}
	if isContainer(v) && f.of(v) > 0 {
		return f.entries(v, path, depth)
	}
	text, why := f.metadataText(v, depth)
	if why != nil {
		f.refused[path] = why
		return f.charge(len(why.Error()))
	}
	if f.metadata == nil {
		f.metadata = make(map[string]string)
	}
	f.metadata[path] = text
	return nil
}

// charge counts a visit of a value, and bytes of text.
func (f *flattened) charge(text int) error {
	f.visited++
	f.text += text
	if f.visited > maxVisited || f.text > maxText {
		return errTooMuch
	}
	return nil
}

// metadataText returns a value without tensors as the text of a metadata entry: a string
// as it is, the rest as JSON.
func (f *flattened) metadataText(v any, depth int) (string, error) {
	if s, ok := v.(string); ok {
		return s, f.charge(len(s))
	}
	b, err := f.appendJSON(nil, v, depth)
	return string(b), err
}

// appendJSON appends a value as JSON without spaces, for json.load of Python.
func (f *flattened) appendJSON(b []byte, v any, depth int) ([]byte, error) {
	text, _ := v.(string)
	if err := f.charge(len(text)); err != nil || len(b) > maxText {
		return nil, fmt.Errorf("it is too large for metadata")
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		text, err := json.Marshal(v)
		return append(b, text...), err
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		return appendFloat(b, v), nil
	}
	if !isPlain(v) {
		return nil, notTensor(v, len(b) > 0)
	}
	if depth <= 0 {
		return nil, errSelf
	}
	return f.appendContainer(b, v, depth)
}

// appendFloat appends a float as json.load of Python reads one: with a point or an
// exponent, or as one of three words.
func appendFloat(b []byte, x float64) []byte {
	switch {
	case math.IsNaN(x):
		return append(b, "NaN"...)
	case math.IsInf(x, 1):
		return append(b, "Infinity"...)
	case math.IsInf(x, -1):
		return append(b, "-Infinity"...)
	}
	text, _ := json.Marshal(x) // finite
	b = append(b, text...)
	if !bytes.ContainsAny(text, ".e") {
		b = append(b, ".0"...)
	}
	return b
}

// appendContainer appends a dict as an object, a list or tuple as an array.
func (f *flattened) appendContainer(b []byte, v any, depth int) ([]byte, error) {
	brackets := "[]"
	_, isDict := v.(*pickle.Dict)
	if isDict {
		brackets = "{}"
	}
	b = append(b, brackets[0])
	start := len(b)
	for e := range entriesOf(v) {
		if len(b) > start {
			b = append(b, ',')
		}
		if isDict {
			key, ok := keyText(e.Key)
			if !ok {
				return nil, fmt.Errorf("it has a key that is %s", pickle.Describe(e.Key))
			}
			if err := f.charge(len(key)); err != nil {
				return nil, err
			}
			text, _ := json.Marshal(key)
			b = append(append(b, text...), ':')
		}
		var err error
		if b, err = f.appendJSON(b, e.Value, depth-1); err != nil {
			return nil, err
		}
	}
	return append(b, brackets[1]), nil
}

// notTensor describes a value that cannot be read.
func notTensor(v any, within bool) error {
	o, ok := v.(*pickle.Object)
	switch {
	case ok && otherKind(o) != "":
		return fmt.Errorf("it is %s", otherKind(o))
	case ok && o.Why != nil:
		return fmt.Errorf("%v: %w", o.Class, o.Why)
	}
	verb := "is"
	if within {
		verb = "holds"
	}
	return fmt.Errorf("it %s %s", verb, pickle.Describe(v))
}
