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
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%s is no object", cut(string(text)))
	}
	var all members
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{key: t.(string)}
		if seen[m.key] {
			return nil, fmt.Errorf("duplicate key %s", quote(m.key))
		}
		seen[m.key] = true
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
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

// decode sets the fields of a struct to the members that have their tags. Any other member
// is an error, unless it is known to change no number, or says nothing.
func (all members) decode(into any, known string) error {
	fields := map[string]any{}
	v := reflect.ValueOf(into).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if key := f.Tag.Get("json"); key != "" {
			fields[key] = v.FieldByIndex(f.Index).Addr().Interface()
		}
	}
	harmless := strings.Fields(known)
	for _, m := range all {
		field, ok := fields[m.key]
		switch {
		case ok:
			if err := unmarshal(m.value, field); err != nil {
				return fmt.Errorf("%s: %w", cut(m.key), err)
			}
		case !m.empty() && !slices.Contains(harmless, m.key):
			return fmt.Errorf("%s: %s: %w", cut(m.key), cut(string(m.value)), errors.ErrUnsupported)
		}
	}
	return nil
}

// unmarshal is json.Unmarshal, and cuts what its error quotes.
func unmarshal(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	var o opaque
	if errors.As(err, &o) {
		return o.error
	}
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		t.Value = cut(t.Value)
	}
	return err
}

// An opaque error hides what it wraps. Since Go 1.27, encoding/json takes the place of an
// error of UnmarshalJSON that wraps errors.ErrUnsupported. unmarshal uncovers it again.
type opaque struct{ error }

// decodePart is decode for the methods UnmarshalJSON.
func decodePart(text []byte, into any, known string) error { return hide(decode(text, into, known)) }

func hide(err error) error {
	if err != nil {
		err = opaque{err}
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
