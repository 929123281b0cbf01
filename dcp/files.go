package dcp

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// maxIdle is how many files stay open between reads. A checkpoint has a file for each rank,
// perhaps more than a process may have open.
const maxIdle = 32

// files are the files that chunks are in.
type files struct {
	fsys   fs.FS
	byName map[string]*file
	models map[model]func() (*safetensors.File, error)
	left   int64 // bytes of the files, less those of the chunks

	mu     sync.Mutex
	idle   []*file // open, in the order of their last use
	closed bool
}

// A file is opened when it is read. Afterwards it is idle: it stays open for a while.
type file struct {
	files *files
	path  string
	info  fs.FileInfo // of the first time

	mu      sync.Mutex // before that of files
	opened  fs.File    // nil if it is closed
	readers int
}

// open opens all files that the chunks of tensors are in.
func (f *files) open(dir string, c *checkpoint) error {
	var all []*file
	for _, t := range c.tensors {
		for _, s := range c.stored[t.name] {
			if f.byName[s.file] != nil {
				continue
			}
			if !fs.ValidPath(s.file) || s.file == "." {
				return broken(t.name, "%.200q is not the name of a file in the folder", s.file)
			}
			opened := &file{files: f, path: path.Join(dir, s.file)}
			f.byName[s.file] = opened
			all = append(all, opened)
		}
	}
	err := parallel.Do(shardsAtOnce, int64(len(all)), func(i int64) error {
		if _, err := all[i].acquire(); err != nil {
			return err
		}
		return all[i].release()
	})
	if err != nil {
		return err
	}
	for _, opened := range all {
		f.left += opened.info.Size()
	}
	return nil
}

// close closes the idle files, and refuses further reads.
func (f *files) close() error {
	f.mu.Lock()
	f.closed = true
	idle := f.idle
	f.idle = nil
	f.mu.Unlock()
	var errs []error
	for _, opened := range idle {
		errs = append(errs, opened.closeIdle())
	}
	return errors.Join(errs...)
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	r, err := f.acquire()
	if err != nil {
		return 0, err
	}
	n, err := r.ReadAt(p, off)
	if closeErr := f.release(); err == nil {
		err = closeErr
	}
	return n, err
}

// acquire opens the file unless it is open.
func (f *file) acquire() (io.ReaderAt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.files.remove(f) {
		return nil, fs.ErrClosed
	}
	if f.opened == nil {
		if err := f.open(); err != nil {
			return nil, err
		}
	}
	f.readers++
	return f.opened.(io.ReaderAt), nil
}

// remove removes a file from the idle ones, if it is one. It reports whether files may
// still be read.
func (f *files) remove(first *file) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = slices.DeleteFunc(f.idle, func(other *file) bool { return other == first })
	return !f.closed
}

func (f *file) open() error {
	opened, err := f.files.fsys.Open(f.path)
	if err != nil {
		return err
	}
	info, err := opened.Stat()
	_, ok := opened.(io.ReaderAt)
	switch {
	case err != nil:
	case !ok || !info.Mode().IsRegular():
		err = &fs.PathError{Op: "open", Path: f.path, Err: errors.New("is not a file that can be read by offset")}
	case f.info != nil && (f.info.Size() != info.Size() || !f.info.ModTime().Equal(info.ModTime())):
		err = &fs.PathError{Op: "open", Path: f.path, Err: errors.New("has changed since it was first opened")}
	}
	if err != nil {
		opened.Close()
		return err
	}
	f.opened = opened
	if f.info == nil {
		f.info = info
	}
	return nil
}

// release ends a read. After the last one the file is idle, and the one that has been idle
// for longest may be closed.
func (f *file) release() error {
	f.mu.Lock()
	var oldest *file
	if f.readers--; f.readers == 0 {
		oldest = f.files.add(f)
	}
	f.mu.Unlock()
	if oldest == nil {
		return nil
	}
	return oldest.closeIdle()
}

// add adds a file to the idle ones, and removes the oldest if there are too many.
func (f *files) add(last *file) (oldest *file) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = append(f.idle, last)
	if len(f.idle) > maxIdle || f.closed {
		oldest = f.idle[0]
		f.idle = slices.Delete(f.idle, 0, 1)
	}
	return oldest
}

// closeIdle closes the file, unless somebody has begun to read it again.
func (f *file) closeIdle() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers > 0 || f.opened == nil {
		return nil
	}
	opened := f.opened
	f.opened = nil
	return opened.Close()
}
