package source

import (
	"context"
	"errors"
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
	spool, err := os.CreateTemp("", "safetensors-*.tmp")
	if err != nil {
		return err
	}
	gone := os.Remove(spool.Name()) == nil // where the system can: a command that is killed leaves nothing
	c.onClose(func() error {
		err := spool.Close()
		if !gone {
			err = errors.Join(err, os.Remove(spool.Name()))
		}
		return err
	})
	size, err := o.spool(spool, r)
	if err != nil {
		return err
	}
	c.Files = []File{o.wholeFile("-", spool, size)}
	return o.openReader(c, o.meter(spool), size, "")
}

// spool copies a stream to a file. A stream that brings nothing cannot be
// interrupted, so that waiting for it ends with the context.
func (o *Opener) spool(w io.Writer, r io.Reader) (size int64, err error) {
	type result struct {
		size int64
		err  error
	}
	done := make(chan result, 1)
	go func() {
		size, err := io.Copy(w, r)
		done <- result{size, err}
	}()
	select {
	case copied := <-done:
		return copied.size, copied.err
	case <-o.Context.Done():
		return 0, context.Cause(o.Context)
	}
}

// wholeFile describes a file that is open.
func (o *Opener) wholeFile(name string, r io.ReaderAt, size int64) File {
	return File{Name: name, Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(o.meter(r), 0, size)), nil
	}}
}
