package source

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/gosafetensors/safetensors"
)

// A metered reader counts the bytes that are read, and fails when the context is
// cancelled: that is how a writer that takes no context ends. It costs nothing that
// can be measured, because reads are large.
type metered struct {
	io.ReaderAt
	o *Opener
}

func (m metered) ReadAt(p []byte, off int64) (int, error) {
	if m.o.Context.Err() != nil {
		return 0, context.Cause(m.o.Context)
	}
	n, err := m.ReaderAt.ReadAt(p, off)
	m.o.read.Add(int64(n))
	return n, err
}

// meter returns a reader that is metered, and a safetensors.RangeReader if r is one.
func (o *Opener) meter(r io.ReaderAt) io.ReaderAt {
	m := metered{r, o}
	if ranges, ok := r.(safetensors.RangeReader); ok {
		return meteredRanges{m, ranges}
	}
	return m
}

type meteredRanges struct {
	metered
	ranges safetensors.RangeReader
}

func (m meteredRanges) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	if m.o.Context.Err() != nil {
		return context.Cause(m.o.Context)
	}
	n := int64(0)
	err := m.ranges.ReadRanges(func(yield func(int64, []byte) bool) {
		for off, dst := range ranges {
			n += int64(len(dst))
			if !yield(off, dst) {
				return
			}
		}
	})
	m.o.read.Add(n)
	return err
}

// A meteredFS is a file system whose files are metered. It notes those that are
// opened.
type meteredFS struct {
	fs.FS
	o    *Opener
	seen *files
	path func(name string) string // of a local file; nil if there are none
}

func (f meteredFS) Stat(name string) (fs.FileInfo, error)      { return fs.Stat(f.FS, name) }
func (f meteredFS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.FS, name) }

func (f meteredFS) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	r, ok := file.(io.ReaderAt)
	if err != nil || !ok || !info.Mode().IsRegular() {
		return file, err
	}
	noted := File{Name: name, Size: info.Size(), Tag: tagOf(info)}
	noted.Open = func() (io.ReadCloser, error) { return f.reopen(name, noted.Tag) }
	if f.path != nil {
		noted.Path = f.path(name)
	}
	f.seen.add(noted)
	if m, ok := f.o.meter(r).(meteredRanges); ok {
		return struct {
			fs.File
			meteredRanges
		}{file, m}, nil
	}
	return struct {
		fs.File
		metered
	}{file, metered{r, f.o}}, nil
}

// reopen opens a file for reading it as a whole. Unless the tag is "", the file must still
// have it.
func (f meteredFS) reopen(name, tag string) (io.ReadCloser, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && tag != "" && tagOf(info) != tag {
		err = &fs.PathError{Op: "open", Path: name, Err: errChanged}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return f.o.whole(file, info.Size()), nil
}

// whole reads all of a file.
func (o *Opener) whole(file fs.File, size int64) io.ReadCloser {
	r := io.NewSectionReader(o.meter(file.(io.ReaderAt)), 0, size)
	return struct {
		io.Reader
		io.WriterTo
		io.Closer
	}{r, wholeFile{r, file, o}, file}
}

// A wholeFile of this machine is copied by the system where that can.
type wholeFile struct {
	io.Reader
	file fs.File
	o    *Opener
}

func (r wholeFile) WriteTo(w io.Writer) (n int64, err error) {
	local, ok := r.file.(*os.File)
	if !ok {
		return io.CopyBuffer(w, struct{ io.Reader }{r}, make([]byte, 8<<20)) // a request each
	}
	const block = 64 << 20
	for err == nil && r.o.Context.Err() == nil {
		var copied int64
		copied, err = io.CopyN(w, local, block)
		r.o.read.Add(copied)
		n += copied
	}
	if err == io.EOF {
		return n, nil
	}
	return n, cmp.Or(context.Cause(r.o.Context), err)
}
