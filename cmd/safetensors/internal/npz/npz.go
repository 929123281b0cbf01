// Package npz reads and writes the files of NumPy: .npy, one array, and .npz, a zip
// archive of them.
//
// Open and OpenNPY read the headers only. The data of an array is read when its tensor
// is: in constant memory, also in Fortran order and big-endian, and of a compressed
// archive (numpy.savez_compressed). Only those that are both compressed and in Fortran
// order are unpacked into memory.
//
// Arrays of objects, strings, dates, records and raw bytes are refused, and so is what
// safetensors has no dtype for. NumPy has none for BF16 and the floats of up to 8 bits:
// Write refuses them, and Open the arrays of raw bytes that NumPy makes of them.
//
// A library was rejected: github.com/sbinet/npyio 0.6.0 reads an array as a whole, has
// neither float16 nor any order but its own beyond matrices, and finds the fields of a
// header by searching its text.
package npz

import (
	"errors"
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
// as long as the tensors are used. Refused are the arrays that cannot be read, by their
// names, and why.
func Open(r io.ReaderAt, size int64) (tensors map[string]safetensors.Tensor, refused map[string]error, err error) {
	a, err := zipfile.Open(r, size)
	if err != nil {
		return nil, nil, fmt.Errorf("npz file: %w", err)
	}
	tensors, refused = make(map[string]safetensors.Tensor, len(a.Members)), make(map[string]error)
	for _, m := range a.Members {
		name, ok := strings.CutSuffix(m.Name, suffix)
		if !ok {
			refused[m.Name] = fmt.Errorf("it is no %s file", suffix)
			continue
		}
		t, err := openMember(m)
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
	return h.layOut(m.Content())
}

// OpenNPY returns the array of the .npy file of size bytes in r, under ArrayName. r
// must stay readable as long as the tensor is used.
func OpenNPY(r io.ReaderAt, size int64) (map[string]safetensors.Tensor, error) {
	h, err := readHeader(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, fmt.Errorf("npy file: %w", err)
	}
	t, err := h.layOut(strided.Source{R: r, Size: size})
	if err != nil {
		return nil, fmt.Errorf("npy file: %w", err)
	}
	return map[string]safetensors.Tensor{ArrayName: t}, nil
}

// layOut returns the array of a .npy file.
func (h *header) layOut(file strided.Source) (safetensors.Tensor, error) {
	data := file
	data.Size -= h.size
	data.R, data.Swap = io.NewSectionReader(file.R, h.size, data.Size), h.swap
	t, err := safetensors.NewTensorAt(h.dtype, h.shape, data.R)
	switch {
	case err != nil:
		return t, err
	case t.Size() > data.Size:
		return t, fmt.Errorf("%v needs %d bytes, the file has %d: %w", t, t.Size(), data.Size, io.ErrUnexpectedEOF)
	case t.Size() < data.Size:
		return t, fmt.Errorf("%v needs %d bytes, the file has %d", t, t.Size(), data.Size)
	}
	layout := strided.Rows(h.dtype.Bits()/8, h.shape)
	if h.fortran {
		layout = strided.Fortran(h.dtype.Bits()/8, h.shape)
	}
	return strided.NewTensor(h.dtype, h.shape, data, layout)
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
