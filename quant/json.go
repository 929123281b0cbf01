package quant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A member is a key of a JSON object and its value.
type member struct {
	key   string
	value json.RawMessage
}

// members are the members of an object, in their order.
type members []member

// UnmarshalJSON implements json.Unmarshaler.
func (all *members) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text)) // d cannot fail, because text is valid
	if t, _ := d.Token(); t != json.Delim('{') {
		return fmt.Errorf("%s is not an object", cut(string(text)))
	}
	*all = members{}
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

// get returns the value of a key, or nil if the key is absent or its value is empty.
func (all members) get(key string) json.RawMessage {
	if i := all.index(key); i >= 0 && !all[i].empty() {
		return all[i].value
	}
	return nil
}

func (all members) has(key string) bool { return all.index(key) >= 0 }

// index returns the index of a key, or -1 if the key is absent.
func (all members) index(key string) int {
	return slices.IndexFunc(all, func(m member) bool { return m.key == key })
}

// empty reports whether a value is empty, which has the same effect as an absent key.
func (m member) empty() bool {
	return slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, string(m.value))
}

// A section is an object in a config. Callers take the keys that they know; end refuses the rest.
// The methods of a section panic with a problem.
type section struct {
	where   string // text at the start of errors, which names the section
	members        // members that were not taken yet; nil if the section is null or absent
}

// newSection parses a section. If text is nil or null, its members are nil.
func newSection(where string, text []byte) *section {
	s := &section{where: where}
	if text != nil && string(text) != "null" {
		s.check(json.Unmarshal(text, &s.members))
	}
	return s
}

// check panics with a problem unless err is nil.
func (s *section) check(err error) {
	if err != nil {
		panic(problem{fmt.Errorf("%s%w", s.where, err)})
	}
}

// fail panics with a problem.
func (s *section) fail(format string, args ...any) { s.check(fmt.Errorf(format, args...)) }

// take removes a key and returns its value, or the zero value if the key is absent.
func take[T any](s *section, key string) (v T) {
	i := s.index(key)
	if i < 0 {
		return v
	}
	err := json.Unmarshal(s.members[i].value, &v)
	if t := (*json.UnmarshalTypeError)(nil); errors.As(err, &t) {
		t.Value = cut(t.Value)
	}
	if err != nil {
		s.fail("%s: %w", key, err)
	}
	s.members = slices.Delete(s.members, i, i+1)
	return v
}

// word takes a key whose value must be one of the known words, and returns the word, or "" if the
// key is absent.
func (s *section) word(key string, known ...string) string {
	word := take[string](s, key)
	if word != "" {
		s.oneOf(key, word, known...)
	}
	return word
}

// oneOf panics with a problem if word is not one of the known words.
func (s *section) oneOf(key, word string, known ...string) {
	if !slices.Contains(known, word) {
		s.fail("%s %s, not %s: %w", key, quote(word), strings.Join(known, " or "), errors.ErrUnsupported)
	}
}

// section takes the value of a key as a section.
func (s *section) section(key string) *section {
	return newSection(s.where+key+": ", take[json.RawMessage](s, key))
}

// sections yields the value of each key as a section, without taking it.
func (s *section) sections(yield func(key string, own *section) bool) {
	for _, m := range s.members {
		if !yield(m.key, newSection(s.where+quote(m.key)+": ", m.value)) {
			return
		}
	}
}

// end refuses the members that were not taken, unless their values are empty or harmless contains
// their keys, separated by spaces.
func (s *section) end(harmless string) {
	known := strings.Fields(harmless)
	for _, m := range s.members {
		if !m.empty() && !slices.Contains(known, m.key) {
			s.fail("%s: %s: %w", cut(m.key), cut(string(m.value)), errors.ErrUnsupported)
		}
	}
}
