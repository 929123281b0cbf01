package source

import (
	"io"
	"os"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
)

// openStream opens what can be read once only, from start to end. It goes to a
// temporary file, because the tensors are needed in another order than they come.
func (o *Opener) openStream(c *Checkpoint, r io.Reader) error {
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			c.Files = []storage.File{o.OfReader("-", f, info.Size())}
			return o.openReader(c, o.Meter(f), info.Size(), "")
		}
	}
	temp, size, err := o.Spool(r)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, temp.Close)
	c.Files = []storage.File{o.OfReader("-", temp, size)}
	return o.openReader(c, o.Meter(temp), size, "")
}
