package apitest_test

import (
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A disk is a file system in memory that knows what a power cut may leave of it, by
// the letter of POSIX, and whose operations can be made to fail:
//
//   - What was written to a file since its last sync may be there, in part or not
//     at all, each write by itself; its place may hold zeros or be beyond the end.
//   - After a sync that failed, nothing unsynced comes to the disk any more, and the
//     next sync says nothing of it: so Linux does.
//   - A sync of a file without a name flushes nothing, unless Kept says that it does:
//     btrfs flushes nothing that counts.
//   - Each name in a folder may be bound to any file that it was bound to since the
//     last sync of the folder, and to that of the sync, whatever other names are bound
//     to. So operations persist in any subset and order, and a rename by halves.
type disk struct {
	mu      sync.Mutex
	names   map[string][]*inode // by slash-separated path: what each may be after a cut; the last is what programs see
	open    int                 // files and folders
	locked  bool                // the folder of the saves
	noLocks *sync.WaitGroup     // if not nil there are no locks; those who want one wait for each other
	counts  map[string]int      // of operations, by their kind
	total   int                 // of operations
	modes   []fs.FileMode       // with which files were created
	fault   fault
	ignored string          // a kind of sync that does nothing
	named   bool            // there are no files without a name
	kept    bool            // what is flushed of them is kept
	observe func(op string) // called after each change
}

// diskKinds are what a disk may do with files without a name: have them, lose what is
// flushed of them, have none.
var diskKinds = []func(*disk){
	func(d *disk) { d.kept = true },
	func(d *disk) {},
	func(d *disk) { d.named = true },
}

// An inode is a file or a folder.
type inode struct {
	dir     bool
	mode    fs.FileMode
	synced  []byte
	pending []patch // changes since the last sync
	lost    bool    // a sync failed
	unnamed bool    // it has never had a name
}

// A patch is one change of a file: data at an offset or, without data, a new length.
type patch struct {
	data []byte
	off  int64
}

// A fault makes operations fail with err: the n-th of a kind, or of all if op is "",
// and those after it if rest is set, as on a disk that dies. op may list several kinds,
// separated by spaces.
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

// save runs a save on the disk, with a fault or with none.
func (d *disk) save(t testing.TB, s save, n int, f fault) error {
	defer d.use(t)()
	d.fault = f
	return s.write(n)
}

// lock returns what unlocks the disk.
func (d *disk) lock() (unlock func()) {
	d.mu.Lock()
	return d.mu.Unlock
}

// do counts an operation and fails if it is to.
func (d *disk) do(op, name string) error {
	d.counts[op]++
	d.total++
	f, count := &d.fault, d.counts[op]
	if f.op == "" {
		count = d.total
	}
	if (f.op == "" || slices.Contains(strings.Fields(f.op), op)) && f.n > 0 && (f.n == count || f.rest && f.n < count) {
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

// clean returns the path of a name. The root is its own parent.
func clean(name string) string {
	if name = filepath.ToSlash(filepath.Clean(name)); name == ".." {
		return "."
	}
	return name
}

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
