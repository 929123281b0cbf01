package dcp

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// maxIdle is the largest number of files that stay open between reads. A checkpoint has a file for
// each rank, perhaps more files than a process may open.
const maxIdle = 32

// A files holds the files that contain the chunks of a checkpoint, and limits how many of them are
// open.
type files struct {
	in     osfile.Tree
	byName map[string]*file
	left   int64 // size of all files, minus the size of the chunks that were found

	mu     sync.Mutex // guards the fields below, and the fields open and readers of each file
	idle   []*file    // files that are open and have no reader; the longest unused comes first
	closed bool
}

// A file is opened when it is read. After the read it is idle: it stays open until files that were
// used later need its place.
type file struct {
	files *files
	path  string
	info  fs.FileInfo // size and time of the file when it was first opened
	name  string      // name that the file reports, or path if it reports none

	models map[int64]func() (*safetensors.File, error) // the safetensors files in it, by offset

	open    func() (fs.File, error) // opens the file once for all readers; nil if it is closed
	readers int
}

// open opens all files that contain chunks, and so checks that they exist.
func (f *files) open(dir string, all *described) error {
	var added []*file
	for _, entries := range all.entries {
		for _, e := range entries {
			for _, s := range e.places {
				if f.byName[s.file] != nil {
					continue
				}
				if _, err := filepath.Localize(s.file); err != nil || s.file == "." {
					return broken(e.name, "%.200q is not the name of a file in the folder", s.file)
				}
				opened := f.add(f.in.Join(dir, s.file))
				f.byName[s.file] = opened
				added = append(added, opened)
			}
		}
	}
	if err := openAll(added); err != nil {
		return err
	}
	for _, opened := range added {
		f.left += opened.info.Size()
	}
	return nil
}

// add returns a file that its first read opens.
func (f *files) add(path string) *file {
	return &file{files: f, path: path, models: make(map[int64]func() (*safetensors.File, error))}
}

// openAll opens each file once, concurrently.
func openAll(all []*file) error {
	return parallel.Do(shardsAtOnce, int64(len(all)), func(i int64) error {
		return all[i].read(func(io.ReaderAt) error { return nil })
	})
}

// close closes the idle files, and makes further reads fail. Files that are being read are closed
// after the read.
func (f *files) close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	return f.closeIdle()
}

// closeIdle closes idle files: those that exceed maxIdle, the longest unused first, or all of them
// after close.
func (f *files) closeIdle() error {
	f.mu.Lock()
	n := len(f.idle)
	if !f.closed {
		n = max(0, n-maxIdle)
	}
	opened := make([]func() (fs.File, error), n)
	for i, idle := range f.idle[:n] {
		opened[i], idle.open = idle.open, nil
	}
	f.idle = f.idle[n:]
	f.mu.Unlock()
	var errs []error
	for _, open := range opened {
		file, _ := open() // returns the file, which is open already
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.read(func(r io.ReaderAt) error {
		n, err = r.ReadAt(p, off)
		return err
	})
	return n, err
}

// Name returns the name of the file for errors. It returns "" unless the file has been opened once.
func (f *file) Name() string { return f.name }

// read calls the func do with the open file, which it opens if necessary.
func (f *file) read(do func(io.ReaderAt) error) (err error) {
	open, err := f.acquire()
	if err != nil {
		return err
	}
	usable := false // if it stays false, the next read opens the file again
	defer func() { err = cmp.Or(err, f.release(usable)) }()
	opened, err := open()
	if err != nil {
		return err
	}
	usable = true
	return do(opened.(io.ReaderAt))
}

// acquire begins a read, which release must end. It returns a func that returns the open file. If
// the file is not open yet, the func opens it.
func (f *file) acquire() (open func() (fs.File, error), err error) {
	f.files.mu.Lock()
	defer f.files.mu.Unlock()
	if f.files.closed {
		return nil, fs.ErrClosed
	}
	f.files.idle = slices.DeleteFunc(f.files.idle, func(other *file) bool { return other == f })
	if f.open == nil {
		f.open = sync.OnceValues(f.openNow)
	}
	f.readers++
	return f.open, nil
}

// release ends a read. After the last reader has called it, the file is idle if it is usable, and
// other idle files may be closed. Otherwise the next read opens the file again.
func (f *file) release(usable bool) error {
	f.files.mu.Lock()
	switch f.readers--; {
	case f.readers > 0:
	case usable:
		f.files.idle = append(f.files.idle, f)
	default:
		f.open = nil
	}
	f.files.mu.Unlock()
	return f.files.closeIdle()
}

// openNow opens the file. It checks that the file can be read by offset, and has not changed since
// it was first opened.
func (f *file) openNow() (fs.File, error) {
	opened, _, err := osfile.OpenFS(f.files.in.FS, f.path)
	if err != nil {
		return nil, err
	}
	info, err := opened.Stat()
	_, ok := opened.(io.ReaderAt)
	switch {
	case err != nil:
	case !ok:
		err = &fs.PathError{Op: "open", Path: f.path, Err: errors.New("is not a file that can be read by offset")}
	case f.info == nil:
		f.info, f.name = info, cmp.Or(osfile.NameOf(opened), f.path)
	case f.info.Size() != info.Size() || !f.info.ModTime().Equal(info.ModTime()):
		err = &fs.PathError{Op: "open", Path: f.path, Err: errors.New("has changed since it was first opened")}
	}
	if err != nil {
		opened.Close()
		return nil, err
	}
	return opened, nil
}
