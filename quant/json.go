package quant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A member of a JSON object.
type member struct {
	key   string
	value json.RawMessage
}

// members are those of an object in their order.
type members []member

// UnmarshalJSON implements json.Unmarshaler.
func (all *members) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text)) // which cannot fail: text is valid
	if t, _ := d.Token(); t != json.Delim('{') {
		return fmt.Errorf("%s is no object", cut(string(text)))
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

// get returns the value of a key, nil if there is none, or if it says nothing.
func (all members) get(key string) json.RawMessage {
	if i := all.index(key); i >= 0 && !all[i].empty() {
		return all[i].value
	}
	return nil
}

func (all members) has(key string) bool { return all.index(key) >= 0 }

// index returns -1 if there is no such key.
func (all members) index(key string) int {
	return slices.IndexFunc(all, func(m member) bool { return m.key == key })
}

// empty reports whether a value says nothing.
func (m member) empty() bool {
	return slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, string(m.value))
}

// A section is an object of a config. What is known of it is taken, and what is left in the end
// is refused. Its methods panic with a problem.
type section struct {
	where   string // before errors
	members        // that are left; nil if there is no object
}

// newSection returns the section that a text is, if there is one.
func newSection(where string, text []byte) *section {
	s := &section{where: where}
	if text != nil && string(text) != "null" {
		s.check(json.Unmarshal(text, &s.members))
	}
	return s
}

const maxState = 1 << 16 // bytes of JSON in a tensor; some hundred are usual

// readSection returns the section that a tensor of bytes has.
func readSection(where string, t safetensors.Tensor) *section {
	s := &section{where: where}
	if t.DType() != u8 || t.Size() > maxState {
		s.fail("%v is not JSON of at most %d bytes", t, maxState)
	}
	text, err := safetensors.Append[byte](nil, t)
	s.check(prefix.Strip(err))
	s.check(json.Unmarshal(text, &s.members))
	return s
}

// check fails if there is an error.
func (s *section) check(err error) {
	if err != nil {
		panic(problem{fmt.Errorf("%s%w", s.where, err)})
	}
}

func (s *section) fail(format string, args ...any) { s.check(fmt.Errorf(format, args...)) }

// take takes the value of a key, zero if there is none.
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

// word takes a word that must be one of those known, if it is given.
func (s *section) word(key string, known ...string) string {
	word := take[string](s, key)
	if word != "" {
		s.oneOf(key, word, known...)
	}
	return word
}

// oneOf refuses a word that is none of those known.
func (s *section) oneOf(key, word string, known ...string) {
	if !slices.Contains(known, word) {
		s.fail("%s %s, not %s: %w", key, quote(word), strings.Join(known, " or "), errors.ErrUnsupported)
	}
}

// section takes a section of a section.
func (s *section) section(key string) *section {
	return newSection(s.where+key+": ", take[json.RawMessage](s, key))
}

// sections yields the members as sections.
func (s *section) sections(yield func(key string, own *section) bool) {
	for _, m := range s.members {
		if !yield(m.key, newSection(s.where+quote(m.key)+": ", m.value)) {
			return
		}
	}
}

// end refuses what is left, unless it is harmless or says nothing.
func (s *section) end(harmless string) {
	known := strings.Fields(harmless)
	for _, m := range s.members {
		if !m.empty() && !slices.Contains(known, m.key) {
			s.fail("%s: %s: %w", cut(m.key), cut(string(m.value)), errors.ErrUnsupported)
		}
	}
}

// cut cuts what a stranger wrote.
func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
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
