package apitest_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A disk is a file system in memory that knows what a power cut may leave of it, by
// the letter of POSIX, and whose operations can be made to fail:
//
//   - What was written to a file since its last sync may be there, in part or not
//     at all, each write by itself; its place may hold zeros or be beyond the end.
//   - After a sync that failed, nothing unsynced comes to the disk any more, and the
//     next sync says nothing of it: so Linux does.
//   - Each name in a folder may be bound to any file that it was bound to since the
//     last sync of the folder, and to that of the sync, whatever other names are bound
//     to. So operations persist in any subset and order, and a rename by halves.
type disk struct {
	mu      sync.Mutex
	names   map[string][]*inode // by slash-separated path: what each may be after a cut; the last is what programs see
	open    int                 // files and folders
	counts  map[string]int      // of operations, by their kind
	total   int                 // of operations
	fault   fault
	ignored string          // a kind of sync that does nothing
	observe func(op string) // called after each change
}

// An inode is a file or a folder.
type inode struct {
	dir     bool
	mode    fs.FileMode
	synced  []byte
	pending []patch // changes since the last sync
	lost    bool    // a sync failed
}

// A patch is one change of a file: data at an offset or, without data, a new length.
type patch struct {
	data []byte
	off  int64
}

// A fault makes operations fail with err: the n-th of a kind, or of all if op is "",
// and those after it if rest is set, as on a disk that dies.
type fault struct {
	op    string
	n     int
	rest  bool
	err   error
	short bool // a write that fails has written half
	hit   bool
}

func newDisk() *disk {
	return &disk{names: map[string][]*inode{".": {{dir: true, mode: fs.ModeDir | 0o777}}}}
}

// diskWith returns a disk with files, as after a restart.
func diskWith(files map[string][]byte) *disk {
	d := newDisk()
	for name, data := range files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			d.names[dir] = []*inode{{dir: true, mode: fs.ModeDir | 0o777}}
		}
		d.names[name] = []*inode{{synced: data, mode: 0o666}}
	}
	return d
}

// use sends saves to the disk until the test ends or restore is called.
func (d *disk) use(t testing.TB) (restore func()) {
	restore = sync.OnceFunc(osfile.Wrap(func(osfile.System) osfile.System { return d }))
	t.Cleanup(restore)
	d.counts, d.total = map[string]int{}, 0
	return restore
}

// do counts an operation and fails if it is to.
func (d *disk) do(op, name string) error {
	d.counts[op]++
	d.total++
	f, count := &d.fault, d.counts[op]
	if f.op == "" {
		count = d.total
	}
	if (f.op == "" || f.op == op) && f.n > 0 && (f.n == count || f.rest && f.n < count) {
		f.hit = true
		return &fs.PathError{Op: op, Path: name, Err: f.err}
	}
	return nil
}

// changed is called after each change.
func (d *disk) changed(op, name string) {
	if d.observe != nil {
		if strings.Contains(name, osfile.TempPrefix) {
			name = "a temporary file"
		}
		d.observe(op + " " + name)
	}
}

func clean(name string) string { return filepath.ToSlash(filepath.Clean(name)) }

// now returns what programs see under a name, nil if nothing.
func (d *disk) now(name string) *inode {
	history := d.names[clean(name)]
	if len(history) == 0 {
		return nil
	}
	return history[len(history)-1]
}

// bind binds a name to an inode, or to nothing.
func (d *disk) bind(name string, n *inode) {
	name = clean(name)
	if d.names[name] == nil {
		d.names[name] = []*inode{nil}
	}
	d.names[name] = append(d.names[name], n)
}

// in returns the names in a folder that are bound now.
func (d *disk) in(dir string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if name != "." && path.Dir(name) == clean(dir) && d.now(name) != nil {
			names = append(names, name)
		}
	}
	return names
}

// settle makes all that programs see durable.
func (d *disk) settle() {
	for name := range d.names {
		n := d.now(name)
		if n == nil {
			delete(d.names, name)
			continue
		}
		n.synced, n.pending = n.content(n.pending), nil
		d.names[name] = []*inode{n}
	}
}

// files returns the contents of the files that programs see.
func (d *disk) files() map[string][]byte {
	files := map[string][]byte{}
	for name := range d.names {
		if n := d.now(name); n != nil && !n.dir {
			files[name] = n.content(n.pending)
		}
	}
	return files
}

// content returns the bytes of a file of which some changes are on the disk.
func (n *inode) content(patches []patch) []byte {
	b := slices.Clone(n.synced)
	for _, p := range patches {
		end := int(p.off) + len(p.data)
		if end > len(b) {
			b = append(b, make([]byte, end-len(b))...)
		}
		if p.data == nil {
			b = b[:end]
		}
		copy(b[p.off:], p.data)
	}
	return b
}

// contents returns what a power cut may leave of a file: the changes up to each one,
// that one alone, all but that one, and each up to its middle.
func (n *inode) contents() [][]byte {
	all := [][]byte{n.content(n.pending), n.content(nil)}
	if len(n.pending) == 0 {
		return all[:1]
	}
	for i, p := range n.pending {
		half := patch{p.data[:len(p.data)/2], p.off}
		all = append(all, n.content(n.pending[:i]), n.content(n.pending[i:i+1]),
			n.content(append(slices.Clone(n.pending[:i]), half)),
			n.content(slices.Delete(slices.Clone(n.pending), i, i+1)))
	}
	slices.SortFunc(all, slices.Compare)
	return slices.CompactFunc(all, slices.Equal)
}

func (d *disk) Stat(name string) (fs.FileInfo, error)  { return d.stat("stat", name) }
func (d *disk) Lstat(name string) (fs.FileInfo, error) { return d.stat("lstat", name) }

func (d *disk) stat(op, name string) (fs.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.do(op, name); err != nil {
		return nil, err
	}
	n := d.now(name)
	if n == nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return inodeInfo{n, path.Base(clean(name))}, nil
}

func (d *disk) ReadDir(name string) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.do("readdir", name); err != nil {
		return nil, err
	}
	if d.now(name) == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	var entries []fs.DirEntry
	for _, entry := range d.in(name) {
		entries = append(entries, fs.FileInfoToDirEntry(inodeInfo{d.now(entry), path.Base(entry)}))
	}
	return entries, nil
}

func (d *disk) Mkdir(name string, mode fs.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
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

func (d *disk) Create(name string, mode fs.FileMode) (osfile.File, error) {
	const umask = 0o022
	d.mu.Lock()
	defer d.mu.Unlock()
	n := &inode{mode: mode &^ umask}
	if err := d.make("create", name, n); err != nil {
		return nil, err
	}
	d.open++
	return &diskFile{d: d, n: n, name: name}, nil
}

func (d *disk) OpenDir(name string) (osfile.Folder, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.do("opendir", name); err != nil {
		return nil, err
	}
	if n := d.now(name); n == nil || !n.dir {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	d.open++
	return &diskFolder{d: d, name: name}, nil
}

func (d *disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.do("remove", name); err != nil {
		return err
	}
	if d.now(name) == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if len(d.in(name)) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: errors.New("the folder is not empty")}
	}
	d.bind(name, nil)
	d.changed("remove", name)
	return nil
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

func (f *diskFile) change(op string, p patch) {
	f.n.pending = append(f.n.pending, p)
	f.d.changed(op, f.name)
}

func (f *diskFile) WriteAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
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

func (f *diskFile) Allocate(size int64) error { return f.resize("allocate", size) }
func (f *diskFile) Truncate(size int64) error { return f.resize("truncate", size) }

func (f *diskFile) resize(op string, size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	err := f.do(op)
	if err == nil {
		f.change(op, patch{nil, size})
	}
	return err
}

func (f *diskFile) StartWriteback(int64, int64) {}

func (f *diskFile) Stat() (fs.FileInfo, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return inodeInfo{f.n, filepath.Base(f.name)}, f.do("fstat")
}

func (f *diskFile) Chmod(mode fs.FileMode) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	err := f.do("chmod")
	if err == nil {
		f.n.mode = mode
	}
	return err
}

func (f *diskFile) Chown(int, int) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.do("chown")
}

func (f *diskFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.do("sync"); err != nil {
		f.n.lost = true
		return err
	}
	if !f.n.lost && f.d.ignored != "sync" {
		f.n.synced, f.n.pending = f.n.content(f.n.pending), nil
	}
	f.d.changed("sync", f.name)
	return nil
}

// Close closes the file even if it fails, as Linux does.
func (f *diskFile) Close() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	err := f.do("close")
	if !f.closed {
		f.closed = true
		f.d.open--
	}
	return err
}

// A diskFolder is an open folder of a disk.
type diskFolder struct {
	d      *disk
	name   string
	closed bool
}

func (f *diskFolder) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.do("syncdir", f.name); err != nil {
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

func (f *diskFolder) Close() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	f.d.open--
	return f.d.do("closedir", f.name)
}

// An inodeInfo is the fs.FileInfo of an inode.
type inodeInfo struct {
	n    *inode
	name string
}

func (i inodeInfo) Name() string       { return i.name }
func (i inodeInfo) Size() int64        { return int64(len(i.n.content(i.n.pending))) }
func (i inodeInfo) Mode() fs.FileMode  { return i.n.mode }
func (i inodeInfo) ModTime() time.Time { return time.Time{} }
func (i inodeInfo) IsDir() bool        { return i.n.dir }
func (i inodeInfo) Sys() any           { return nil }
