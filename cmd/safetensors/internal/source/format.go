package source

import (
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A format is a file format of another program.
type format struct {
	name       string
	extensions []string
	matches    func(r io.ReaderAt, size int64) bool // by content
	open       func(o *Opener, c *Checkpoint, r io.ReaderAt, size int64) error
}

// formatOf returns the format of a file: by its content, else by its name, nil for
// safetensors.
func formatOf(r io.ReaderAt, size int64, name string) *format {
	if isSafetensors(r) {
		return nil
	}
	for i := range formats {
		if formats[i].matches(r, size) {
			return &formats[i]
		}
	}
	extension := strings.ToLower(path.Ext(name))
	for i := range formats {
		if slices.Contains(formats[i].extensions, extension) {
			return &formats[i]
		}
	}
	return nil
}

// isSafetensors reports whether a file starts as one: a header length below 2^27,
// and a brace.
func isSafetensors(r io.ReaderAt) bool {
	var head [9]byte
	n, _ := r.ReadAt(head[:], 0)
	return n == len(head) && head[8] == '{' && head[3] < 8 && string(head[4:8]) == "\x00\x00\x00\x00"
}

// openReader opens a file of whatever format.
func (o *Opener) openReader(c *Checkpoint, r io.ReaderAt, size int64, name string) error {
	format := formatOf(r, size, name)
	if format == nil {
		f, err := safetensors.NewFile(r, size)
		if err != nil {
			return err
		}
		c.take(f)
		return nil
	}
	if err := format.open(o, c, r, size); err != nil {
		return err
	}
	c.Order = slices.Sorted(maps.Keys(c.Tensors))
	return nil
}
