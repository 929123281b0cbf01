package modelsig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// A decoder reads JSON strictly: package json would take the last of duplicate fields,
// and fields in another case, so that two programs could read two things.
type decoder struct{ *json.Decoder }

// A field reads the value of a field.
type field func(d decoder) error

// decode reads an object.
func decode(data []byte, fields map[string]field) error {
	if !utf8.Valid(data) {
		return errors.New("is not UTF-8")
	}
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return fmt.Errorf("is not JSON: %w", err)
	}
	d := decoder{json.NewDecoder(bytes.NewReader(data))}
	d.UseNumber()
	return d.object(fields)
}

func (d decoder) open(want json.Delim, what string) error {
	token, err := d.Token()
	if err == nil && token != want {
		err = fmt.Errorf("expected %s", what)
	}
	return err
}

// object reads an object. Fields that are not known are skipped.
func (d decoder) object(fields map[string]field) error {
	if err := d.open('{', "an object"); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		key := token.(string) // of valid JSON
		if seen[key] {
			return fmt.Errorf("duplicate field %q", key)
		}
		seen[key] = true
		read := fields[key]
		if read == nil {
			read = decoder.skip
		}
		if err := read(d); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	_, err := d.Token()
	return err
}

// list reads an array of values that read reads.
func list(read field) field {
	return func(d decoder) error {
		if err := d.open('[', "an array"); err != nil {
			return err
		}
		for i := 0; d.More(); i++ {
			if err := read(d); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		_, err := d.Token()
		return err
	}
}

func object(fields map[string]field) field {
	return func(d decoder) error { return d.object(fields) }
}

// value reads a string or a boolean.
func value[T string | bool](dst *T) field {
	return func(d decoder) error {
		token, err := d.Token()
		if err != nil {
			return err
		}
		v, ok := token.(T)
		if !ok {
			return fmt.Errorf("expected a %T", v)
		}
		*dst = v
		return nil
	}
}

// integer reads a whole number. The Python package writes it as a float, 100.0.
func integer(dst *int64) field {
	return func(d decoder) error {
		token, err := d.Token()
		if err != nil {
			return err
		}
		n, _ := token.(json.Number)
		f, err := n.Float64()
		if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return fmt.Errorf("expected a whole number")
		}
		*dst = int64(f)
		return nil
	}
}

func (d decoder) skip() error {
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
