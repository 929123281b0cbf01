package source

import (
	"io"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bintensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/npz"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/torchfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/zipfile"
)

// formats are those that can be read beside safetensors.
var formats = []format{
	{
		name:       "NumPy archive",
		extensions: []string{".npz"},
		matches:    func(r io.ReaderAt, size int64) bool { return hasMember(r, size, ".npy") },
		open: func(_ *Opener, c *Checkpoint, r io.ReaderAt, size int64) (err error) {
			c.Tensors, c.Refused, err = npz.Open(r, size)
			return err
		},
	},
	{
		name:       "NumPy array",
		extensions: []string{".npy"},
		matches:    func(r io.ReaderAt, size int64) bool { return starts(r, size, "\x93NUMPY") },
		open: func(_ *Opener, c *Checkpoint, r io.ReaderAt, size int64) (err error) {
			c.Tensors, err = npz.OpenNPY(r, size)
			return err
		},
	},
	{
		name:       "PyTorch file",
		extensions: []string{".pt", ".pth", ".bin", ".ckpt"},
		matches:    isTorch,
		open: func(o *Opener, c *Checkpoint, r io.ReaderAt, size int64) error {
			read, err := torchfile.Open(o.Context, r, size, o.Key)
			if err == nil {
				c.Tensors, c.Metadata, c.Refused = read.Tensors, read.Metadata, read.Refused
			}
			return err
		},
	},
	{
		name:       "bintensors file",
		extensions: []string{".bt"},
		matches: func(r io.ReaderAt, size int64) bool {
			head := make([]byte, 9)
			n, _ := r.ReadAt(head[:min(size, 9)], 0)
			return bintensors.Sniff(head[:n])
		},
		open: func(_ *Opener, c *Checkpoint, r io.ReaderAt, size int64) (err error) {
			c.Tensors, c.Metadata, err = bintensors.Open(r, size)
			return err
		},
	},
}

// isTorch: torch.save writes a zip archive; before PyTorch 1.6 it wrote pickles, of
// protocols 2 to 5.
func isTorch(r io.ReaderAt, size int64) bool {
	for _, start := range []string{"\x80\x02", "\x80\x03", "\x80\x04", "\x80\x05"} {
		if starts(r, size, start) {
			return true
		}
	}
	return hasMember(r, size, "data.pkl")
}

// hasMember reports whether a file is a zip archive with a member whose name ends in
// suffix.
func hasMember(r io.ReaderAt, size int64, suffix string) bool {
	if !starts(r, size, "PK") {
		return false
	}
	a, err := zipfile.Open(r, size)
	return err == nil && slices.ContainsFunc(a.Members, func(m *zipfile.Member) bool { return strings.HasSuffix(m.Name, suffix) })
}

// starts reports whether a file starts with a text.
func starts(r io.ReaderAt, size int64, text string) bool {
	head := make([]byte, len(text))
	if size < int64(len(text)) {
		return false
	}
	n, _ := r.ReadAt(head, 0)
	return string(head[:n]) == text
}
