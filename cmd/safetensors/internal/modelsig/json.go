package modelsig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// decode reads a JSON object strictly into a struct. Package json would accept the last of
// duplicate fields, fields in another case, and null for any value, so that two programs could read
// different values. Fields that the struct does not have are skipped.
func decode(data []byte, object any) error {
	if !utf8.Valid(data) {
		return errors.New("is not UTF-8")
	}
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(data, object); errors.As(err, &wrong) {
		return fmt.Errorf("%s: expected %s, not %s", wrong.Field, kinds[wrong.Type.Kind()], wrong.Value)
	} else if err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	known := make(map[string]string)
	addFields(known, reflect.TypeOf(object))
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return checkField(d, "", known)
}

// kinds maps kinds of Go to the types of JSON values that they hold.
var kinds = map[reflect.Kind]string{
	reflect.Struct: "an object", reflect.Slice: "an array", reflect.String: "a string", reflect.Bool: "a boolean", reflect.Float64: "a number",
}

// addFields adds the names of the fields of a struct, and of the structs in it, to known. The keys
// of known are folded names, because package json ignores case.
func addFields(known map[string]string, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		addFields(known, t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			known[fold(name)] = name
			addFields(known, t.Field(i).Type)
		}
	}
}

// fold returns the same text for all names that differ only in the case of letters.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// checkField checks the next value, which belongs to field. Token cannot fail, because the text is
// valid JSON.
func checkField(d *json.Decoder, field string, known map[string]string) error {
	token, _ := d.Token()
	if _, ok := known[fold(field)]; ok && token == nil {
		return fmt.Errorf("%s is null", field)
	}
	if token != json.Delim('{') && token != json.Delim('[') {
		return nil
	}
	seen := make(map[string]bool)
	for d.More() {
		field := ""
		if token == json.Delim('{') {
			key, _ := d.Token()
			field = key.(string)
			switch want, ok := known[fold(field)]; {
			case seen[field]:
				return fmt.Errorf("duplicate field %q", field)
			case ok && field != want:
				return fmt.Errorf("field %q, expected %q", field, want)
			}
			seen[field] = true
		}
		if err := checkField(d, field, known); err != nil {
			return err
		}
	}
	d.Token() // reads the closing bracket
	return nil
}
