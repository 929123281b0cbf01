package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
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
		return slices.ContainsFunc(h, func(m member) bool { return m.key != metadataKey && broken(m.value) })
	}
}

// anyAbove reports whether a list of integers has one above the limit.
func anyAbove(list any, limit uint64) bool {
	numbers, _ := list.([]any)
	return slices.ContainsFunc(numbers, func(n any) bool {
		v, err := strconv.ParseUint(string(n.(json.Number)), 10, 64)
		return err != nil || v > limit
	})
}

// An object is a JSON object with all its members in order, such as a header.
type object []member

type member struct {
	key   string
	value any // object, []any, json.Number, string, bool or nil
}

// parseJSON parses a header that the reference accepts, which makes it JSON.
func parseJSON(text []byte) (object, error) {
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	header, ok := parseValue(d).(object)
	if !ok {
		return nil, errors.New("the header is no object")
	}
	return header, nil
}

// parseValue returns the next value of valid JSON.
func parseValue(d *json.Decoder) any {
	token, _ := d.Token()
	switch token {
	case json.Delim('{'):
		o := object{}
		for d.More() {
			key, _ := d.Token()
			o = append(o, member{key.(string), parseValue(d)})
		}
		d.Token()
		return o
	case json.Delim('['):
		a := []any{}
		for d.More() {
			a = append(a, parseValue(d))
		}
		d.Token()
		return a
	}
	return token
}

func (o object) hasDuplicate() bool {
	keys := make(map[string]bool)
	for _, m := range o {
		keys[m.key] = true
	}
	return len(keys) < len(o)
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
