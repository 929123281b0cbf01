// Package zipfile opens zip archives of untrusted origin, and reads their members.
//
// archive/zip reads the directory. What it leaves to its caller is checked here:
// names are unique, members do not overlap and lie in the file, nothing is
// encrypted, sizes agree with one another and with what the compression can reach.
package zipfile

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// An Archive is an open zip archive.
type Archive struct {
	Members []*Member // in the order of the file
	byName  map[string]*Member
}

// A Member is a file in an archive.
type Member struct {
	Name string
	Size int64 // of the content, uncompressed

	file  *zip.File
	r     io.ReaderAt            // the archive
	start int64                  // of the stored bytes in it
	held  *contents              // of all members of the archive
	once  sync.Mutex             // held while it is unpacked
	bytes atomic.Pointer[[]byte] // the content, while held has it
}

// Holds reports whether a file is an archive with a member whose name ends in suffix. It
// reads the directory only.
func Holds(r io.ReaderAt, size int64, suffix string) bool {
	z, err := directory(r, size)
	return err == nil && slices.ContainsFunc(z.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, suffix) })
}

func directory(r io.ReaderAt, size int64) (*zip.Reader, error) {
	z, err := zip.NewReader(r, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // no name becomes a path
		return nil, fmt.Errorf("reading the zip directory: %w", err)
	}
	return z, nil
}

// Open reads the directory of the archive of size bytes in r, and the start of each
// member. each calls f(0) to f(n-1), perhaps concurrently, because each of them reads, and
// a read may be a request. It returns the first error.
func Open(r io.ReaderAt, size int64, each func(n int64, f func(i int64) error) error) (*Archive, error) {
	z, err := directory(r, size)
	if err != nil {
		return nil, err
	}
	a := &Archive{make([]*Member, len(z.File)), make(map[string]*Member, len(z.File))}
	err = each(int64(len(z.File)), func(i int64) (err error) {
		if a.Members[i], err = newMember(r, size, z.File[i]); err != nil {
			err = fmt.Errorf("zip member %.200q: %w", z.File[i].Name, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	held := new(contents)
	for _, m := range a.Members {
		m.held = held
		if a.byName[m.Name] != nil {
			return nil, fmt.Errorf("duplicate zip member %.200q", m.Name)
		}
		a.byName[m.Name] = m
	}
	slices.SortStableFunc(a.Members, func(m, n *Member) int { return cmp.Compare(m.start, n.start) })
	return a, a.checkOverlap()
}

// localHeader is the size of a member's header without its name and extra field.
const localHeader = 30

// checkOverlap checks that each member starts after the one before it. Their
// headers count too, as far as their size is known.
func (a *Archive) checkOverlap() error {
	end := int64(0)
	for i, m := range a.Members {
		if m.start-localHeader-int64(len(m.Name)) < end {
			if i == 0 {
				return fmt.Errorf("zip member %.200q starts before the archive", m.Name)
			}
			return fmt.Errorf("zip members %.200q and %.200q overlap", a.Members[i-1].Name, m.Name)
		}
		end = m.start + int64(m.file.CompressedSize64)
	}
	return nil
}

func newMember(r io.ReaderAt, size int64, f *zip.File) (*Member, error) {
	const (
		encrypted   = 1 << 0
		mostDeflate = 1032 // deflate takes at least 2 bits for 258 bytes
		directory   = 22   // bytes that a directory takes at least
	)
	stored, unpacked := f.CompressedSize64, f.UncompressedSize64
	switch {
	case f.Flags&encrypted != 0:
		return nil, errors.New("it is encrypted")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return nil, fmt.Errorf("unknown compression method %d", f.Method)
	case f.Method == zip.Store && stored != unpacked:
		return nil, fmt.Errorf("stored size %d is not its size %d", stored, unpacked)
	case stored > uint64(size):
		return nil, fmt.Errorf("its %d bytes exceed the file of %d", stored, size)
	case unpacked > math.MaxInt64 || unpacked/mostDeflate > stored:
		return nil, fmt.Errorf("%d bytes cannot hold the %d that it claims", stored, unpacked)
	}
	start, err := f.DataOffset()
	switch {
	case err != nil:
		return nil, err
	case start < 0 || start > size-directory-int64(stored):
		return nil, fmt.Errorf("its %d bytes at byte %d run into the directory at the end of the file of %d", stored, start, size)
	}
	return &Member{Name: f.Name, Size: int64(unpacked), file: f, r: r, start: start}, nil
}

// Member returns the member of that name, nil if there is none.
func (a *Archive) Member(name string) *Member { return a.byName[name] }

// Compressed reports whether a member is compressed.
func (m *Member) Compressed() bool { return m.file.Method != zip.Store }

// Content returns the content of a member, to be read at any place. A compressed one is unpacked at
// the first read, if check accepts its size in bytes: it stays in memory, so that no other read
// unpacks it, until others need the room. Any other is read where it is; its checksum is not
// verified, which would take reading all of it.
func (m *Member) Content(check func(bytes int64) error) io.ReaderAt {
	if !m.Compressed() {
		return io.NewSectionReader(m.r, m.start, m.Size)
	}
	return unpacked{m, check}
}

type unpacked struct {
	*Member
	check func(bytes int64) error
}

func (u unpacked) ReadAt(p []byte, off int64) (int, error) {
	b, err := u.content()
	if err != nil {
		return 0, err
	}
	return bytes.NewReader(b).ReadAt(p, off)
}

func (u unpacked) content() ([]byte, error) {
	u.once.Lock()
	defer u.once.Unlock()
	if b := u.bytes.Load(); b != nil {
		return *b, nil
	}
	if err := u.check(u.Size); err != nil {
		return nil, fmt.Errorf("zip member %.200q: %w", u.Name, err)
	}
	u.held.makeRoom(u.Size)
	b, err := u.ReadAll(u.Size)
	if err == nil {
		u.held.add(u.Member, b)
	}
	return b, err
}

// heldBytes is how much memory contents take, unless the last two are larger. A test has less.
var heldBytes = int64(256 << 20)

// contents are those of the members of an archive that were unpacked last.
type contents struct {
	mu    sync.Mutex
	order []*Member
	size  int64
}

func (c *contents) add(m *Member, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.bytes.Store(&b)
	c.order, c.size = append(c.order, m), c.size+m.Size
}

// makeRoom drops the oldest contents, but for one, where they and size bytes more take too much
// memory: whoever reads a file in order may read the end of one member and the start of the next.
func (c *contents) makeRoom(size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.order) > 1 && c.size+size > heldBytes {
		oldest := c.order[0]
		c.size -= oldest.Size
		oldest.bytes.Store(nil)
		c.order = c.order[1:]
	}
}

// CheckUnpack refuses to unpack a compressed member into memory if it packs much better
// than weights can.
func (m *Member) CheckUnpack() error {
	const (
		always    = 256 << 20
		expansion = 32
	)
	if packed := int64(m.file.CompressedSize64); m.Size > always && m.Size/expansion > packed {
		return fmt.Errorf("%d bytes are packed into %d and would have to be unpacked into memory; store the archive without compression", m.Size, packed)
	}
	return nil
}

// Open returns the content as a stream, which verifies the checksum at its end.
func (m *Member) Open() (io.ReadCloser, error) { return m.file.Open() }

// ReadAll returns the content of a member of at most limit bytes, and verifies its
// checksum.
func (m *Member) ReadAll(limit int64) ([]byte, error) {
	if m.Size > limit {
		return nil, fmt.Errorf("zip member %.200q has %d bytes, more than %d", m.Name, m.Size, limit)
	}
	b := make([]byte, m.Size)
	r, err := m.Open()
	if err == nil {
		defer r.Close()
		_, err = io.ReadFull(r, b)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, r) // to its end
	}
	if err != nil {
		return nil, fmt.Errorf("zip member %.200q: %w", m.Name, err)
	}
	return b, nil
}
