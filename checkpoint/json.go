package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/gosafetensors/safetensors/internal/pyjson"
)

// readText reads and parses a text file of the directory. found is false if there is none. It is also false
// if the file cannot be read or parsed; then readText notes a finding.
func (d *directory) readText(name string, parse func(text []byte) error) (found bool, err error) {
	if !d.has(name) || d.modes[name].IsDir() {
		return false, nil
	}
	text, err := readText(d.in, d.path(d.at(name)), maxConfig)
	if err == nil {
		if err = parse(text); err == nil {
			d.judgeKeys(name, text)
			return true, nil
		}
	} else if !isVerdict(err) {
		return false, err
	}
	d.unreadable(d.at(name), err)
	return false, nil
}

// judgeKeys notes a key that a config has twice with different values. Python takes the last one, and other programs
// refuse such a config.
func (d *directory) judgeKeys(name string, text []byte) {
	if key := repeatedKey(text); key != "" {
		d.note(Config, "", fmt.Sprintf("%s has the key %s twice with different values: Python takes the last one, and other programs refuse the file", quoted(d.at(name)), quoted(key)), d.at(name))
	}
}

// parseJSON parses a text as Python's json does, which also accepts NaN and Infinity, and takes the last value of a key
// that an object has twice.
func parseJSON(text []byte, v any) error {
	text = bytes.TrimSpace(text)
	switch {
	case len(text) == 0:
		return errors.New("the file is empty")
	case bytes.HasPrefix(text, []byte("version https://git-lfs")):
		return errors.New("the file is a Git LFS pointer, not JSON: the content was not downloaded (git lfs pull)")
	case text[0] == '<':
		return errors.New("the file is a page of HTML or XML, not JSON")
	}
	err := unmarshal(text, v)
	if err != nil {
		return fmt.Errorf("not the JSON that it should be: %.200s", err.Error())
	}
	return nil
}

// unmarshal is like json.Unmarshal for JSON that Python wrote. If v points to a struct or a slice of structs, a field
// takes the value of the key with exactly its name. json.Unmarshal ignores case: VOCAB_SIZE would replace vocab_size.
func unmarshal(text []byte, v any) error {
	text = pyjson.WithNulls(text)
	of := reflect.TypeOf(v).Elem()
	if of.Kind() != reflect.Struct && of.Kind() != reflect.Slice {
		return json.Unmarshal(text, v)
	}
	var all json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	w := newWalk(text)
	value := w.value()
	deleteOthers(value, of)
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// deleteOthers deletes the keys of an object, or of the objects in a list, that are not names of fields of a struct.
func deleteOthers(value any, of reflect.Type) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			if of.Kind() == reflect.Slice {
				deleteOthers(item, of.Elem())
			}
		}
	case map[string]any:
		if of.Kind() != reflect.Struct {
			return
		}
		var names []string
		for _, field := range reflect.VisibleFields(of) {
			names = append(names, field.Tag.Get("json"))
		}
		maps.DeleteFunc(value, func(key string, _ any) bool { return !slices.Contains(names, key) })
	}
}

// A walk decodes a JSON text that json.Unmarshal accepts. Of the values of a key that an object has several times, it
// takes the last one, as Python does.
type walk struct {
	*json.Decoder
	repeated bool   // whether an object has a key several times
	key      string // first key that an object has several times with different values, or ""
}

func newWalk(text []byte) *walk {
	w := &walk{Decoder: json.NewDecoder(bytes.NewReader(text))}
	w.UseNumber()
	return w
}

// value decodes the next value.
func (w *walk) value() any {
	token, _ := w.Token() // it cannot fail, because the text is valid
	switch token {
	case json.Delim('['):
		list := []any{}
		for w.More() {
			list = append(list, w.value())
		}
		_, _ = w.Token()
		return list
	case json.Delim('{'):
		object := make(map[string]any)
		for w.More() {
			token, _ := w.Token()
			key, _ := token.(string)
			value := w.value()
			if old, found := object[key]; found {
				w.repeated = true
				if w.key == "" && !reflect.DeepEqual(old, value) {
					w.key = key
				}
			}
			object[key] = value
		}
		_, _ = w.Token()
		return object
	}
	return token
}

// repeatedKey returns the first key that an object in a valid text has several times with different values, or "".
func repeatedKey(text []byte) string {
	w := newWalk(pyjson.WithNulls(text))
	w.value()
	return w.key
}

// lastValues returns a valid text. If an object in it has a key several times, the returned text has only the last
// value.
func lastValues(text []byte) []byte {
	w := newWalk(pyjson.WithStrings(text))
	value := w.value()
	if !w.repeated {
		return text
	}
	single, err := json.Marshal(value)
	if err != nil {
		return text
	}
	return pyjson.WithWords(single)
}
