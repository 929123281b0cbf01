package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strconv"
)

// A rule is one that this package checks and the reference does not.
type rule struct {
	name   string              // as in doc/decisions.md
	reason *regexp.Regexp      // what FormatError.Reason says of it
	broken func(h object) bool // judges a header that the reference accepts
}

// policy lists all deliberate differences. If a header breaks several rules, the
// error may name any of them; it counts as the first one here that fits.
var policy = []rule{
	{"an entry is an object, not an array", regexp.MustCompile(`^expected an object, the entry of a tensor, found '\['$`), anyEntry(func(e any) bool {
		_, array := e.([]any)
		return array
	})},
	{"a dtype is a string, not an object", regexp.MustCompile(`^expected a string, the dtype, found '\{'$`), anyEntry(func(e any) bool {
		_, dtype := field(e, "dtype").(object)
		return dtype
	})},
	{"dimensions and offsets fit an int64", regexp.MustCompile(`^a (dimension|data offset) is above \d+$`), anyEntry(func(e any) bool {
		return anyAbove(field(e, "shape"), math.MaxInt) || anyAbove(field(e, "data_offsets"), math.MaxInt64)
	})},
	{"metadata keys are unique", regexp.MustCompile(`^duplicate metadata key "`), func(h object) bool {
		metadata, _ := field(h, metadataKey).(object)
		return metadata.hasDuplicate()
	}},
	// Last and with any reason: the reference drops the first of two entries,
	// whatever its values are, and this package judges them before names.
	{"tensor names are unique, however they are escaped", regexp.MustCompile(``), object.hasDuplicate},
}

const metadataKey = "__metadata__"

func anyEntry(broken func(e any) bool) func(h object) bool {
	return func(h object) bool {
		for _, m := range h {
			if m.key != metadataKey && broken(m.value) {
				return true
			}
		}
		return false
	}
}

// anyAbove reports whether a list of integers has one above the limit.
func anyAbove(list any, limit uint64) bool {
	numbers, _ := list.([]any)
	for _, n := range numbers {
		v, err := strconv.ParseUint(string(n.(json.Number)), 10, 64)
		if err != nil || v > limit {
			return true
		}
	}
	return false
}

// An object is a JSON object with all its members in order, such as a header.
type object []member

type member struct {
	key   string
	value any // object, []any, json.Number, string, bool or nil
}

// parseJSON parses a header that the reference accepts, which makes it JSON.
func parseJSON(text []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	value, err := parseValue(d)
	object, ok := value.(object)
	if err == nil && !ok {
		err = errors.New("the header is no object")
	}
	return object, err
}

func parseValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	opening, nested := token.(json.Delim)
	if err != nil || !nested {
		return token, err
	}
	o, a := object{}, []any{}
	for err == nil && d.More() {
		var key, value any
		if opening == '{' {
			key, err = d.Token()
		}
		if err == nil {
			value, err = parseValue(d)
		}
		name, _ := key.(string)
		o, a = append(o, member{name, value}), append(a, value)
	}
	if err == nil {
		_, err = d.Token() // the closing one
	}
	if opening == '{' {
		return o, err
	}
	return a, err
}

func (o object) hasDuplicate() bool {
	seen := make(map[string]bool)
	for _, m := range o {
		if seen[m.key] {
			return true
		}
		seen[m.key] = true
	}
	return false
}

// field returns the value of a field, nil if e is no object that has it.
func field(e any, key string) any {
	o, _ := e.(object)
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}
