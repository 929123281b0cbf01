package dcp

import (
	"bytes"
	"io"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A copies holds the same part of a tensor in the files of several ranks. Its ReadAt reads all of
// them, and returns an error if they differ.
type copies struct {
	name   string // name of the tensor
	pieces []*piece
}

const (
	// maxSmall is the size in bytes of the largest part, such as a buffer, whose copies are
	// compared when the folder is opened. Copies of larger parts are compared when they are read.
	// maxEarly limits how many bytes are read to compare copies when the folder is opened.
	maxSmall = 64 << 10
	maxEarly = 64 << 20

	// window is the number of bytes of a copy that are compared at a time.
	window = 256 << 10
)

// sameOf returns one piece that replaces several copies of it. If they are small, and *early is
// large enough, it compares them immediately, and subtracts the bytes that it reads from *early.
// Otherwise they are compared when the piece is read.
func sameOf(name string, pieces []*piece, early *int64) (*piece, error) {
	c := copies{name, pieces}
	first := pieces[0]
	t, err := safetensors.NewTensorAt(first.tensor.DType(), first.tensor.Shape(), c)
	if err != nil {
		return nil, broken(name, "%v", prefix.Strip(err))
	}
	if size := t.Size(); size <= maxSmall && size*int64(len(pieces)) <= *early {
		*early -= size * int64(len(pieces))
		if _, err := c.ReadAt(make([]byte, size), 0); err != nil {
			return nil, prefix.Strip(err)
		}
	}
	return &piece{box: first.box, stored: first.stored, tensor: t, file: first.file}, nil
}

// ReadAt implements io.ReaderAt.
func (c copies) ReadAt(p []byte, off int64) (n int, err error) {
	first := c.pieces[0]
	if n, err = first.tensor.ReadAt(p, off); n < len(p) {
		return n, err
	}
	buffer := make([]byte, min(len(p), window))
	for _, other := range c.pieces[1:] {
		for at := 0; at < len(p); {
			b := buffer[:min(len(buffer), len(p)-at)]
			if n, err := other.tensor.ReadAt(b, off+int64(at)); n < len(b) {
				if err == nil || err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return 0, err
			}
			if !bytes.Equal(b, p[at:at+len(b)]) {
				return 0, broken(c.name, "it differs between the ranks that have it: %v is not equal to that in %s", first, other.file)
			}
			at += len(b)
		}
	}
	return n, nil
}

// mergeCopies sorts the pieces of a tensor, and replaces those that are copies of one another by one, as
// sameOf does.
func mergeCopies(name string, pieces []*piece, early *int64) ([]*piece, error) {
	slices.SortStableFunc(pieces, func(a, b *piece) int { return compareBoxes(a.box, b.box) })
	merged := pieces[:0]
	for len(pieces) > 0 {
		n := 1
		for n < len(pieces) && pieces[n].equal(pieces[0].box) {
			n++
		}
		p := pieces[0]
		if n > 1 {
			var err error
			if p, err = sameOf(name, slices.Clone(pieces[:n]), early); err != nil {
				return nil, err
			}
		}
		merged, pieces = append(merged, p), pieces[n:]
	}
	return merged, nil
}
