// Package npz reads and writes the files of NumPy: .npy, one array, and .npz, a zip
// archive of them.
//
// Open and OpenNPY read the headers only. The data of an array is read when its tensor
// is: in constant memory, also in Fortran order and big-endian. The arrays of a
// compressed archive (numpy.savez_compressed) are unpacked into memory one at a time.
//
// Arrays of objects, strings, dates, records and raw bytes are errors, and so is what
// safetensors has no dtype for. NumPy has none for BF16 and the floats of up to 8 bits:
// Write refuses them, and the arrays of raw bytes that NumPy makes of them are refused
// by Open.
//
// A library was rejected: github.com/sbinet/npyio 0.6.0 reads an array as a whole, has
// neither float16 nor any order but its own beyond matrices, and finds the fields of a
// header by searching its text.
package npz

import (
	"fmt"
	"io"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/strided"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/zipfile"
)

const suffix = ".npy" // of the members of an archive

// ArrayName is the name of the array of a .npy file, which has none: that which
// numpy.savez gives the first one.
const ArrayName = "arr_0"

// Open returns the arrays of the archive of size bytes in r, which must stay readable
// as long as the tensors are used. There is no metadata.
func Open(r io.ReaderAt, size int64) (map[string]safetensors.Tensor, map[string]string, error) {
	a, err := zipfile.Open(r, size)
	if err != nil {
		return nil, nil, fmt.Errorf("npz file: %w", err)
	}
	tensors := make(map[string]safetensors.Tensor, len(a.Members))
	for _, m := range a.Members {
		name, ok := strings.CutSuffix(m.Name, suffix)
		if !ok {
			return nil, nil, fmt.Errorf("npz file: member %.200q is no %s file", m.Name, suffix)
		}
		if tensors[name], err = openMember(m); err != nil {
			return nil, nil, fmt.Errorf("npz file: array %.200q: %w", name, err)
		}
	}
	return tensors, nil, nil
}

func openMember(m *zipfile.Member) (safetensors.Tensor, error) {
	content, err := m.Open()
	if err != nil {
		return safetensors.Tensor{}, err
	}
	defer content.Close()
	h, err := readHeader(content)
	if err != nil {
		return safetensors.Tensor{}, err
	}
	return m.Tensor(func(r io.ReaderAt) (safetensors.Tensor, error) { return h.layOut(r, m.Size) })
}

// OpenNPY returns the array of the .npy file of size bytes in r, under ArrayName. r
// must stay readable as long as the tensor is used.
func OpenNPY(r io.ReaderAt, size int64) (map[string]safetensors.Tensor, map[string]string, error) {
	h, err := readHeader(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, nil, fmt.Errorf("npy file: %w", err)
	}
	t, err := h.layOut(r, size)
	if err != nil {
		return nil, nil, fmt.Errorf("npy file: %w", err)
	}
	return map[string]safetensors.Tensor{ArrayName: t}, nil, nil
}

// layOut returns the array of a .npy file of size bytes.
func (h *header) layOut(r io.ReaderAt, size int64) (safetensors.Tensor, error) {
	size -= h.size
	u, unpacked := r.(zipfile.Unpacked)
	data := strided.Swap(io.NewSectionReader(r, h.size, size), size, h.swap)
	t, err := safetensors.NewTensorAt(h.dtype, h.shape, data)
	switch {
	case err != nil:
		return t, err
	case t.Size() > size:
		return t, fmt.Errorf("%v needs %d bytes, the file has %d: %w", t, t.Size(), size, io.ErrUnexpectedEOF)
	case t.Size() < size:
		return t, fmt.Errorf("%v needs %d bytes, the file has %d", t, t.Size(), size)
	case unpacked && !h.fortran && h.swap == 0: // memory that a writer collects early
		return safetensors.NewTensor(h.dtype, h.shape, u.Content[h.size:])
	case !h.fortran || t.Size() == 0:
		return t, nil
	}
	rows, err := strided.NewReader(data, size, strided.Fortran(h.dtype.Bits()/8, h.shape))
	if err != nil {
		return t, err
	}
	return safetensors.NewTensorAt(h.dtype, h.shape, rows)
}

// Write writes the tensors as numpy.savez does: an archive of .npy files, not
// compressed, in the order of their names.
//
// Before anything is written it is an error if NumPy has no type for a tensor, or
// could not find it under its name.
func Write(w io.Writer, tensors map[string]safetensors.Tensor) error {
	if err := write(w, tensors); err != nil {
		return fmt.Errorf("npz file: %w", err)
	}
	return nil
}
