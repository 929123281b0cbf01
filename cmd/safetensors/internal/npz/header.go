package npz

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A header is what the start of a .npy file says of the array after it.
type header struct {
	dtype   safetensors.DType
	swap    int // bytes of the numbers to reverse, of a big-endian array; else 0
	fortran bool
	shape   []int
	size    int64 // bytes of the header, before the data
}

const (
	magic = "\x93NUMPY"

	// maxHeader is the limit that numpy.load has.
	maxHeader = 10_000
)

// readHeader reads a header: the magic, the version, the length of a text, and the
// text, a Python dict.
func readHeader(r io.Reader) (*header, error) {
	start := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(r, start); err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("no .npy file: it is shorter than a header: %w", io.ErrUnexpectedEOF)
	} else if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(start, []byte(magic)) {
		return nil, fmt.Errorf("no .npy file: it starts with %q", start[:len(magic)])
	}
	version, rest := start[len(magic):][:2], start[len(magic)+2:]
	length := int64(binary.LittleEndian.Uint16(rest))
	switch {
	case version[1] != 0 || version[0] < 1 || version[0] > 3:
		return nil, fmt.Errorf("version %d.%d of the .npy format, known are 1.0, 2.0 and 3.0", version[0], version[1])
	case version[0] > 1:
		var upper [2]byte
		if _, err := io.ReadFull(r, upper[:]); err != nil {
			return nil, fmt.Errorf("reading the header: %w", err)
		}
		length |= int64(binary.LittleEndian.Uint16(upper[:])) << 16
		rest = make([]byte, 4)
	}
	if length > maxHeader {
		return nil, fmt.Errorf("a header of %d bytes, numpy's limit is %d", length, maxHeader)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err == io.EOF {
		return nil, fmt.Errorf("reading the header: %w", io.ErrUnexpectedEOF)
	} else if err != nil {
		return nil, fmt.Errorf("reading the header: %w", err)
	}
	h, err := parseHeader(string(text))
	if err != nil {
		return nil, fmt.Errorf("the header %.200q: %w", text, err)
	}
	h.size = int64(len(magic)+2+len(rest)) + length
	return h, nil
}

// parseHeader parses the dict, of exactly the keys descr, fortran_order and shape.
func parseHeader(text string) (*header, error) {
	p := &parser{rest: text}
	h := &header{}
	known := map[string]func() error{
		"descr":         func() error { return h.setType(p.value()) },
		"fortran_order": func() (err error) { h.fortran, err = parseBool(p.value()); return err },
		"shape":         func() (err error) { h.shape, err = parseShape(p.value()); return err },
	}
	if !p.skip("{") {
		return nil, errors.New("it is no dict")
	}
	for !p.skip("}") {
		key, err := unquote(p.value())
		if err != nil {
			return nil, err
		}
		set := known[key]
		if set == nil || !p.skip(":") {
			return nil, fmt.Errorf("the key %.200q is unknown or a duplicate", key)
		}
		delete(known, key)
		if err := set(); err != nil {
			return nil, err
		}
		if !p.skip(",") && !strings.HasPrefix(p.rest, "}") {
			return nil, errors.New("a comma or } is missing")
		}
	}
	for key := range known {
		return nil, fmt.Errorf("the key %q is missing", key)
	}
	if p.skip(""); p.rest != "" {
		return nil, errors.New("text after the dict")
	}
	return h, nil
}

// A parser cuts a Python literal in values.
type parser struct{ rest string }

// skip skips white space, and then the token, if it is there.
func (p *parser) skip(token string) bool {
	var ok bool
	p.rest = strings.TrimLeft(p.rest, " \t\n")
	p.rest, ok = strings.CutPrefix(p.rest, token)
	if ok {
		p.rest = strings.TrimLeft(p.rest, " \t\n")
	}
	return ok
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// value returns the text up to the end of a string, a tuple, a list or a word; ""
// if there is none.
func (p *parser) value() string {
	p.skip("")
	end := 0
	switch {
	case p.rest == "":
	case p.rest[0] == '\'' || p.rest[0] == '"':
		end = 2 + strings.IndexByte(p.rest[1:], p.rest[0])
	case p.rest[0] == '(':
		end = 1 + strings.IndexByte(p.rest, ')')
	case p.rest[0] == '[':
		end = len(p.rest) // it is refused anyway
	default:
		end = len(p.rest) - len(strings.TrimLeft(p.rest, letters))
	}
	v := p.rest[:end]
	p.rest = p.rest[end:]
	return v
}

// unquote returns a Python string without escapes.
func unquote(v string) (string, error) {
	if len(v) < 2 || v[0] != '\'' && v[0] != '"' || strings.ContainsAny(v, `\`) {
		return "", fmt.Errorf("%.200q in place of a string", v)
	}
	return v[1 : len(v)-1], nil
}

func parseBool(v string) (bool, error) {
	if v != "True" && v != "False" {
		return false, fmt.Errorf("fortran_order is %.200q, not True or False", v)
	}
	return v == "True", nil
}

// parseShape parses a tuple of integers. Python 2 wrote long ones with an L.
func parseShape(v string) ([]int, error) {
	bad := fmt.Errorf("the shape is %.200q, not a tuple of integers", v)
	inner, ok := strings.CutPrefix(v, "(")
	if inner, ok2 := strings.CutSuffix(inner, ")"); ok && ok2 {
		items := strings.Split(inner, ",")
		last := len(items) - 1
		if strings.TrimSpace(items[last]) == "" { // (), (1,), (1, 2,)
			items = items[:last]
		} else if last == 0 {
			return nil, bad // (1) is a number
		}
		shape := make([]int, len(items))
		for i, item := range items {
			digits := strings.TrimSuffix(strings.TrimSpace(item), "L")
			n, err := strconv.ParseUint(digits, 10, strconv.IntSize-1)
			if err != nil || digits[0] == '0' && digits != "0" {
				return nil, bad
			}
			shape[i] = int(n)
		}
		return shape, nil
	}
	return nil, bad
}

// dtypes are the types of numpy that safetensors has, by kind and size in bytes.
var dtypes = map[string]safetensors.DType{
	"b1": safetensors.BOOL,
	"i1": safetensors.I8, "i2": safetensors.I16, "i4": safetensors.I32, "i8": safetensors.I64,
	"u1": safetensors.U8, "u2": safetensors.U16, "u4": safetensors.U32, "u8": safetensors.U64,
	"f2": safetensors.F16, "f4": safetensors.F32, "f8": safetensors.F64, "c8": safetensors.C64,
}

// setType parses the type, such as '<f4'.
func (h *header) setType(v string) error {
	if strings.HasPrefix(v, "[") {
		return unsupported{errors.New("structured arrays are not supported; save each field as an array")}
	}
	descr, err := unquote(v)
	if err != nil {
		return err
	}
	order, kind := descr[:min(1, len(descr))], descr[min(1, len(descr)):]
	h.dtype = dtypes[kind]
	width := h.dtype.Bits() / 8
	switch {
	case h.dtype == 0:
		return unknownType(descr, kind)
	case !strings.Contains("<>|", order) || order == "|" && width > 1:
		return fmt.Errorf("%.200q has no byte order", descr)
	case order == ">" && width > 1:
		h.swap = width
		if h.dtype == safetensors.C64 {
			h.swap = width / 2
		}
	}
	return nil
}

// An unsupported is why an array cannot be a tensor, though its file is valid.
type unsupported struct{ error }

// unknownType says why a type is refused.
func unknownType(descr, kind string) error {
	why := "safetensors has no such dtype"
	if kind != "" {
		switch kind[0] {
		case 'O':
			why = "arrays of Python objects are pickles, which are not read"
		case 'U', 'S', 'a':
			why = "arrays of strings are not supported"
		case 'M', 'm':
			why = "dates and times are not supported; convert them to int64"
		case 'V':
			why = "raw bytes of unknown meaning. numpy forgets the type of bfloat16 and float8 arrays of ml_dtypes; convert them to float32 before saving"
		}
	}
	return unsupported{fmt.Errorf("type %.200q: %s", descr, why)}
}
