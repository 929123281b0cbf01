package quant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A member of a JSON object.
type member struct {
	key   string
	value json.RawMessage
}

type members []member

// parseMembers returns the members of an object in their order.
func parseMembers(text []byte) (all members, err error) {
	err = json.Unmarshal(text, &all)
	return all, err
}

// UnmarshalJSON implements json.Unmarshaler.
func (all *members) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text)) // which cannot fail: text is valid
	if t, _ := d.Token(); t != json.Delim('{') {
		return fmt.Errorf("%s is no object", cut(string(text)))
	}
	seen := map[string]bool{}
	for d.More() {
		t, _ := d.Token()
		m := member{key: t.(string)}
		d.Decode(&m.value)
		if seen[m.key] {
			return fmt.Errorf("duplicate key %s", quote(m.key))
		}
		seen[m.key] = true
		*all = append(*all, m)
	}
	return nil
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

// decode sets what into points at to a value: structs, and maps of them, by members.decode, anything
// else as package json does.
func decode(text []byte, into any) error {
	v := reflect.ValueOf(into).Elem()
	switch {
	case string(text) == "null":
		return nil
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decode(text, v.Interface())
	case v.Kind() != reflect.Struct && v.Kind() != reflect.Map:
		return unmarshal(text, into)
	}
	all, err := parseMembers(text)
	if err != nil {
		return err
	}
	if v.Kind() == reflect.Struct {
		return all.decode(into, nil, nil)
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, m := range all {
		one := reflect.New(v.Type().Elem())
		if err := decode(m.value, one.Interface()); err != nil {
			return fmt.Errorf("%s: %w", cut(m.key), err)
		}
		v.SetMapIndex(reflect.ValueOf(m.key), one.Elem())
	}
	return nil
}

// decode sets the fields of a struct to the members that have their tags, only those of keys unless
// that is nil, and checks it. Any other member is an error, unless it is harmless, as the tag of a
// blank field says, too, or says nothing. The tag "of" has the words that a string may be.
func (all members) decode(into any, keys, harmless []string) error {
	v := reflect.ValueOf(into).Elem()
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(v.Type()) {
		if key := f.Tag.Get("json"); key != "" && (keys == nil || slices.Contains(keys, key)) {
			fields[key] = f
		} else if len(f.Index) == 1 {
			harmless = append(harmless, strings.Fields(f.Tag.Get("known"))...)
		}
	}
	for _, m := range all {
		f, ok := fields[m.key]
		if !ok && (m.empty() || slices.Contains(harmless, m.key)) {
			continue
		}
		if !ok {
			return fmt.Errorf("%s: %s: %w", cut(m.key), cut(string(m.value)), errors.ErrUnsupported)
		}
		field := v.FieldByIndex(f.Index)
		if err := decode(m.value, field.Addr().Interface()); err != nil {
			return fmt.Errorf("%s: %w", m.key, err)
		}
		if words := strings.Fields(f.Tag.Get("of")); len(words) > 0 && field.String() != "" {
			if err := oneOf(m.key, field.String(), words...); err != nil {
				return err
			}
		}
	}
	if c, ok := into.(interface{ check() error }); ok {
		return c.check()
	}
	return nil
}

// oneOf refuses a word that is none of those known.
func oneOf(key, word string, known ...string) error {
	if slices.Contains(known, word) {
		return nil
	}
	return fmt.Errorf("%s %s, not %s: %w", key, quote(word), strings.Join(known, " or "), errors.ErrUnsupported)
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

// quote quotes a name for an error. A name may be as long as a header.
func quote(name string) string { return strconv.Quote(cut(name)) }

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
