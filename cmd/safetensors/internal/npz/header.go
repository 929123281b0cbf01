package npz

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// A header describes the array that follows it in a .npy file.
type header struct {
	dtype   safetensors.DType
	swap    int  // size in bytes of each number of a big-endian array, whose bytes must be swapped; otherwise 0
	fortran bool // whether the first index varies fastest
	shape   []int
	size    int64 // size in bytes of the header itself; the data follows it
}

const (
	magic = "\x93NUMPY"

	// maxHeader is the largest length in bytes of the text of a header. numpy.load has the same
	// limit.
	maxHeader = 10_000
)

// readHeader reads a header, which consists of the magic, the version, the length of a text, and
// the text: a Python dict.
func readHeader(r io.Reader) (*header, error) {
	start := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(r, start); err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("not a .npy file: it is shorter than a header: %w", io.ErrUnexpectedEOF)
	} else if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(start, []byte(magic)) {
		return nil, fmt.Errorf("not a .npy file: it starts with %q", start[:len(magic)])
	}
	version := start[len(magic):][:2]
	length := int64(binary.LittleEndian.Uint16(start[len(magic)+2:]))
	switch {
	case version[1] != 0 || version[0] < 1 || version[0] > 3:
		return nil, fmt.Errorf("version %d.%d of the .npy format, only 1.0, 2.0 and 3.0 are read", version[0], version[1])
	case version[0] > 1:
		start = append(start, 0, 0)
		if _, err := io.ReadFull(r, start[len(start)-2:]); err != nil {
			return nil, fmt.Errorf("reading the header: %w", err)
		}
		length = int64(binary.LittleEndian.Uint32(start[len(magic)+2:]))
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
	if errors.Is(err, errors.ErrUnsupported) { // the header itself is valid
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("the header: %w", err)
	}
	h.size = int64(len(start)) + length
	return h, nil
}

// These expressions match the literals of Python that a header may have. None of them matches a
// list, which is refused.
var (
	dict  = lazyregexp.New(`^\s*\{((?s:.*))\}\s*$`)
	entry = lazyregexp.New(`^\s*('[^'\\]*'|"[^"\\]*")\s*:\s*('[^'\\]*'|"[^"\\]*"|\w+|\([^()]*\)|\[(?s:.*))\s*(?:,|$)`)
	tuple = lazyregexp.New(`^\(\s*(?:(?:\d+L?\s*,\s*)+(?:\d+L?\s*)?)?\)$`) // Python 2 wrote long integers with an L
	digit = lazyregexp.New(`\d+`)
)

// parseHeader parses the dict, which must have exactly the keys descr, fortran_order and shape.
func parseHeader(text string) (*header, error) {
	h := &header{}
	known := map[string]func(v string) error{
		"descr": h.setType,
		"shape": func(v string) (err error) { h.shape, err = parseShape(v); return err },
		"fortran_order": func(v string) error {
			if h.fortran = v == "True"; !h.fortran && v != "False" {
				return fmt.Errorf("fortran_order is %.80q, not True or False", v)
			}
			return nil
		},
	}
	inner := dict().FindStringSubmatch(text)
	if inner == nil {
		return nil, fmt.Errorf("expected a dict of Python, found %.80q", strings.TrimSpace(text))
	}
	for rest := inner[1]; strings.TrimSpace(rest) != ""; {
		found := entry().FindStringSubmatch(rest)
		if found == nil {
			return nil, fmt.Errorf("expected 'KEY': VALUE, found %.80q", strings.TrimSpace(rest))
		}
		key := found[1][1 : len(found[1])-1]
		set := known[key]
		if set == nil {
			return nil, fmt.Errorf("the key %.80q is unknown or a duplicate", key)
		}
		delete(known, key)
		if err := set(found[2]); err != nil {
			return nil, err
		}
		rest = rest[len(found[0]):]
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		return nil, fmt.Errorf("the key %q is missing", key)
	}
	return h, nil
}

// parseShape parses a tuple of integers. (1) is not a tuple but a number in Python, and an error.
func parseShape(v string) ([]int, error) {
	shape, bad := []int{}, fmt.Errorf("the shape is %.80q, not a tuple of integers", v)
	if !tuple().MatchString(v) {
		return nil, bad
	}
	for _, digits := range digit().FindAllString(v, -1) {
		n, err := strconv.ParseUint(digits, 10, strconv.IntSize-1)
		if err != nil || digits[0] == '0' && digits != "0" {
			return nil, bad
		}
		shape = append(shape, int(n))
	}
	return shape, nil
}

// dtypes maps the types of NumPy, by kind and size in bytes, to the dtypes of safetensors.
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
	if v[0] != '\'' && v[0] != '"' {
		return fmt.Errorf("descr is %.80q, not a string", v)
	}
	descr := v[1 : len(v)-1]
	order, kind := descr[:min(1, len(descr))], descr[min(1, len(descr)):]
	h.dtype = dtypes[kind]
	width := h.dtype.Bits() / 8
	switch {
	case h.dtype == 0:
		why := cmp.Or(others[kind[:min(1, len(kind))]], "safetensors has no such dtype")
		return unsupported{fmt.Errorf("type %.80q: %s", descr, why)}
	case !strings.Contains("<>|", order) || order == "|" && width > 1:
		return fmt.Errorf("%.80q has no byte order", descr)
	case order == ">" && width > 1:
		h.swap = width
		if h.dtype == safetensors.C64 {
			h.swap = width / 2
		}
	}
	return nil
}

// An unsupported is the reason why an array of a valid file cannot be a tensor. It wraps
// errors.ErrUnsupported, but its text does not mention it.
type unsupported struct{ error }

func (unsupported) Is(target error) bool { return target == errors.ErrUnsupported }

const (
	noStrings = "arrays of strings are not supported"
	noDates   = "dates and times are not supported; convert them to int64"
)

// others maps the first letter of a kind of array that is refused to the reason.
var others = map[string]string{
	"O": "arrays of Python objects are pickles, which are not read",
	"U": noStrings, "S": noStrings, "a": noStrings,
	"M": noDates, "m": noDates,
	"V": "raw bytes of unknown meaning. numpy forgets the type of bfloat16 and float8 arrays of ml_dtypes; convert them to float32 before saving",
}
