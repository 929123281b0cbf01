package torch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/rankfile"
)

// A flattened holds the entries of nested containers. The name of an entry is the path that leads
// to it, joined by dots.
type flattened struct {
	*contained
	*operation
	tensors  map[string]*tensor
	parts    map[string]*pickle.Object // tensors of which this rank has only a part
	order    []string                  // names of the tensors, in the order of the file
	metadata map[string]string         // nil if there is none
	refused  map[string]error          // reasons why entries are neither tensors nor metadata
	objects  map[string]bool           // the refused entries that contain no tensor

	looked map[any]bool // the results of holdsTensor, by container
}

const (
	// perEntry and perDimension are the smallest numbers of bytes that a tensor and each of its
	// dimensions take in a header, besides the name. Entries that are not tensors also count
	// perEntry.
	perEntry     = len(`"":{"dtype":"U8","shape":[],"data_offsets":[0,1]},`)
	perDimension = len("1,")
)

// errTooMuch reports that the contents of a file are too large.
var errTooMuch = errors.New("its entries repeat the same containers too often, or their names are too long")

// flatten returns the tensors in a dict, and the other entries as metadata. It charges all of them
// to the operation.
func flatten(d dict, o *operation) (*flattened, error) {
	f := &flattened{
		contained: newContained(),
		operation: o,
		tensors:   make(map[string]*tensor),
		parts:     make(map[string]*pickle.Object),
		refused:   make(map[string]error),
		objects:   make(map[string]bool),
		looked:    make(map[any]bool),
	}
	if isContainer(d.value) {
		return f.complete(f.addEntries(d.value, "", maxDepth))
	}
	name := bareTensor
	if d.key != "" {
		name = d.key[strings.LastIndexByte(d.key, '.')+1:]
	}
	return f.complete(f.add(d.value, name, maxDepth))
}

// complete returns f and err. If err is nil, but entries are missing because there were too many to
// look at, it returns errTooMuch instead.
func (f *flattened) complete(err error) (*flattened, error) {
	if err == nil && f.exhausted() {
		err = errTooMuch
	}
	return f, err
}

// addEntries adds the entries of a container. A module within a module is not itself an entry, even
// if it is empty.
func (f *flattened) addEntries(v any, path string, depth int) error {
	if depth == 0 {
		f.refused[path] = errTooDeep
		return nil
	}
	m, isModule := moduleOf(v)
	if isModule {
		f.look((maxLooks / maxVisited) * m.size()) // counts the names that the module contains, which may not all be entries
	}
	for e := range f.entries(v) {
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
			f.objects[path] = !f.holdsTensor(e.Value, maxDepth)
			continue
		}
		add := f.add
		if _, ok := moduleOf(e.Value); isModule && ok {
			add = f.addEntries
		}
		if err := add(e.Value, path, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// add adds one value under the name path.
func (f *flattened) add(v any, path string, depth int) error {
	_, known := f.tensors[path]
	_, refused := f.refused[path]
	if _, twice := f.metadata[path]; known || refused || twice || f.parts[path] != nil {
		return fmt.Errorf("two entries are named %.200q", path)
	}
	if t, ok := v.(*tensor); ok {
		f.tensors[path] = t
		f.order = append(f.order, path)
		return f.charge(perDimension * len(t.shape))
	}
	if _, ok := rankfile.IsPart(v); ok {
		f.parts[path] = v.(*pickle.Object)
		return f.charge(0)
	}
	if isContainer(v) && f.tensorsIn(v) > 0 {
		return f.addEntries(v, path, depth)
	}
	text, why := f.metadataText(v, depth)
	if why != nil {
		f.refused[path] = why
		f.objects[path] = !f.holdsTensor(v, maxDepth)
		return f.charge(len(why.Error()))
	}
	if f.metadata == nil {
		f.metadata = make(map[string]string)
	}
	f.metadata[path] = text
	return nil
}

// holdsTensor reports whether a value that cannot be read is a tensor or a storage, or contains
// one: as an entry, or as an argument of an object of a program. It looks into each container once.
// For a value that is nested too deeply it returns true, because that value was not inspected.
func (f *flattened) holdsTensor(v any, depth int) (holds bool) {
	inside := func(v any) bool { return f.holdsTensor(v, depth-1) }
	var id any
	switch v := v.(type) {
	case *tensor, *storage:
		return true
	case *pickle.Object:
		if v.Why != nil || isTensor(v) { // a known function that did not accept its arguments, or a tensor that cannot be read
			return true
		}
		id = v
	case *pickle.Dict, *pickle.List:
		id = v
	case pickle.Tuple:
		if id = identity(v); id == nil { // an empty tuple
			return false
		}
	default:
		return false
	}
	if answer, known := f.looked[id]; known {
		return answer
	}
	if depth == 0 {
		return true
	}
	f.looked[id] = false // the answer for a container that contains itself
	switch v := v.(type) {
	case *pickle.Object:
		holds = inside(v.Args) || inside(v.State) || v.Dict != nil && inside(v.Dict) || v.List != nil && inside(v.List)
	case *pickle.Dict:
		holds = slices.ContainsFunc(v.Entries, func(e pickle.Entry) bool { return inside(e.Key) || inside(e.Value) })
	case *pickle.List:
		holds = slices.ContainsFunc(v.Items, inside)
	case pickle.Tuple:
		holds = slices.ContainsFunc(v, inside)
	}
	f.looked[id] = holds
	return holds
}

// metadataText returns a value without tensors as the text of a metadata entry: a string unchanged,
// any other value as JSON.
func (f *flattened) metadataText(v any, depth int) (string, error) {
	if s, ok := v.(string); ok {
		return s, f.charge(len(s))
	}
	b, err := f.appendJSON(nil, v, depth)
	return mem.Freeze(slices.Clip(b)), err
}

// jsonSize returns the length of s as JSON, including the quotes.
func jsonSize(s string) int {
	n := len(`""`)
	for _, c := range s {
		switch {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f':
			n += len(`\n`)
		case c < ' ' || c == '<' || c == '>' || c == '&' || c == '\u2028' || c == '\u2029':
			n += len(`\u0000`)
		default:
			n += utf8.RuneLen(c)
		}
	}
	return n
}

// appendText appends s as JSON, which takes size bytes. It passes a long string to json.Marshal in
// parts, because json.Marshal would hold the whole string twice.
func appendText(b []byte, s string, size int) []byte {
	b = append(slices.Grow(b, size), '"')
	const most = 64 << 10
	for len(s) > 0 {
		n := min(len(s), most)
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n--
		}
		text, _ := json.Marshal(s[:n]) // never fails for a string
		b = append(b, text[1:len(text)-1]...)
		s = s[n:]
	}
	return append(b, '"')
}

// appendJSON appends a value as JSON without spaces, in the spelling that json.load of Python
// reads. depth limits the nesting of containers.
func (f *flattened) appendJSON(b []byte, v any, depth int) ([]byte, error) {
	var size int // length of text as JSON; 0 for a value that is not a string
	text, isText := v.(string)
	if isText {
		size = jsonSize(text)
	}
	if err := f.charge(size); err != nil || len(b) > maxText {
		return nil, fmt.Errorf("it is too large for metadata")
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		return appendText(b, text, size), nil
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
		return nil, errTooDeep
	}
	return f.appendContainer(b, v, depth)
}

// appendFloat appends a float in the spelling that json.load of Python reads as a float: with a
// point or an exponent, or as NaN, Infinity or -Infinity.
func appendFloat(b []byte, x float64) []byte {
	switch {
	case math.IsNaN(x):
		return append(b, "NaN"...)
	case math.IsInf(x, 1):
		return append(b, "Infinity"...)
	case math.IsInf(x, -1):
		return append(b, "-Infinity"...)
	}
	text, _ := json.Marshal(x) // never fails for a finite number
	b = append(b, text...)
	if !bytes.ContainsAny(text, ".e") {
		b = append(b, ".0"...)
	}
	return b
}

// appendContainer appends a dict as a JSON object, and a list or a tuple as an array.
func (f *flattened) appendContainer(b []byte, v any, depth int) ([]byte, error) {
	brackets := "[]"
	_, isDict := plain(v).(*pickle.Dict)
	if isDict {
		brackets = "{}"
	}
	b = append(b, brackets[0])
	start := len(b)
	for e := range f.entries(v) {
		if len(b) > start {
			b = append(b, ',')
		}
		if isDict {
			key, ok := keyText(e.Key)
			if !ok {
				return nil, fmt.Errorf("it has a key that is %s", pickle.Describe(e.Key))
			}
			size := jsonSize(key)
			if err := f.charge(size); err != nil {
				return nil, err
			}
			b = append(appendText(b, key, size), ':')
		}
		var err error
		if b, err = f.appendJSON(b, e.Value, depth-1); err != nil {
			return nil, err
		}
	}
	return append(b, brackets[1]), nil
}

// notTensor returns the error for a value that is neither a tensor nor metadata. nested means that
// the value lies in a container whose other values can be metadata.
func notTensor(v any, nested bool) error {
	o, ok := v.(*pickle.Object)
	switch {
	case ok && otherKind(o) != "":
		return fmt.Errorf("it is %s", otherKind(o))
	case ok && o.Why != nil:
		return fmt.Errorf("%v: %w", o.Class, o.Why)
	}
	verb := "is"
	if nested {
		verb = "holds"
	}
	return fmt.Errorf("it %s %s", verb, pickle.Describe(v))
}
