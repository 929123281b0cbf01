package quant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// A member of a JSON object.
type member struct {
	key   string
	value json.RawMessage
}

type members []member

// parseMembers returns the members of an object in their order.
func parseMembers(text []byte) (members, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text)) // which cannot fail now
	if t, _ := d.Token(); t != json.Delim('{') {
		return nil, fmt.Errorf("%s is no object", cut(string(text)))
	}
	var all members
	seen := map[string]bool{}
	for d.More() {
		t, _ := d.Token()
		m := member{key: t.(string)}
		d.Decode(&m.value)
		if seen[m.key] {
			return nil, fmt.Errorf("duplicate key %s", quote(m.key))
		}
		seen[m.key] = true
		all = append(all, m)
	}
	return all, nil
}

func (all *members) UnmarshalJSON(text []byte) (err error) {
	*all, err = parseMembers(text)
	return err
}

// get returns the value of a key, nil if there is none, or if it says nothing.
func (all members) get(key string) json.RawMessage {
	for _, m := range all {
		if m.key == key && !m.empty() {
			return m.value
		}
	}
	return nil
}

func (all members) has(key string) bool {
	return slices.ContainsFunc(all, func(m member) bool { return m.key == key })
}

// empty reports whether a value says nothing.
func (m member) empty() bool {
	return slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, string(m.value))
}

// decode is members.decode of an object.
func decode(text []byte, into any, known string) error {
	if string(text) == "null" {
		return nil
	}
	all, err := parseMembers(text)
	if err != nil {
		return err
	}
	return all.decode(into, known)
}

// decode sets the fields of a struct to the members that have their tags, and checks it. Any
// other member is an error, unless it is known to change no number, or says nothing. In structs
// within, the tag of a blank field says what is known. The tag "of" has the words that a string
// may be.
func (all members) decode(into any, known string) error {
	v := reflect.ValueOf(into).Elem()
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(v.Type()) {
		if key := f.Tag.Get("json"); key != "" {
			fields[key] = f
		} else if len(f.Index) == 1 {
			known += " " + f.Tag.Get("known")
		}
	}
	harmless := strings.Fields(known)
	for _, m := range all {
		f, ok := fields[m.key]
		if !ok && (m.empty() || slices.Contains(harmless, m.key)) {
			continue
		}
		if !ok {
			return fmt.Errorf("%s: %s: %w", cut(m.key), cut(string(m.value)), errors.ErrUnsupported)
		}
		field := v.FieldByIndex(f.Index)
		if err := set(field, m.value); err != nil {
			return fmt.Errorf("%s: %w", m.key, err)
		}
		words := strings.Fields(f.Tag.Get("of"))
		if len(words) > 0 && field.String() != "" && !slices.Contains(words, field.String()) {
			is := "is not"
			if len(words) > 1 {
				is = "is none of"
			}
			return fmt.Errorf("%s %s %s %s: %w", m.key, quote(field.String()), is, strings.Join(words, ", "), errors.ErrUnsupported)
		}
	}
	return check(into)
}

// set sets a field: structs, and maps of them, by decode; anything else as package json does.
func set(v reflect.Value, text []byte) error {
	switch into := v.Addr().Interface(); {
	case string(text) == "null":
		return nil
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return set(v.Elem(), text)
	case v.Kind() == reflect.Struct:
		return decode(text, into, "")
	case v.Kind() == reflect.Map:
		return into.(interface{ read(text []byte) error }).read(text)
	default:
		if err := unmarshal(text, into); err != nil {
			return err
		}
		return check(into)
	}
}

// structs are those that the members of an object hold.
type structs[T any] map[string]T

// read is no UnmarshalJSON: package json of Go 1.27 replaces errors that wrap
// errors.ErrUnsupported.
func (s *structs[T]) read(text []byte) error {
	all, err := parseMembers(text)
	*s = structs[T]{}
	for _, m := range all {
		var one T
		if err := decode(m.value, &one, ""); err != nil {
			return fmt.Errorf("%s: %w", cut(m.key), err)
		}
		(*s)[m.key] = one
	}
	return err
}

// check checks what can be checked by itself.
func check(v any) error {
	if c, ok := v.(interface{ check() error }); ok {
		return c.check()
	}
	return nil
}

// unmarshal is json.Unmarshal, and cuts what its error quotes.
func unmarshal(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		t.Value = cut(t.Value)
	}
	return err
}

// cut cuts what a stranger wrote.
func cut(s string) string {
	const limit = 200
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}

// notJSON matches these words, and strings.
var notJSON = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// finite returns a config as JSON: Python writes NaN and infinities, such as the
// time_step_limit of Mamba layers, as words that JSON does not have. They become null.
func finite(text []byte) []byte {
	if json.Valid(text) {
		return text
	}
	return notJSON.ReplaceAllFunc(text, func(token []byte) []byte {
		if token[0] == '"' {
			return token
		}
		return []byte("null")
	})
}
