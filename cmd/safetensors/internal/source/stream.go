package source

import (
	"io"
	"os"
)

// openStream opens what can be read once only, from start to end. It goes to a
// temporary file, because the tensors are needed in another order than they come.
func (o *Opener) openStream(c *Checkpoint, r io.Reader) error {
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			c.Files = []File{o.wholeFile("-", f, info.Size())}
			return o.openReader(c, o.meter(f), info.Size(), "")
		}
	}
	spool, size, err := o.spool(c, r)
	if err != nil {
		return err
	}
	c.Files = []File{o.wholeFile("-", spool, size)}
	return o.openReader(c, o.meter(spool), size, "")
}

// wholeFile describes a file that is open.
func (o *Opener) wholeFile(name string, r io.ReaderAt, size int64) File {
	return File{Name: name, Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(o.meter(r), 0, size)), nil
	}}
}
