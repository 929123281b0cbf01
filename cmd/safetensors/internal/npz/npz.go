// Package npz reads and writes the files of NumPy: .npy files with one array, and .npz files, zip
// archives of .npy files.
//
// Open and OpenNPY read only headers. A tensor reads the data of its array on demand. The most
// recently read arrays of a compressed archive (numpy.savez_compressed) are held in memory, and so
// are matrices in Fortran order while they are read. A large compressed array is refused if
// compression has made it so much smaller that it cannot be weights.
//
// Arrays of objects, strings, dates, records and raw bytes are refused, and so are arrays for whose
// type safetensors has no dtype. NumPy has no type for BF16 and for floats of up to 8 bits. So
// Write refuses them; NumPy saves them as arrays of raw bytes, and Open refuses these.
//
// The library github.com/sbinet/npyio 0.6.0 was considered and rejected: it reads an array as a
// whole, has no float16, supports Fortran order for matrices only, and finds the fields of a
// header by searching its text.
package npz

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/zipfile"
)

const suffix = ".npy" // ending of the names of arrays in an archive

// ArrayName is the name of the array of a .npy file in the result of OpenNPY, since the file
// contains no name. numpy.savez gives this name to its first array.
const ArrayName = "arr_0"

// Open returns the arrays of the archive in r, which has size bytes and must stay readable as long
// as the tensors are used. refused maps the name of each array that cannot be read to the reason.
func Open(r io.ReaderAt, size int64) (tensors map[string]safetensors.Tensor, refused map[string]error, err error) {
	a, err := zipfile.Open(r, size)
	if err == nil {
		arrays := slices.DeleteFunc(slices.Clone(a.Members), func(m *zipfile.Member) bool { return !strings.HasSuffix(m.Name, suffix) })
		err = a.Locate(arrays, func(n int64, f func(i int64) error) error { return parallel.Do(32, n, f) })
	}
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, nil, fmt.Errorf("npz file: %w: the file is cut short, perhaps by a download that did not finish", err)
		}
		return nil, nil, fmt.Errorf("npz file: %w", err)
	}
	tensors, refused = make(map[string]safetensors.Tensor, len(a.Members)), make(map[string]error)
	for _, m := range a.Members {
		name, ok := strings.CutSuffix(m.Name, suffix)
		if !ok {
			refused[m.Name] = fmt.Errorf("it is not a %s file", suffix)
			continue
		}
		t, err := openMember(m, osfile.NameOf(r))
		switch other := (unsupported{}); {
		case errors.As(err, &other):
			refused[name] = other
		case err != nil:
			return nil, nil, fmt.Errorf("npz file: array %.200q: %w", name, err)
		default:
			tensors[name] = t
		}
	}
	return tensors, refused, nil
}

// openMember returns the array in a member of the archive with this file name. The error is an unsupported if
// the array cannot be a tensor.
func openMember(m *zipfile.Member, file string) (safetensors.Tensor, error) {
	content, err := m.Open()
	if err != nil {
		return safetensors.Tensor{}, err
	}
	defer content.Close()
	h, err := readHeader(content)
	if err != nil {
		return safetensors.Tensor{}, err
	}
	if err := m.CheckUnpack(); err != nil {
		return safetensors.Tensor{}, unsupported{err}
	}
	return h.layOut(m.Size, m.Content(mem.CheckSize), file)
}

// OpenNPY returns the array of the .npy file in r, under the name ArrayName. r has size bytes and
// must stay readable as long as the tensor is used.
func OpenNPY(r io.ReaderAt, size int64) (map[string]safetensors.Tensor, error) {
	h, err := readHeader(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, fmt.Errorf("npy file: %w", err)
	}
	t, err := h.layOut(size, r, osfile.NameOf(r))
	if err != nil {
		return nil, fmt.Errorf("npy file: %w", err)
	}
	return map[string]safetensors.Tensor{ArrayName: t}, nil
}

// layOut returns the array of the .npy file in r, which has size bytes and the header h. Errors of reading
// contain the name of the file, unless it is "".
func (h *header) layOut(size int64, r io.ReaderAt, file string) (safetensors.Tensor, error) {
	shape := slices.Clone(h.shape)
	if h.fortran { // the first index varies fastest
		slices.Reverse(shape)
	}
	data := size - h.size
	r = io.NewSectionReader(r, h.size, data)
	if h.swap > 0 {
		r = mem.Swapped{R: r, Size: h.swap}
	}
	t, err := safetensors.NewTensorAt(h.dtype, shape, osfile.NamedReader{ReaderAt: r, File: file})
	if err == nil && h.fortran {
		t, err = t.Transpose()
	}
	switch {
	case err != nil:
		return t, err
	case t.Size() > data:
		return t, fmt.Errorf("%v needs %s, the file has %d: %w", t, shapetext.Count(t.Size(), "byte"), data, io.ErrUnexpectedEOF)
	case t.Size() < data:
		return t, fmt.Errorf("%v needs %s, the file has %d", t, shapetext.Count(t.Size(), "byte"), data)
	}
	return t, nil
}

// Write writes the tensors in the form of numpy.savez: an uncompressed archive of .npy files,
// sorted by name.
//
// If NumPy has no type for a tensor, or could not find a tensor under its name, Write returns an
// error before it writes anything.
func Write(w io.Writer, tensors map[string]safetensors.Tensor) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("npz file: %w", err)
		}
	}()
	names := slices.Sorted(maps.Keys(tensors))
	for _, name := range names {
		if err := check(name, tensors); err != nil {
			return fmt.Errorf("tensor %.200q: %w", name, err)
		}
	}
	z := zip.NewWriter(w)
	for _, name := range names {
		t := tensors[name]
		f, err := z.CreateHeader(&zip.FileHeader{Name: name + suffix, Method: zip.Store})
		if err == nil {
			_, err = f.Write(appendHeader(nil, t))
		}
		if err == nil {
			_, err = t.WriteTo(f)
		}
		if err != nil {
			return fmt.Errorf("tensor %.200q: %w", name, term.Bare(err))
		}
	}
	return z.Close()
}

// A NoType is the error for a tensor for whose dtype NumPy has no type.
type NoType struct{ DType safetensors.DType }

func (e NoType) Error() string { return fmt.Sprintf("NumPy has no type for %v", e.DType) }

// Lacks reports whether NumPy has no type for a dtype.
func Lacks(d safetensors.DType) bool { return typeOf(d) == "" }

// check returns the reason why NumPy could not read a tensor, or nil.
func check(name string, tensors map[string]safetensors.Tensor) error {
	const maxRank = 64
	t := tensors[name]
	_, both := tensors[name+suffix]
	switch {
	case Lacks(t.DType()):
		return NoType{t.DType()}
	case len(t.Shape()) > maxRank:
		return fmt.Errorf("it has %d dimensions, NumPy allows %d", len(t.Shape()), maxRank)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return errors.New("its name has a zero byte or is not valid UTF-8, which the zip format does not allow")
	case len(name)+len(suffix) > math.MaxUint16:
		return fmt.Errorf("its name has %d bytes, too many for the zip format", len(name))
	case both:
		return fmt.Errorf("NumPy does not distinguish it from %.200q", name+suffix)
	}
	return nil
}

// typeOf returns the name of a dtype in NumPy, or "" if NumPy does not have it.
func typeOf(d safetensors.DType) string {
	for kind, dtype := range dtypes {
		switch {
		case dtype != d:
		case d.Bits() == 8:
			return "|" + kind
		default:
			return "<" + kind
		}
	}
	return ""
}

// appendHeader appends the header that numpy.save would write. As numpy.save does, it leaves room
// for the first dimension to grow to 21 digits, and pads the header to a multiple of 64 bytes.
func appendHeader(b []byte, t safetensors.Tensor) []byte {
	const (
		alignment = 64
		digits    = 21
		prefix    = len(magic) + 4
	)
	dims := strings.Fields(strings.Trim(fmt.Sprint(t.Shape()), "[]"))
	tuple, grow := strings.Join(dims, ", "), 0
	if len(dims) > 0 {
		grow = digits - len(dims[0])
	}
	if len(dims) == 1 {
		tuple += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", typeOf(t.DType()), tuple)
	text += strings.Repeat(" ", grow)
	text += strings.Repeat(" ", alignment-(prefix+len(text)+1)%alignment) + "\n"
	b = append(b, magic+"\x01\x00"...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text))) // never overflows, since there are at most 64 dimensions
	return append(b, text...)
}
