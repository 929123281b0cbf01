package apitest_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing/fstest"

	"github.com/gosafetensors/safetensors/internal/osfile"
)

// The methods of a disk and its files are those of osfile.System.
var _ osfile.System = (*disk)(nil)

func (d *disk) Stat(name string) (fs.FileInfo, error)  { return d.stat("stat", name) }
func (d *disk) Lstat(name string) (fs.FileInfo, error) { return d.stat("lstat", name) }

// at does an operation on a name that is bound.
func (d *disk) at(op, name string, then func(n *inode) error) error {
	defer d.lock()()
	if err := d.do(op, name); err != nil {
		return err
	}
	n := d.now(name)
	if n == nil {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return then(n)
}

func (d *disk) stat(op, name string) (info fs.FileInfo, err error) {
	err = d.at(op, name, func(n *inode) error {
		info = n.info(path.Base(clean(name)))
		return nil
	})
	return info, err
}

func (d *disk) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = d.at("readdir", name, func(*inode) error {
		for _, entry := range d.in(name) {
			entries = append(entries, fs.FileInfoToDirEntry(d.now(entry).info(path.Base(entry))))
		}
		return nil
	})
	return entries, err
}

func (d *disk) Mkdir(name string, mode fs.FileMode) error {
	defer d.lock()()
	return d.make("mkdir", name, &inode{dir: true, mode: fs.ModeDir | mode})
}

// make binds a new name.
func (d *disk) make(op, name string, n *inode) error {
	if err := d.do(op, name); err != nil {
		return err
	}
	if d.now(name) != nil {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrExist}
	}
	if d.now(filepath.Dir(name)) == nil {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	d.bind(name, n)
	d.changed(op, name)
	return nil
}

const umask = 0o022

// file opens a new file.
func (d *disk) file(n *inode, name string) osfile.File {
	d.open++
	d.modes = append(d.modes, n.mode)
	return &diskFile{d: d, n: n, name: name}
}

func (d *disk) Create(name string, mode fs.FileMode) (osfile.File, error) {
	defer d.lock()()
	n := &inode{mode: mode &^ umask}
	if err := d.make("create", name, n); err != nil {
		return nil, err
	}
	return d.file(n, name), nil
}

func (d *disk) CreateUnnamed(dir string, mode fs.FileMode) (f osfile.File, err error) {
	if d.named {
		return nil, errors.ErrUnsupported
	}
	err = d.at("tmpfile", dir, func(*inode) error {
		f = d.file(&inode{mode: mode &^ umask, unnamed: true}, filepath.Join(dir, osfile.TempPrefix))
		return nil
	})
	return f, err
}

func (d *disk) Lock(dir string) (unlock func(), err error) {
	if d.noLocks != nil {
		d.noLocks.Done()
		d.noLocks.Wait()
		return nil, errors.ErrUnsupported
	}
	err = d.at("lock", dir, func(*inode) error {
		if d.locked {
			return osfile.ErrLocked
		}
		d.locked = true
		return nil
	})
	return func() {
		defer d.lock()()
		d.locked = false
	}, err
}

func (d *disk) OpenDir(name string) (f osfile.Folder, err error) {
	err = d.at("opendir", name, func(*inode) error {
		d.open++
		f = &diskFolder{diskFile{d: d, name: name}}
		return nil
	})
	return f, err
}

func (d *disk) Rename(from, to string) error {
	defer d.lock()()
	err := d.do("rename", to)
	n := d.now(from)
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	d.bind(from, nil)
	d.bind(to, n)
	d.changed("rename to", to)
	return nil
}

func (d *disk) Remove(name string) error {
	return d.at("remove", name, func(*inode) error {
		if len(d.in(name)) > 0 {
			return &fs.PathError{Op: "remove", Path: name, Err: errors.New("the folder is not empty")}
		}
		d.bind(name, nil)
		d.changed("remove", name)
		return nil
	})
}

// A diskFile is an open file of a disk.
type diskFile struct {
	d      *disk
	n      *inode
	name   string
	closed bool
}

// do counts an operation on an open file and fails if it is to.
func (f *diskFile) do(op string) error {
	if f.closed {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	return f.d.do(op, f.name)
}

// on does an operation unless it fails.
func (f *diskFile) on(op string, then func()) error {
	defer f.d.lock()()
	err := f.do(op)
	if err == nil {
		then()
	}
	return err
}

func (f *diskFile) change(op string, p patch) {
	f.n.pending = append(f.n.pending, p)
	f.d.changed(op, f.name)
}

func (f *diskFile) WriteAt(b []byte, off int64) (int, error) {
	defer f.d.lock()()
	err := f.do("write")
	switch {
	case err == nil:
	case f.d.fault.short && !f.closed:
		b = b[:len(b)/2]
	default:
		return 0, err
	}
	f.change("write", patch{slices.Clone(b), off})
	return len(b), err
}

func (f *diskFile) Link(name string) error {
	defer f.d.lock()()
	if f.closed || !f.n.unnamed {
		return &fs.PathError{Op: "link", Path: name, Err: fs.ErrNotExist}
	}
	if err := f.d.make("link", name, f.n); err != nil {
		return err
	}
	f.n.unnamed = false
	return nil
}

func (f *diskFile) Kept() bool { return f.d.kept }

func (f *diskFile) Allocate(size int64) error { return f.resize("allocate", size) }
func (f *diskFile) Truncate(size int64) error { return f.resize("truncate", size) }

func (f *diskFile) resize(op string, size int64) error {
	return f.on(op, func() { f.change(op, patch{nil, size}) })
}

func (f *diskFile) StartWriteback(int64, int64) {}

func (f *diskFile) Stat() (info fs.FileInfo, err error) {
	err = f.on("fstat", func() { info = f.n.info(filepath.Base(f.name)) })
	return info, err
}

func (f *diskFile) Chmod(mode fs.FileMode) error { return f.on("chmod", func() { f.n.mode = mode }) }
func (f *diskFile) Chown(int, int) error         { return f.on("chown", func() {}) }

func (f *diskFile) Sync() error {
	defer f.d.lock()()
	if err := f.do("sync"); err != nil {
		f.n.lost = true
		return err
	}
	if !f.n.lost && (!f.n.unnamed || f.d.kept) && f.d.ignored != "sync" {
		f.n.synced, f.n.pending = f.n.content(f.n.pending), nil
	}
	f.d.changed("sync", f.name)
	return nil
}

func (f *diskFile) Close() error { return f.close("close") }

// close closes the file even if it fails, as Linux does.
func (f *diskFile) close(op string) error {
	defer f.d.lock()()
	err := f.do(op)
	if !f.closed {
		f.closed = true
		f.d.open--
	}
	return err
}

// A diskFolder is an open folder of a disk.
type diskFolder struct{ diskFile }

func (f *diskFolder) Sync() error {
	defer f.d.lock()()
	if err := f.do("syncdir"); err != nil {
		return err
	}
	for name, history := range f.d.names {
		if path.Dir(name) == clean(f.name) && f.d.ignored != "syncdir" {
			f.d.names[name] = history[len(history)-1:]
		}
	}
	f.d.changed("sync", f.name)
	return nil
}

func (f *diskFolder) Close() error { return f.close("closedir") }

// info returns the fs.FileInfo of an inode.
func (n *inode) info(name string) fs.FileInfo {
	return must(fstest.MapFS{name: {Data: n.content(n.pending), Mode: n.mode}}.Stat(name))
}
